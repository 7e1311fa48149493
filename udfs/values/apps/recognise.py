"""Recognises what a side of a topic holds: by the topic's name, and by bytes that fit in every record.

A side is recognised only where one layout alone consumes every byte of every payload that was looked at, its
times are plausible, its flags in range, and what is inside is text, numbers or framed by the registry without
a doubt. All else stays what it looks like: unknown is right, wrong is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from struct import Struct
from typing import Any

from kafka_log_lake.udfs.values.apps import mirror, streams
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormat
from kafka_log_lake.udfs.values.schemas.payload import PayloadError

Payload = tuple[bytes, Sequence[tuple[str, bytes | None]]]  # and the record's headers
Framed = Callable[[bytes], bool]  # whether the registry reads these bytes
_KEY = "key"
_CHANGELOG, _REPARTITION = "-changelog", "-repartition"
_RESPONSE, _REGISTRATION = "-subscription-response-topic", "-subscription-registration-topic"
_SUBSCRIPTIONS = "-subscription-store-changelog"
_SHARED = re.compile("shared", re.IGNORECASE)  # in the names of stores of outer joins
_MIRROR = {
    "mm2-heartbeat": re.compile(r"(.+[\W_])?heartbeats"),
    "mm2-checkpoint": re.compile(r".+[\W_]checkpoints[\W_]internal"),
    "mm2-offset-sync": re.compile(r"mm2-offset-syncs[\W_].+[\W_]internal"),
}
_FIRST_MS, _LAST_MS = 946_684_800_000, 4_102_444_800_000  # the years 2000 to 2100
_MOST_SEQUENCE, _MOST_PARTITION = 1 << 24, 1 << 16
_LONG, _INTEGER = 1 << 52, 1 << 23  # larger numbers are hardly counts, and may be anything
_PAIRED = 1 << 16
_NO_HASH = bytes(16).hex()
_DOUBLE = Struct(">d")
_SMALL, _LARGE, _FEW = 1e-6, 1e15, 4
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def recognise(topic: str, side: str, payloads: Sequence[Payload], is_framed: Framed) -> TopicFormat | None:
    """Returns the format of a side of a topic that an application writes; None where it is not certain.

    payloads: of the side's first records, none null; with the headers of their records.
    """
    if not payloads:
        return None
    data = list(dict.fromkeys(payload for payload, _ in payloads))
    of_mirror = mirror_kind(topic)
    if of_mirror is not None:
        return _of_mirror(of_mirror, side, data)
    kinds = _keys(topic) if side == _KEY else _values(topic, payloads)
    fits = [format_ for kind in kinds if (format_ := _fits(kind, side, data, is_framed)) is not None]
    return fits[0] if fits else None


def mirror_kind(topic: str) -> str | None:
    """Returns the kind of MirrorMaker's topics that a name belongs to; None for other names."""
    return next((kind for kind, name in _MIRROR.items() if name.fullmatch(topic)), None)


def has_sound_fields(fields: Mapping[str, Any]) -> bool:
    """Returns whether a record of MirrorMaker has names, times, offsets and partitions that there may be."""
    return all(_MIRROR_FIELDS[name](held) for name, held in fields.items())


def is_of_streams(topic: str) -> bool:
    """Returns whether a topic has a name that Streams gives to topics of its own."""
    return topic.endswith((_CHANGELOG, _REPARTITION, _REGISTRATION, _RESPONSE))


def has_own_layout(topic: str, side: str) -> bool:
    """Returns whether Streams puts fields of its own on this side: no plain number is there."""
    return topic.endswith(_SUBSCRIPTIONS) or (side != _KEY and topic.endswith((_REGISTRATION, _RESPONSE)))


def number(payloads: Iterable[bytes]) -> str:
    """Returns the serde of payloads that are all numbers: long, integer or double; "" where they are not."""
    held = set(payloads)
    if {len(payload) for payload in held} == {4}:
        whole = [int.from_bytes(payload, "big", signed=True) for payload in held]
        return "integer" if all(abs(value) < _INTEGER for value in whole) else ""
    if {len(payload) for payload in held} != {8} or all(_is_text(payload) for payload in held):
        return ""
    whole = [int.from_bytes(payload, "big", signed=True) for payload in held]
    if all(abs(value) < _LONG for value in whole):
        return "" if any(map(_may_be_a_pair, whole)) else "long"
    return "double" if _are_doubles([_DOUBLE.unpack(payload)[0] for payload in held]) else ""


def _may_be_a_pair(whole: int) -> bool:
    """Returns whether a long has two numbers of four bytes: a count or an id in each."""
    return whole >> 32 not in (0, -1) and whole & 0xFFFF_FFFF < _PAIRED


def _are_doubles(held: list[float]) -> bool:
    """Returns whether numbers are no other bytes: of a usual size, and several of them or short to write."""
    if not all(value == 0 or (isfinite(value) and _SMALL <= abs(value) <= _LARGE) for value in held):
        return False
    return len(held) >= _FEW or all(len(repr(value)) <= 10 for value in held)


def inner_serde(payloads: Iterable[bytes], is_framed: Framed) -> str | None:
    """Returns the serde of bytes inside of a layout; None where it is not certain."""
    held = set(payloads)
    if any(held) and all(_is_text(payload) for payload in held):
        return "string"
    serde = number(held)
    return serde or ("registry" if held and all(payload and is_framed(payload) for payload in held) else None)


def _is_text(data: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        return not _CONTROL.search(data.decode())
    return False


def _of_mirror(kind: str, side: str, data: Sequence[bytes]) -> TopicFormat | None:
    try:
        sides = [mirror.read_side(kind, side, payload) for payload in data]
    except PayloadError:
        return None
    return TopicFormat(kind, is_declared=False) if all(map(has_sound_fields, sides)) else None


def _keys(topic: str) -> tuple[str, ...]:
    """Returns the kinds whose keys the topic may have; what has more fields comes first."""
    if topic.endswith(_SUBSCRIPTIONS):
        return ("fk-store-changelog",)
    if topic.endswith(_CHANGELOG):
        shared = ("outer-join-changelog",) if _SHARED.search(topic) else ()
        return (*shared, "window-changelog", "session-changelog", "time-windowed")
    return ("session-windowed", "time-windowed") if topic.endswith(_REPARTITION) else ()


def _values(topic: str, payloads: Sequence[Payload]) -> tuple[str, ...]:
    if topic.endswith(_REGISTRATION):
        return ("fk-registration",)
    if topic.endswith(_SUBSCRIPTIONS):
        return ("fk-store-changelog",)
    if topic.endswith(_RESPONSE):
        return ("fk-response",)
    if topic.endswith(_REPARTITION):
        return ("changed",)
    if topic.endswith(_CHANGELOG):
        has_version = all(("v", streams.SUPPRESS_VERSION) in headers for _, headers in payloads)
        shared = ("outer-join-changelog",) if _SHARED.search(topic) else ()
        return ("suppress-changelog",) if has_version else shared
    return ()


class _Misfit(Exception):
    """Raised where a payload is not of a kind."""


def _fits(kind: str, side: str, data: Sequence[bytes], is_framed: Framed) -> TopicFormat | None:
    """Returns the format by which a kind's layout fits all payloads; None where it does not."""
    keys: list[bytes] = []
    values: list[bytes] = []
    look = _LOOKS[kind, side]
    try:
        for payload in data:
            look(payload, keys.append, values.append)
    except (PayloadError, _Misfit):
        return None
    if side == _KEY and not _has_usual_times(kind, data):
        return None
    serdes = [inner_serde(held, is_framed) if held else "" for held in (keys, values)]
    if None in serdes:
        return None
    return TopicFormat(kind, serdes[0] or "", serdes[1] or "", is_declared=False)


def _has_usual_times(kind: str, data: Sequence[bytes]) -> bool:
    """Returns whether windows begin as windows of a kind do, and no other times that keys may end in.

    Those of a fixed size begin with a second; not all sessions begin and end with one.
    """
    if kind == "time-windowed":
        return all(_is_whole_second(payload[-8:]) for payload in data)
    if kind in ("session-windowed", "session-changelog"):
        return not all(
            _is_whole_second(payload[-8:]) and _is_whole_second(payload[-16:-8]) for payload in data
        )
    return True


def _is_whole_second(data: bytes) -> bool:
    return int.from_bytes(data, "big", signed=True) % 1000 == 0


def is_time(ms: int) -> bool:
    """Returns whether a number of ms since 1970 is of the years 2000 to 2100."""
    return _FIRST_MS <= ms <= _LAST_MS


def _is_offset(offset: int) -> bool:
    return -1 <= offset < _LONG


_MIRROR_FIELDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("sourceClusterAlias", "targetClusterAlias", "consumerGroupId", "topic"), bool),
    **dict.fromkeys(("upstreamOffset", "downstreamOffset"), _is_offset),
    "partition": lambda number: 0 <= number < _MOST_PARTITION,
    "timestamp": is_time,
    "metadata": lambda _: True,
}
Take = Callable[[bytes], Any]


def _check(is_so: bool) -> None:
    if not is_so:
        raise _Misfit


def _window_store(data: bytes, key: Take, _: Take) -> None:
    window = streams.window_store_key(data, key, None)
    _check(is_time(window["start"]) and 0 <= window["sequence"] < _MOST_SEQUENCE and len(data) > 12)


def _time_window(data: bytes, key: Take, _: Take) -> None:
    _check(is_time(streams.time_key(data, key, None)["start"]) and len(data) > 8)


def _session(data: bytes, key: Take, _: Take) -> None:
    session = streams.session_key(data, key)
    _check(is_time(session["start"]) and is_time(session["end"]))
    _check(session["start"] <= session["end"] and len(data) > 16)


def _subscription_key(data: bytes, key: Take, value: Take) -> None:
    streams.subscription_key(data, key, value)


def _outer_join_key(data: bytes, key: Take, _: Take) -> None:
    _check(is_time(streams.outer_join_key(data, key)["timestamp"]) and len(data) > 9)


def _outer_join_values(data: bytes, _: Take, value: Take) -> None:
    streams.outer_join_values(data, value)


def _registration(data: bytes, _: Take, value: Take) -> None:
    registration = streams.registration(data, value)
    _check(
        0 <= (registration["primaryPartition"] or 0) < _MOST_PARTITION and registration["hash"] != _NO_HASH
    )


def _response(data: bytes, _: Take, value: Take) -> None:
    _check(streams.response(data, value)["originalValueHash"] != _NO_HASH)


def _changed(data: bytes, _: Take, value: Take) -> None:
    streams.changed(data, value)


def _suppressed(data: bytes, _: Take, value: Take) -> None:
    change = streams.suppressed(data, value)
    _check(not change["bytesLeft"] and is_time(change["bufferTime"]))


_LOOKS: dict[tuple[str, str], Callable[[bytes, Take, Take], None]] = {
    ("window-changelog", "key"): _window_store,
    ("time-windowed", "key"): _time_window,
    ("session-changelog", "key"): _session,
    ("session-windowed", "key"): _session,
    ("fk-store-changelog", "key"): _subscription_key,
    ("fk-store-changelog", "value"): _registration,
    ("fk-registration", "value"): _registration,
    ("fk-response", "value"): _response,
    ("outer-join-changelog", "key"): _outer_join_key,
    ("outer-join-changelog", "value"): _outer_join_values,
    ("changed", "value"): _changed,
    ("suppress-changelog", "value"): _suppressed,
}

"""Replays the records of one internal log as the loaders of several releases, and says where each stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from kafka_log_lake.pipelines.load_check.found import METADATA, OFFSETS, SHARE, TRANSACTIONS, Record, Stop
from kafka_log_lake.udfs.values.internal.definitions import messages
from kafka_log_lake.udfs.values.internal.loading_groups import GroupReplay
from kafka_log_lake.udfs.values.internal.loading_states import (
    ConnectReplay,
    MetadataReplay,
    ShareReplay,
    TransactionReplay,
)
from kafka_log_lake.udfs.values.internal.releases import LOADERS, RELEASES, definitions_of
from kafka_log_lake.udfs.values.internal.topics import InternalRecord, record_reader

# The first release that loads as a loader does, where its own name is another
_FIRST = {"4.1.1": "4.1", "4.1": "4.1.2", "4.2.0": "4.2", "4.2": "4.2.1"}
_COMMITS = ("OffsetCommit", "LegacyOffsetCommit")
# Places up to which the log cleaner may come, of each log
_CLEANINGS = 8
_PASSES = (
    "it loads again once the log cleaner has come to the end: until then let the leader stay where it is"
)
_REMEDIES = {
    OFFSETS: "move the group's records out of the log, with the broker stopped",
    TRANSACTIONS: "move this record out of the log, with the broker stopped: the coordinator knows no "
    "transactional id that lies after it in this partition",
    SHARE: "move the records of this share partition out of the log, with the broker stopped: its "
    "group begins anew where share.auto.offset.reset says",
    METADATA: "start from another controller's copy of the metadata log, or from recover --metadata --write",
}


class _Replay(Protocol):
    def add(self, record: InternalRecord) -> str | None: ...


_Read = tuple[Record, InternalRecord]
_REPLAYS: dict[str, Callable[[str], _Replay]] = {
    OFFSETS: GroupReplay,
    TRANSACTIONS: lambda loader: TransactionReplay(definitions_of(loader)),
    SHARE: lambda loader: ShareReplay(definitions_of(loader)),
    METADATA: lambda loader: MetadataReplay(definitions_of(loader)),
}


def stops(topic: str, records: Sequence[Record], loaders: Sequence[str] = LOADERS) -> Iterator[Stop]:
    """Yields where loaders stop in a log: each place once, with the releases that stop there.

    Where none stops, yields where the newest one would stop once the log cleaner came part of the way.
    loaders: of LOADERS, in their order.
    """
    read = _decoded(topic, records)
    loaders_of: dict[tuple[int, str], list[str]] = {}
    known: dict[str, tuple[int, str] | None] = {}
    for loader in loaders:
        behaviour = loader if topic == OFFSETS else definitions_of(loader)
        if behaviour not in known:
            known[behaviour] = _stop_of(topic, read, loader)
        stop = known[behaviour]
        if stop is not None:
            loaders_of.setdefault(stop, []).append(loader)
    for (offset, why), stopped in loaders_of.items():
        yield Stop(offset, why, _text(stopped), _issue(topic, why), _remedy(topic, stopped))
    if topic == OFFSETS and not any(loaders[-1] in stopped for stopped in loaders_of.values()):
        yield from _after_cleaning(read, loaders)


def _after_cleaning(read: Sequence[_Read], loaders: Sequence[str]) -> Iterator[Stop]:
    """Yields where the newest of the loaders would stop; the log cleaner comes to one of some places."""
    for number in range(1, _CLEANINGS + 1):
        end = len(read) * number // _CLEANINGS
        for drops_tombstones in (False, True):
            then = [*_cleaned(read[:end], drops_tombstones), *read[end:]]
            stop = _stop_of(OFFSETS, then, loaders[-1])
            if stop is not None:
                stopped = [loader for loader in loaders if _stop_of(OFFSETS, then, loader) is not None]
                passes = _stop_of(OFFSETS, _cleaned(read, drops_tombstones=True), loaders[-1]) is None
                remedy = _PASSES if passes else _REMEDIES[OFFSETS]
                yield Stop(*stop, _text(stopped), _issue(OFFSETS, stop[1]), remedy, True)
                return


def _cleaned(read: Sequence[_Read], drops_tombstones: bool) -> list[_Read]:
    """Returns what the log cleaner leaves of records: the last one of each key."""
    last = {record.key: record.offset for record, _ in read}
    kept = [each for each in read if last[each[0].key] == each[0].offset]
    return [each for each in kept if each[0].value is not None or not drops_tombstones]


def _decoded(topic: str, records: Iterable[Record]) -> list[_Read]:
    """Reads records by the newest definitions. Offset commits are most: alike ones are one object."""
    read, alike = record_reader(topic), dict[object, InternalRecord]()
    decoded = []
    for record in records:
        message = read(record.key, record.value)
        if message.is_read and message.key is not None and message.name in _COMMITS:
            group, is_there = message.key["group"], message.value is not None
            message = message._replace(key={"group": group}, value={} if is_there else None, problem=None)
            message = alike.setdefault((message.name, message.version, group, is_there), message)
        decoded.append((record, message))
    return decoded


def _stop_of(topic: str, read: Iterable[_Read], loader: str) -> tuple[int, str] | None:
    """Returns the offset of the first record that stops a loader, and why; None where it loads the log."""
    release, replay = definitions_of(loader), _REPLAYS[topic](loader)
    known = {m.api_key: m.versions for m in messages(topic.strip("_"), release) if not m.kind.endswith("key")}
    for record, message in read:
        versions = known.get(message.type) if message.type is not None else None
        if versions is None or (message.version is not None and message.version not in versions):
            message = record_reader(topic, release)(record.key, record.value)
        why = replay.add(message)
        if why is not None:
            return record.offset, why
    return None


def _text(stopped: Sequence[str]) -> str:
    """Returns the releases of loaders in words."""
    first, last = _FIRST.get(stopped[0], stopped[0]), stopped[-1]
    if len(stopped) == 1:
        return {LOADERS[0]: f"{first}.0 and {last}"}.get(last, first)
    return first if first == last else f"{first} to {last}"


def _remedy(topic: str, stopped: Sequence[str]) -> str:
    """Returns the smallest remedy: another release where one loads the log."""
    later = LOADERS[LOADERS.index(stopped[-1]) + 1 :]
    if later:
        return f"start it with {_FIRST.get(later[0], later[0])} or later"
    if stopped[0] != LOADERS[0]:
        return f"start it with {LOADERS[LOADERS.index(stopped[0]) - 1]} or earlier; else {_REMEDIES[topic]}"
    return _REMEDIES[topic]


def _issue(topic: str, why: str) -> str:
    if topic != OFFSETS:
        return ""
    if "is not a streams" in why:
        return "KAFKA-20254"
    if "is not a" in why:
        return "KAFKA-21117"
    if "is owned" in why:
        return "KAFKA-19862"
    return "KAFKA-21102" if " is deleted" in why else ""


def stops_of_connect(records: Sequence[Record]) -> Iterator[Stop]:
    """Yields the commits of tasks that a worker does not take, now or once the log was cleaned."""
    now = _ignored(records)
    last = {record.key: record.offset for record in records}
    then = _ignored([record for record in records if last[record.key] == record.offset])
    for connector in sorted(now.keys() | then.keys()):
        offset, why = now.get(connector) or then[connector]
        remedy = f"send the configuration of {connector} again, with a change: its tasks are written anew"
        yield Stop(
            offset, why, f"{RELEASES[0]} to {RELEASES[-1]}", "KAFKA-17719", remedy, connector not in now
        )


def _ignored(records: Iterable[Record]) -> dict[str, tuple[int, str]]:
    replay = ConnectReplay()
    for record in records:
        replay.add(record.offset, record.key, record.value)
    return {name: stop for name, stop in replay.ignored.items() if name in replay.connectors}

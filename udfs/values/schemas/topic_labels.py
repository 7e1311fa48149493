"""Decides what a topic's keys and values are, from its declared format or from a sample of its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_log_lake.udfs.values.apps.payloads import label_of
from kafka_log_lake.udfs.values.apps.recognise import (
    has_own_layout,
    is_of_streams,
    is_time,
    number,
    recognise,
)
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormat
from kafka_log_lake.udfs.values.internal.topics import TOPICS
from kafka_log_lake.udfs.values.schemas.payload import DecodedPayload
from kafka_log_lake.udfs.values.schemas.payload_heads import ID_SIZE, pairs_of
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.plain_payloads import LOOK, plain_of

_UNKNOWN = ("unknown_id", "unknown_guid")
_GUID_END, _MOST_ID, _FEW = 17, 1 << 24, 4
_TIMES = (slice(8), slice(-8, None))  # of the first eight bytes, or of the last


def topic_labels(reader: PayloadReader, topic: str, rows: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Returns for each side what ``PayloadReader.read`` and ``SideDecoder`` take as ``plain``.

    rows: the first data records of the topic, with key, value and headers as in ``records``.
    """
    if topic in TOPICS:
        return dict.fromkeys((KEY, VALUE), "bytes")  # messages of Kafka's, no texts and no schemas
    declared = reader.formats.of(topic)
    labels = {} if declared is None else {side: label_of(declared, side) for side in (KEY, VALUE)}
    return {side: labels.get(side) or _label(reader, topic, side, rows) for side in (KEY, VALUE)}


def _label(reader: PayloadReader, topic: str, side: str, rows: Sequence[Mapping[str, Any]]) -> str:
    payloads = [(row[side], tuple(pairs_of(row["headers"]))) for row in rows if row[side] is not None]

    def is_framed(data: bytes) -> bool:
        answer = reader.read(topic, side, data)
        return answer.schema is not None and answer.reason is None

    known = recognise(topic, side, payloads, is_framed)
    if known is not None:
        return known.label
    answers = {place: reader.read(topic, side, *place) for place in set(payloads)}
    decoded = [answers[place] for place in payloads]
    by_schema = sum(answer.schema is not None and answer.reason is None for answer in decoded)
    if by_schema * 2 >= len(decoded) or reader.has_subject(topic, side):
        return plain_of(decoded)
    heads = [
        payload for (payload, _), answer in zip(payloads, decoded, strict=True) if answer.reason in _UNKNOWN
    ]
    may_be_framed = not is_of_streams(topic) and _may_name_schemas(heads)
    serde = "" if has_own_layout(topic, side) else number(payload for payload, _ in payloads)
    if serde:
        return LOOK if may_be_framed else TopicFormat("plain", serde, serde, is_declared=False).label
    if may_be_framed:
        return plain_of(decoded)
    return plain_of(map(_without_guess, decoded)) or ("bytes" if _has_one_size(payloads) else LOOK)


def _has_one_size(payloads: Sequence[tuple[bytes, object]]) -> bool:
    """Returns whether all payloads have one length, such as numbers: some may read as text by chance."""
    return len({len(payload) for payload, _ in payloads}) == 1


def _may_name_schemas(payloads: Sequence[bytes]) -> bool:
    """Returns whether the first bytes of payloads may be ids of schemas that are not at hand.

    It is a guess: few ids, such as a registry gives, each with content after it, and no times, which windowed
    keys end with.
    """
    if not payloads or any(_are_times(payload[part] for payload in payloads) for part in _TIMES):
        return False
    heads = {payload[:_GUID_END] if payload[0] else payload[:ID_SIZE] for payload in payloads}
    ids = [int.from_bytes(head[1:], "big", signed=True) for head in heads if len(head) == ID_SIZE]
    if not all(0 < id_ < _MOST_ID for id_ in ids) or (ids and all(id_ % 256 == 0 for id_ in ids)):
        return False  # a number of four bytes with another one after it
    is_short = all(len(payload) <= ID_SIZE for payload in payloads)
    return not is_short and len(heads) <= max(_FEW, len(set(payloads)) // _FEW)


def _are_times(parts: Iterable[bytes]) -> bool:
    return all(is_time(int.from_bytes(part, "big", signed=True)) for part in parts)


def _without_guess(decoded: DecodedPayload) -> DecodedPayload:
    """Returns what a payload is if its first bytes name no schema, where no schema reads it."""
    return DecodedPayload("bytes", decoded.content) if decoded.reason in _UNKNOWN else decoded

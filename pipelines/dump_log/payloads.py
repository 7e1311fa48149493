"""Keys and values as Kafka's tool prints them: its decoders, by name, and those of internal topics.

Control records are markers of transactions, and what KRaft writes. JSON is as Jackson writes it.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.decoder.kafka_reader import Record, Refused
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.log_lines import TextColumn
from kafka_log_lake.udfs.values.internal.columns import TRANSACTION_STATES
from kafka_log_lake.udfs.values.internal.readers import UNKNOWN_TAGS, UnreadableMessage
from kafka_log_lake.udfs.values.internal.releases import NEWEST, RELEASES
from kafka_log_lake.udfs.values.internal.topics import (
    InternalRecord,
    control_fields,
    record_reader,
    with_consumer_protocol,
)

STRING, LONG, INTEGER, BYTES = "string", "long", "integer", "bytes"
_CLASSES = {"StringDecoder": STRING, "LongDecoder": LONG, "IntegerDecoder": INTEGER, "DefaultDecoder": BYTES}
_PACKAGE, _OLD_PACKAGE = "org.apache.kafka.tools.api.", "kafka.serializer."
_SIZES = {LONG: 8, INTEGER: 4}

Contents = tuple[bytes | None, bytes | None]
Parse = Callable[[int, bytes | None, bytes | None], Contents]


class PayloadDecoder(NamedTuple):
    """A decoder of keys or values. kind: how bytes are printed. note: printed if its name is deprecated."""

    kind: str
    note: str | None = None


def decoder(name: str) -> PayloadDecoder:
    """Returns the decoder of a name: string, long, integer, bytes, or a class of Kafka. Raises ValueError."""
    if name in (STRING, LONG, INTEGER, BYTES):
        return PayloadDecoder(name)
    for package in (_PACKAGE, _OLD_PACKAGE):
        kind = _CLASSES.get(name.removeprefix(package))
        if name.startswith(package) and kind is not None:
            new = _PACKAGE + name.removeprefix(package)
            note = f"{name} is deprecated. Please use {new} instead" if package == _OLD_PACKAGE else None
            return PayloadDecoder(kind, note)
    known = ", ".join((STRING, LONG, INTEGER, BYTES))
    raise ValueError(f"must be {known} or Kafka's class of that name, not {name!r}")


def decoded(kind: str, data: bytes) -> bytes:
    """Returns bytes as text by their kind. Raises Refused if they are too few for a number."""
    if kind == STRING:
        return data
    if kind == BYTES:
        return b"0x" + data.hex().encode()
    size = _SIZES[kind]
    if len(data) < size:
        raise Refused(f"{kind}: expected {size} bytes or more, found {len(data)}")
    return str(int.from_bytes(data[:size], "big", signed=True)).encode()


def plain_parse(key_kind: str, value_kind: str) -> Parse:
    """Returns a parser that prints keys and values by their kinds, for any topic."""

    def parse(offset: int, key: bytes | None, value: bytes | None) -> Contents:
        return (
            None if key is None else decoded(key_kind, key),
            None if value is None else decoded(value_kind, value),
        )

    return parse


def texts_of(column: pa.Array, kind: str) -> TextColumn | None:
    """Converts binary[n] to the texts to print; None if a value is too short for a number."""
    validity, starts, data = column.buffers()
    offsets = np.frombuffer(starts, dtype=np.int32, count=len(column) + 1, offset=4 * column.offset)
    raw = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    sizes = np.diff(offsets)
    if column.null_count:
        bits = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")
        sizes[bits[column.offset : column.offset + len(column)] == 0] = -1
    if kind == STRING:
        return TextColumn(fixed(offsets), fixed(sizes), fixed(raw))
    if kind == BYTES:
        made: list[bytes] = [b"0x" + value.hex().encode() if value else b"0x" for value in column.to_pylist()]
        printed = pa.array(made, pa.binary())
    else:
        size = _SIZES[kind]
        if ((sizes >= 0) & (sizes < size)).any():
            return None
        places = np.where(sizes >= 0, offsets[:-1], 0)[:, None] + np.arange(size)
        numbers = raw[places].copy().view(f">i{size}").ravel() if len(raw) else np.zeros(len(sizes), ">i8")
        printed = pa.array(numbers.astype(np.int64)).cast(pa.string()).cast(pa.binary())
    shown = texts_of(printed, STRING)
    return None if shown is None else TextColumn(shown.starts, fixed(sizes), shown.data)


def fixed(array: np.ndarray) -> np.ndarray:
    """Returns a read-only view: a kernel is compiled again for each kind of array that it gets."""
    array = array.view()
    array.flags.writeable = False
    return array


# Internal topics


def _coordinator(topic: str, release: str) -> Parse:
    read = record_reader(topic, release)
    names_states = RELEASES.index(release) >= RELEASES.index("4.4")

    def parse(offset: int, key: bytes | None, value: bytes | None) -> Contents:
        if key is None:
            raise Refused(f"a record without a key at offset {offset}, which {topic} cannot have")
        record = read(key, value)
        if record.name is None and record.type is not None:
            return f"Unknown record type {record.type} at offset {offset}, skipping.".encode(), None
        if record.key is None or (value is not None and record.value is None):
            return f"Error at offset {offset}, skipping. {record.problem}".encode(), None
        name = jackson({"type": str(record.type), "data": record.key})
        return name.encode(), _value(record, names_states).encode()

    return parse


def _value(record: InternalRecord, names_states: bool) -> str:
    fields = record.value
    if fields is None:
        return "<DELETE>"
    if names_states and "transactionStatus" in fields:
        state = fields["transactionStatus"]
        is_known = 0 <= state < len(TRANSACTION_STATES)
        fields = fields | {"transactionStatus": TRANSACTION_STATES[state] if is_known else str(state)}
    if record.name == "GroupMetadata":
        fields = with_consumer_protocol(fields)
    return jackson({"version": str(record.version), "data": fields})


def metadata_type(name: str) -> str:
    """Returns the constant of Kafka's ``MetadataRecordType``: FEATURE_LEVEL_RECORD for FeatureLevelRecord."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).upper()


def _values(topic: str, release: str, place: str, text_of: Callable[[InternalRecord], str]) -> Parse:
    """Returns a parser for a topic without keys. place: precedes an offset. text_of: may raise ValueError."""
    read = record_reader(topic, release, reads_newer=True)

    def parse(offset: int, key: bytes | None, value: bytes | None) -> Contents:
        record = read(None, value)
        problem = record.problem
        if record.name is not None and record.value is not None:
            try:
                return None, text_of(record).encode()
            except ValueError as why:
                problem = str(why)
        return None, f"Error at {place}{offset}, skipping. {problem}".encode()

    return parse


def _cluster_metadata(record: InternalRecord) -> str:
    named = {"type": metadata_type(record.name or ""), "version": record.version, "data": record.value}
    return jackson(named)


def _remote_log_metadata(record: InternalRecord) -> str:
    return remote_metadata_text(record.name or "", record.value or {})


# By option of the command: the topic whose records it decodes
TOPIC_OF = {
    "offsets_decoder": "__consumer_offsets",
    "transaction_log_decoder": "__transaction_state",
    "cluster_metadata_decoder": "__cluster_metadata",
    "remote_log_metadata_decoder": "__remote_log_metadata",
    "share_group_state_decoder": "__share_group_state",
}


def topic_parse(topic: str, release: str = NEWEST) -> Parse:
    """Returns a parser that prints keys and values of an internal topic's records as a release does."""
    if topic == "__cluster_metadata":
        return _values(topic, release, "", _cluster_metadata)
    if topic == "__remote_log_metadata":
        return _values(topic, release, "offset ", _remote_log_metadata)
    return _coordinator(topic, release)


# Control records

# By control type: how the tool names it, and Kafka's message, which is read in its version 0
_MESSAGES = {
    "LEADER_CHANGE": ("LeaderChange:", "LeaderChangeMessage"),
    "SNAPSHOT_HEADER": ("SnapshotHeader", "SnapshotHeaderRecord"),
    "SNAPSHOT_FOOTER": ("SnapshotFooter", "SnapshotFooterRecord"),
    "KRAFT_VERSION": ("KRaftVersion", "KRaftVersionRecord"),
    "KRAFT_VOTERS": ("KRaftVoters", "VotersRecord"),
}


def control_text(record: Record) -> bytes:
    """Returns what is printed after the metadata of a control record. Raises Refused where the tool fails."""
    record.check_control()
    key, value = record.key or b"", record.value
    code = int.from_bytes(key[2:4], "big", signed=True)
    kind = f.CONTROL_TYPES[code] if 0 <= code < len(f.CONTROL_TYPES) else "UNKNOWN"
    if code in (f.CONTROL_ABORT, f.CONTROL_COMMIT):
        epoch = int.from_bytes((value or b"")[2:6], "big", signed=True)
        return f" endTxnMarker: {kind} coordinatorEpoch: {epoch}".encode()
    if kind not in _MESSAGES:
        return f" controlType: {kind}({code})".encode()
    shown, name = _MESSAGES[kind]
    if value is None:
        raise Refused(f"a control record {kind} without a value")
    try:
        fields = control_fields(name, value)
    except UnreadableMessage as why:
        raise Refused(f"a control record {kind}: {why}") from None
    return f" {shown} {jackson(fields)}".encode()


# JSON

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
# A backslash that is escaped, or a control character as Python escapes it
_ESCAPED = re.compile(r"\\\\|\\u00[0-9a-f]{2}")


def jackson(fields: object) -> str:
    """Returns JSON as Jackson writes it: no blanks, escapes with capital digits, no unknown tagged fields."""
    if isinstance(fields, dict):
        parts = (f"{_encode(k)}:{jackson(v)}" for k, v in fields.items() if k != UNKNOWN_TAGS)
        return "{" + ",".join(parts) + "}"
    if isinstance(fields, list):
        return "[" + ",".join(map(jackson, fields)) + "]"
    if isinstance(fields, float):
        return java_double(fields)
    text = _encode(fields)
    if "\\u00" in text:
        text = _ESCAPED.sub(lambda m: m[0] if m[0] == "\\\\" else m[0][:4] + m[0][4:].upper(), text)
    return text


def java_double(number: float) -> str:
    """Formats a number as ``Double.toString`` of Java 19 and later; NaN and infinity in quotes."""
    if not math.isfinite(number):
        return '"NaN"' if math.isnan(number) else f'"{"-" if number < 0 else ""}Infinity"'
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return format(Decimal(repr(number)), "f")
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)  # of a finite number
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"


# Records of ``__remote_log_metadata``, as the ``toString`` of Kafka's classes writes them

_SEGMENT_STATES = (
    *("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"),
)
_PARTITION_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def _partition(entry: dict[str, object]) -> str:
    return f"{entry['id']}:{entry['name']}-{entry['partition']}"


def _segment_id(entry: dict[str, Any]) -> str:
    partition = _partition(entry["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={entry['id']}}}"


def _custom(text: str | None) -> str:
    if text is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(base64.b64decode(text))} bytes}}]"


def _epochs(entries: list[dict[str, Any]]) -> str:
    by_epoch = {entry["leaderEpoch"]: entry["offset"] for entry in entries}
    return "{" + ", ".join(f"{epoch}={by_epoch[epoch]}" for epoch in sorted(by_epoch)) + "}"


def _written(name: str, fields: dict[str, Any]) -> str:
    return name + "{" + ", ".join(f"{key}={value}" for key, value in fields.items()) + "}"


def _segment_rest(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "segmentLeaderEpochs": _epochs(value["segmentLeaderEpochs"]),
        "segmentSizeInBytes": value["segmentSizeInBytes"],
        "customMetadata": _custom(value["customMetadata"]),
        "state": _SEGMENT_STATES[value["remoteLogSegmentState"]],
        "txnIdxEmpty": str(bool(value.get("txnIndexEmpty"))).lower(),
    }


def _check_remote(name: str, value: dict[str, Any]) -> None:
    """Raises ValueError for what the constructor of Kafka's class refuses, in its order and wording."""
    if name == "RemotePartitionDeleteMetadataRecord":
        if not 0 <= value["remotePartitionDeleteState"] < len(_PARTITION_STATES):
            raise ValueError("null")  # of an exception without a message
        return
    state = value["remoteLogSegmentState"]
    problems = [(not 0 <= state < len(_SEGMENT_STATES), "state can not be null")]
    if "segmentLeaderEpochs" in value:
        is_empty = not value["segmentLeaderEpochs"]
        problems.append((is_empty, "segmentLeaderEpochs can not be null or empty"))
    if name == "RemoteLogSegmentMetadataRecord":  # made with a known state first, which is then set
        problems = [*_bad_offsets(value["startOffset"], value["endOffset"]), *reversed(problems)]
    for is_bad, words in problems:
        if is_bad:
            raise ValueError(words)


def _bad_offsets(start: int, end: int) -> list[tuple[bool, str]]:
    below = f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative"
    after = (
        f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than "
        f"startOffset = {start}"
    )
    return [(start < 0, below), (end < start, after)]


def remote_metadata_text(name: str, value: dict[str, Any]) -> str:
    """Formats a record as Kafka's ``toString``. name: of the message; value: fields from ``udfs.values``.

    Raises ValueError where Kafka's class can't be made of them.
    """
    _check_remote(name, value)
    if name == "RemoteLogSegmentMetadataRecord":
        names = ("startOffset", "endOffset", "brokerId", "maxTimestampMs", "eventTimestampMs")
        fields = {"remoteLogSegmentId": _segment_id(value["remoteLogSegmentId"])}
        fields |= {name: value[name] for name in names} | _segment_rest(value)
        return _written("RemoteLogSegmentMetadata", fields)
    if name == "RemoteLogSegmentMetadataUpdateRecord":
        fields = {
            "remoteLogSegmentId": _segment_id(value["remoteLogSegmentId"]),
            "customMetadata": _custom(value["customMetadata"]),
            "state": _SEGMENT_STATES[value["remoteLogSegmentState"]],
            "eventTimestampMs": value["eventTimestampMs"],
            "brokerId": value["brokerId"],
        }
        return _written("RemoteLogSegmentMetadataUpdate", fields)
    if name == "RemotePartitionDeleteMetadataRecord":
        fields = {
            "topicPartition": _partition(value["topicIdPartition"]),
            "state": _PARTITION_STATES[value["remotePartitionDeleteState"]],
            "eventTimestampMs": value["eventTimestampMs"],
            "brokerId": value["brokerId"],
        }
        return _written("RemotePartitionDeleteMetadata", fields)
    fields = {name: value[name] for name in ("segmentId", "startOffset", "endOffset", "maxTimestampMs")}
    return _written("RemoteLogSegmentMetadataSnapshot", fields | _segment_rest(value))

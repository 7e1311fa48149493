"""Control records as Kafka's tool prints them: markers of transactions, and what KRaft writes."""

from __future__ import annotations

from functools import cache

from udfs.dump.json_text import jackson
from udfs.dump.kafka_reader import Refused
from udfs.format import layout as f
from udfs.values.definitions import messages
from udfs.values.readers import Reader, Unreadable, message_reader

# By control type: how the tool names it, and Kafka's message, which is read in its version 0
_MESSAGES = {
    "LEADER_CHANGE": ("LeaderChange:", "LeaderChangeMessage"),
    "SNAPSHOT_HEADER": ("SnapshotHeader", "SnapshotHeaderRecord"),
    "SNAPSHOT_FOOTER": ("SnapshotFooter", "SnapshotFooterRecord"),
    "KRAFT_VERSION": ("KRaftVersion", "KRaftVersionRecord"),
    "KRAFT_VOTERS": ("KRaftVoters", "VotersRecord"),
}


@cache
def _reader(name: str) -> Reader:
    return next(message_reader(m, 0) for m in messages("control_records") if m.name == name)


def control_text(key: bytes | None, value: bytes | None) -> bytes:
    """What is printed behind the metadata of a control record. Raises Refused where the tool fails."""
    if key is None or len(key) < f.CONTROL_KEY_SIZE:
        raise Refused("a control record whose key has no type")
    if key[0] & 0x80:
        raise Refused("a control record whose key has a negative version")
    code = int.from_bytes(key[2:4], "big", signed=True)
    kind = f.CONTROL_TYPES[code] if 0 <= code < len(f.CONTROL_TYPES) else "UNKNOWN"
    if code in (f.CONTROL_ABORT, f.CONTROL_COMMIT):
        return f" endTxnMarker: {kind} coordinatorEpoch: {_coordinator_epoch(value)}".encode()
    if kind not in _MESSAGES:
        return f" controlType: {kind}({code})".encode()
    shown, name = _MESSAGES[kind]
    if value is None:
        raise Refused(f"a control record {kind} without a value")
    try:
        fields, _ = _reader(name)(value, 0)
    except Unreadable as why:
        raise Refused(f"a control record {kind}: {why}") from None
    return f" {shown} {jackson(fields)}".encode()


def _coordinator_epoch(value: bytes | None) -> int:
    if value is None or len(value) < f.END_MARKER_VALUE_SIZE:
        raise Refused(f"an end marker: expected {f.END_MARKER_VALUE_SIZE} bytes or more")
    if value[0] & 0x80:
        raise Refused("an end marker of a negative version")
    return int.from_bytes(value[2:6], "big", signed=True)

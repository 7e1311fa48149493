"""Decodes a Kafka log segment in slow, plain Python: the reference for the fast decoder.

``decode(data)`` gives what the tables hold of one segment: a dict a batch and a dict a record, under the
columns' names, the damaged ranges, and the tail. It shares no line and no constant with ``udfs``; its own
judge is Kafka's Java library (``test_corpus``, ``test_against_kafka``).

Batches, all three formats: offset int64, length int32, ... magic int8 at 16. Size on disk = 12 + length.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import crc32c

from tests.support import reference_codecs, reference_records
from tests.support.reference_records import Content, CorruptInnerError, InvalidError, sequence_after, wrap64

LEAST_LENGTH = {0: 14, 1: 22, 2: 49}  # of the length field, by magic
V2_HEADER_SIZE = 61
CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown")
_V2_HEADER = struct.Struct(">qiibIHiqqqhii")
_V2_FIELDS = (
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc_stored",
    "attributes",
    "last_offset_delta",
    "base_timestamp_ms",
    "max_timestamp_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "declared_count",
)
DEFAULT_LIMIT = 256 << 20


class UnsupportedError(Exception):
    """A codec that this format version does not have."""


@dataclass
class Decoded:
    """One segment: rows of batches, records and quarantine, and its tail ("none", "torn", "zeros")."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    tail: str = "none"
    tail_bytes: int = 0


def batch_size(data: bytes, position: int) -> int | None:
    """Size of the batch that starts at position, None where no batch of magic 0 to 2 fits there."""
    if position + 17 > len(data):
        return None
    length, magic = struct.unpack_from(">i", data, position + 8)[0], data[position + 16]
    if magic not in LEAST_LENGTH or length < LEAST_LENGTH[magic] or position + 12 + length > len(data):
        return None
    return 12 + int(length)


def _checksums(raw: bytes) -> tuple[int, int]:
    """Returns (stored, computed) checksums of a whole batch."""
    if raw[16] == 2:
        return struct.unpack_from(">I", raw, 17)[0], crc32c.crc32c(raw[21:])
    return struct.unpack_from(">I", raw, 12)[0], zlib.crc32(raw[16:])


def proves_itself(data: bytes, position: int) -> bool:
    """Returns whether a whole batch with a right checksum starts at position."""
    size = batch_size(data, position)
    if size is None:
        return False
    stored, computed = _checksums(data[position : position + size])
    return stored == computed


def read_v2_header(raw: bytes) -> dict[str, Any]:
    """Returns the columns of a V2 batch that its header gives (and ``last_offset_delta``, ``length``)."""
    batch: dict[str, Any] = dict(zip(_V2_FIELDS, _V2_HEADER.unpack_from(raw), strict=True))
    attributes = batch["attributes"]
    batch["timestampType"] = attributes >> 3 & 1
    batch["is_transactional"] = bool(attributes & 0x10)
    batch["is_control"] = bool(attributes & 0x20)
    batch["delete_horizon_ms"] = batch["base_timestamp_ms"] if attributes & 0x40 else None
    batch["last_offset"] = wrap64(batch["base_offset"] + batch["last_offset_delta"])
    base = batch["base_sequence"]
    batch["last_sequence"] = -1 if base == -1 else sequence_after(base, batch["last_offset_delta"])
    batch["payload_bytes"] = len(raw) - V2_HEADER_SIZE
    return batch


def read_legacy_header(raw: bytes) -> dict[str, Any]:
    """Returns the columns of a V0 or V1 batch that its first bytes give (and ``offset``)."""
    magic, attributes = raw[16], raw[17]
    timestamp = struct.unpack_from(">q", raw, 18)[0] if magic == 1 else -1
    offset = struct.unpack_from(">q", raw)[0]
    return {
        "magic": magic,
        "offset": offset,
        "attributes": attributes,
        "base_offset": offset if not attributes & 7 else None,
        "last_offset": offset,
        "declared_count": None,
        "timestampType": -1 if magic == 0 else attributes >> 3 & 1,
        "base_timestamp_ms": timestamp,
        "max_timestamp_ms": timestamp,
        "timestamp_ms": timestamp,
        "delete_horizon_ms": None,
        "leader_epoch": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "last_sequence": -1,
        "is_transactional": False,
        "is_control": False,
    }


def _read_v2(raw: bytes, batch: dict[str, Any], limit: int) -> Content:
    codec, payload = batch["attributes"] & 7, raw[V2_HEADER_SIZE:]
    if codec > 4:
        raise UnsupportedError(f"codec {codec}")
    stored = payload
    if codec and (payload or batch["declared_count"]):
        payload = reference_codecs.decompress(codec, payload, limit, magic=2)
    content = reference_records.read_v2_payload(payload, batch)
    if batch["attributes"] & 0xFF80:
        content.suspect(f"unused attribute bits set: {batch['attributes']:#06x}")
    if codec and not stored:
        content.suspect(f"codec {codec}, and a payload of no bytes")
    for record in content.records:
        if batch["is_control"]:
            record["control_type"], record["coordinator_epoch"] = reference_records.control_type(record)
    return content


def _read_legacy(raw: bytes, batch: dict[str, Any], limit: int) -> Content:
    codec = batch["attributes"] & 7
    if codec > 3:
        raise UnsupportedError(f"codec {codec} under magic {batch['magic']}")
    outer = Content(uncompressed_bytes=len(raw))
    message = reference_records.read_message(raw[12:], outer)
    batch["payload_bytes"] = len(raw)
    if not codec:
        outer.records.append({**message, "offset": batch["offset"], "sequence": -1, "headers": None})
        return outer
    if message["value"] is None:
        raise InvalidError("wrapper with a null value")
    batch["payload_bytes"] = len(message["value"])
    data = reference_codecs.decompress(codec, message["value"], limit, magic=batch["magic"])
    content = reference_records.read_message_set(data, batch)
    batch["base_offset"] = content.records[0]["offset"]
    content.suspicions[:0] = outer.suspicions
    return content


_VERDICTS: dict[type[Exception], tuple[str, str]] = {
    UnsupportedError: ("unsupported", "unknown_codec"),
    CorruptInnerError: ("corrupt", "crc_mismatch"),
    InvalidError: ("invalid", "invalid_record"),
    reference_codecs.BadPayloadError: ("invalid", "decompression_failed"),
    reference_codecs.TooLargeError: ("invalid", "decompressed_too_large"),
}


def decode_batch(raw: bytes, position: int, limit: int = DEFAULT_LIMIT) -> Decoded:
    """Decodes one whole batch to its row of ``batches``, and its records or its row of quarantine."""
    batch = read_v2_header(raw) if raw[16] == 2 else read_legacy_header(raw)
    batch |= {"position": position, "size_bytes": len(raw), "record_count": 0, "error": None}
    batch |= {"compression": CODECS[batch["attributes"] & 7], "status": "ok", "control_type": None}
    batch["crc_stored"], batch["crc_computed"] = _checksums(raw)
    batch["crc_ok"] = batch["crc_stored"] == batch["crc_computed"]
    decoded = Decoded(batches=[batch])
    reason, content = None, Content()
    if not batch["crc_ok"]:
        batch["status"], reason, batch["error"] = "corrupt", "crc_mismatch", "checksum"
    else:
        try:
            read = _read_v2 if batch["magic"] == 2 else _read_legacy
            content = read(raw, batch, limit)
        except tuple(_VERDICTS) as error:
            batch["status"], reason = _VERDICTS[type(error)]
            batch["error"] = str(error)
    if content.suspicions:
        batch["status"], batch["error"] = "suspect", "; ".join(content.suspicions)
    batch["uncompressed_bytes"] = content.uncompressed_bytes
    _sum_up(batch, content.records)
    decoded.records = [_record_row(record, batch) for record in content.records]
    if reason:
        base_offset = struct.unpack_from(">q", raw)[0]
        decoded.quarantine.append(
            {"position": position, "size_bytes": len(raw), "base_offset": base_offset, "reason": reason}
        )
    return decoded


def _sum_up(batch: dict[str, Any], records: list[dict[str, Any]]) -> None:
    batch["record_count"] = len(records)
    batch["key_bytes"] = sum(len(r["key"] or b"") for r in records)
    batch["value_bytes"] = sum(len(r["value"] or b"") for r in records)
    batch["header_bytes"] = sum(r.get("header_bytes", 0) for r in records)
    if records and batch["is_control"]:
        batch["control_type"] = records[0]["control_type"]


_FROM_BATCH = (
    "magic",
    "timestampType",
    "producer_id",
    "producer_epoch",
    "leader_epoch",
    "is_transactional",
    "is_control",
)
_FROM_RECORD = ("key", "value", "offset", "headers", "timestamp_ms", "sequence", "size_bytes")


def _record_row(record: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
    row = {name: record[name] for name in _FROM_RECORD} | {name: batch[name] for name in _FROM_BATCH}
    return row | {"batch_position": batch["position"], "control_type": record.get("control_type")}


def _leads_on(data: bytes, position: int) -> bool:
    """Returns whether batches follow each other from position to a sound one, or to the end.

    Then the length that led there is right. A torn or zero end counts, if no sound batch follows it.
    """
    while position < len(data) and not proves_itself(data, position):
        size = batch_size(data, position)
        if size is None:
            rest = data[position:]
            return not rest.strip(b"\0") or (_torn(rest) and _search(data, position, -1) is None)
        position += size
    return True


def _next_batch(data: bytes, position: int, above: int) -> int | None:
    """Returns where decoding continues after damage: where its length leads, else what a search finds.

    above: the last offset so far. None where nothing is found.
    """
    if position + 17 <= len(data):
        length, magic = struct.unpack_from(">i", data, position + 8)[0], data[position + 16]
        end = int(position + 12 + length)
        if magic not in LEAST_LENGTH and length >= 14 and end <= len(data) and _leads_on(data, end):
            return end
    return _search(data, position, above)


def _search(data: bytes, position: int, above: int) -> int | None:
    """Finds the first sound batch from which batches lead to the end; where none does, the first sound one.

    So a batch inside a value is not taken for the log: its chain ends with the value. Where no chain leads to
    the end, offsets above those before go first, since offsets rise; but a base offset lies outside the
    checksum and may itself be wrong.
    """
    found = [c for c in range(position + 1, len(data) - 25) if proves_itself(data, c)]
    for candidate in found:
        if _leads_to_the_end(data, candidate):
            return candidate
    rising = [c for c in found if struct.unpack_from(">q", data, c)[0] > above]
    return next(iter(rising or found), None)


def _leads_to_the_end(data: bytes, position: int) -> bool:
    while (size := batch_size(data, position)) is not None:
        position += size
    return _torn(data[position:]) or not data[position:].strip(b"\0")


def _torn(rest: bytes) -> bool:
    """Returns whether rest can be the start of a batch that is longer than rest."""
    if len(rest) < 17:
        return True
    length, magic = struct.unpack_from(">i", rest, 8)[0], rest[16]
    return magic in LEAST_LENGTH and length >= LEAST_LENGTH[magic] and 12 + length > len(rest)


def _finish(decoded: Decoded, data: bytes, position: int, has_successor: bool) -> None:
    """Judges the bytes after the last sound batch: a tail, or damage."""
    rest = data[position:]
    if not rest.strip(b"\0"):
        decoded.tail, decoded.tail_bytes = "zeros", len(rest)
        return
    torn = _torn(rest)
    if torn and not has_successor:
        decoded.tail, decoded.tail_bytes = "torn", len(rest)
        return
    _quarantine(decoded, data, position, len(data), "truncated" if torn else None)


def _quarantine(decoded: Decoded, data: bytes, start: int, end: int, reason: str | None) -> None:
    if reason is None:
        magic = data[start + 16] if start + 17 <= end else 0
        reason = "invalid_header" if magic in LEAST_LENGTH else "unknown_magic"
    decoded.quarantine.append({"position": start, "size_bytes": end - start, "reason": reason})


def decode(data: bytes, *, has_successor: bool = False, limit: int = DEFAULT_LIMIT) -> Decoded:
    """Decodes a whole segment: every byte lies in a sound batch, in a range of quarantine or in the tail."""
    decoded = Decoded()
    position, above = 0, -1
    while position < len(data):
        size = batch_size(data, position)
        if size is not None:
            part = decode_batch(data[position : position + size], position, limit)
            after = position + size
            if part.batches[0]["crc_ok"]:
                above = part.batches[0]["last_offset"]
            elif not _leads_on(data, position + size):
                found = _search(data, position, above)
                after = len(data) if found is None else found
                part.quarantine[0]["size_bytes"] = after - position
            decoded.batches += part.batches
            decoded.records += part.records
            decoded.quarantine += part.quarantine
            position = after
            continue
        following = _next_batch(data, position, above)
        if following is None:
            _finish(decoded, data, position, has_successor)
            break
        _quarantine(decoded, data, position, following, None)
        position = following
    return decoded

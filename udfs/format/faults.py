"""Lists what can be wrong with a batch, each fault named once: its status, its reason, its words.

There are three kinds: corrupt (a checksum is wrong), invalid (the structure is wrong), unsupported (no such
codec). Kernels give a fault's code and its place; ``explain`` reads there what was expected and what was
found, and ``describe`` makes the text of ``batches.error`` and ``quarantine.detail`` of them. A suspect batch
is decoded all the same; its marks are bits, since several can hold at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_log_lake.udfs.words import count_of

# Status codes, in the order of STATUS_NAMES
OK, SUSPECT, CORRUPT, INVALID, UNSUPPORTED = range(5)
STATUS_NAMES = ("ok", "suspect", "corrupt", "invalid", "unsupported")


@dataclass(frozen=True)
class Fault:
    """A kind of damage: its status and reason in the tables, and its text."""

    status: int
    reason: str
    text: str


NO_FAULT = 0
CRC_MISMATCH = 1
INNER_CRC_MISMATCH = 2
UNKNOWN_CODEC = 3
DECOMPRESSION_FAILED = 4
DECOMPRESSED_TOO_LARGE = 5
COUNT_NEGATIVE = 6
COUNT_TOO_LARGE = 7
PAYLOAD_LEFT = 8
BAD_VARINT = 9
RECORD_BEYOND = 10
RECORD_SLACK = 11
KEY_BEYOND = 12
VALUE_BEYOND = 13
HEADER_COUNT = 14
HEADER_KEY_NULL = 15
HEADER_BEYOND = 16
CONTROL_KEY = 17
CONTROL_VERSION = 18
CONTROL_VALUE = 19
CONTROL_VALUE_VERSION = 20
WRAPPER_NULL_VALUE = 21
WRAPPER_EMPTY = 22
WRAPPER_OFFSET = 23
INNER_CUT = 24
INNER_SIZE = 25
INNER_COMPRESSED = 26
COUNT_TOO_SMALL = 27

_RECORD = "invalid_record"
FAULTS: dict[int, Fault] = {
    CRC_MISMATCH: Fault(CORRUPT, "crc_mismatch", "checksum: expected {0:#010x} as computed, found {1:#010x}"),
    INNER_CRC_MISMATCH: Fault(
        CORRUPT,
        "crc_mismatch",
        "checksum of an inner message: expected {0:#010x} as computed, found {1:#010x}",
    ),
    UNKNOWN_CODEC: Fault(UNSUPPORTED, "unknown_codec", "codec: expected 0 to {0} for this magic, found {1}"),
    DECOMPRESSION_FAILED: Fault(INVALID, "decompression_failed", "payload does not decompress"),
    DECOMPRESSED_TOO_LARGE: Fault(
        INVALID, "decompressed_too_large", "payload: expected at most {0:byte} expanded, found more"
    ),
    COUNT_NEGATIVE: Fault(INVALID, _RECORD, "record count: expected {0} or more, found {1}"),
    COUNT_TOO_LARGE: Fault(INVALID, _RECORD, "record count: expected at most {0} in this payload, found {1}"),
    PAYLOAD_LEFT: Fault(INVALID, _RECORD, "payload: expected its end after {0:record}, found {1:byte} more"),
    BAD_VARINT: Fault(INVALID, _RECORD, "varint: expected at most {0:byte}, found more, or the end"),
    RECORD_BEYOND: Fault(INVALID, _RECORD, "record length: expected 0 to {0}, found {1}"),
    RECORD_SLACK: Fault(INVALID, _RECORD, "record: expected a body of {0:byte}, found {1} used"),
    KEY_BEYOND: Fault(INVALID, _RECORD, "key length: expected at most {0}, found {1}"),
    VALUE_BEYOND: Fault(INVALID, _RECORD, "value length: expected at most {0}, found {1}"),
    HEADER_COUNT: Fault(INVALID, _RECORD, "header count: expected 0 to {0}, found {1}"),
    HEADER_KEY_NULL: Fault(INVALID, _RECORD, "header key length: expected {0} or more, found {1}"),
    HEADER_BEYOND: Fault(INVALID, _RECORD, "header length: expected at most {0}, found {1}"),
    CONTROL_KEY: Fault(INVALID, _RECORD, "control record key: expected {0:byte} or more, found {1}"),
    CONTROL_VERSION: Fault(INVALID, _RECORD, "control record key version: expected {0} or more, found {1}"),
    CONTROL_VALUE: Fault(INVALID, _RECORD, "end marker value: expected {0:byte} or more, found {1}"),
    CONTROL_VALUE_VERSION: Fault(INVALID, _RECORD, "end marker version: expected {0} or more, found {1}"),
    WRAPPER_NULL_VALUE: Fault(INVALID, _RECORD, "wrapper value: expected {0:byte} or more, found {1}"),
    WRAPPER_EMPTY: Fault(INVALID, _RECORD, "wrapper: expected {0:inner message} or more, found {1}"),
    WRAPPER_OFFSET: Fault(
        INVALID, _RECORD, "wrapper offset: expected 0, or {0} or more as the last inner offset, found {1}"
    ),
    INNER_CUT: Fault(INVALID, _RECORD, "inner message: expected {0:byte}, found {1}"),
    INNER_SIZE: Fault(INVALID, _RECORD, "inner message length: expected {0} or more, found {1}"),
    INNER_COMPRESSED: Fault(INVALID, _RECORD, "inner message codec: expected {0}, found {1}"),
    COUNT_TOO_SMALL: Fault(INVALID, _RECORD, "records: expected {0} as counted, found {1}"),
}

# Marks of a suspect batch
OFFSET_PAST_LAST = 1
OFFSETS_NOT_RISING = 2
LAST_DELTA_NEGATIVE = 4
LENGTH_BELOW_NULL = 8
UNUSED_ATTRIBUTES = 16
TIMESTAMP_ABOVE_MAX = 32
INNER_MAGIC = 64
MESSAGE_SLACK = 128
EMPTY_STREAM = 256
SUSPECT_TEXTS = {
    OFFSET_PAST_LAST: "a record's offset lies past the last offset of the header",
    OFFSETS_NOT_RISING: "offsets do not rise within the batch",
    LAST_DELTA_NEGATIVE: "lastOffsetDelta is below 0",
    LENGTH_BELOW_NULL: "a length below -1, read as null",
    UNUSED_ATTRIBUTES: "unused attribute bits are set",
    TIMESTAMP_ABOVE_MAX: "a record's timestamp lies above maxTimestamp",
    INNER_MAGIC: "an inner message has another magic than its wrapper",
    MESSAGE_SLACK: "a message has bytes behind its value",
    EMPTY_STREAM: "a compressed payload of no bytes: a consumer may refuse the batch",
}


class _Number(int):
    """A number that a text may name a noun for: ``{0:byte}`` is ``1 byte`` or ``2000 bytes``."""

    def __format__(self, form: str) -> str:
        return count_of(int(self), form) if form[:1].isalpha() else super().__format__(form)


def text_of(code: int, expected: int, found: int | str = 0) -> str:
    """Returns the fault in words, without its place."""
    return FAULTS[code].text.format(_Number(expected), found if isinstance(found, str) else _Number(found))


def cut_text(size: int, room: int) -> str:
    """Returns what is wrong where a segment ends: the length of the last batch, or bytes are missing.

    size: of that batch, below 0 where its header is cut; room: the bytes that are there.
    """
    if size < 0:
        return f"the segment ends inside a header: found {count_of(room, 'byte')}"
    return f"the segment ends inside a batch: {count_of(size, 'byte')} by its length, {room} are there"


def describe(code: int, expected: int, found: int, at: int) -> str:
    """Returns the fault in words, with its place.

    at: byte in the segment; below 0, -1 - the byte in the expanded payload.
    """
    text = text_of(code, expected, found)
    where = f"at position {at}" if at >= 0 else f"at byte {-1 - at} of the expanded payload"
    return f"{text}, {where}"


def describe_batch(e: Any) -> str | None:
    """Returns the text of ``batches.error`` for a row of BATCH: None for a batch that is ok."""
    if e["fault"]:
        return describe(int(e["fault"]), int(e["fault_expected"]), int(e["fault_found"]), int(e["fault_at"]))
    return describe_suspect(int(e["marks"]), int(e["position"])) if e["marks"] else None


def describe_suspect(marks: int, position: int) -> str:
    """Returns the marks of a suspect batch in words."""
    words = [text for mark, text in SUSPECT_TEXTS.items() if marks & mark]
    return "; ".join(words) + f", in the batch at position {position}"

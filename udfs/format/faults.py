"""Lists what can be wrong with a batch, each fault named once: its status, its reason, its words.

There are three kinds: corrupt (a checksum is wrong), invalid (the structure is wrong), unsupported (no such
codec). Kernels give a fault's code and its place; ``explain`` has the plain reader say what was expected and
what was found, and ``describe`` makes the text of ``batches.error`` and ``quarantine.detail`` of them. A
suspect batch
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
    """A kind of damage: its status and reason in the tables, its field in Kafka's words, what was expected.

    expected, found: templates of words, for the two numbers of a fault.
    """

    status: int
    reason: str
    field: str
    expected: str
    found: str = "{1}"


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
# These the kernels do not tell apart, or have as marks: the plain reader does
HEADER_VALUE_BEYOND = 28
LENGTH_TOO_SMALL = 29
LENGTH_TOO_LARGE = 30
UNKNOWN_MAGIC = 31
UNUSED_BITS = 32
BELOW_LEAST = 33
BELOW_NULL = 34
SURPLUS = 35

# Fields of a record of magic 2 that are varints; a fault of one gives its number here as what was found
VARINTS = (
    *("length", "timestampDelta", "offsetDelta", "keyLength", "valueLength"),
    *("headersCount", "headerKeyLength", "headerValueLength"),
)
_RECORD, _HEADER = "invalid_record", "invalid_header"
_CRC = "{0:#010x} as computed", "{1:#010x}"
FAULTS: dict[int, Fault] = {
    CRC_MISMATCH: Fault(CORRUPT, "crc_mismatch", "crc", *_CRC),
    INNER_CRC_MISMATCH: Fault(CORRUPT, "crc_mismatch", "crc of an inner message", *_CRC),
    UNKNOWN_CODEC: Fault(UNSUPPORTED, "unknown_codec", "codec", "0 to {0} for this magic"),
    DECOMPRESSION_FAILED: Fault(
        INVALID, "decompression_failed", "payload", "bytes that decompress", "others"
    ),
    DECOMPRESSED_TOO_LARGE: Fault(
        INVALID, "decompressed_too_large", "payload", "at most {0:byte} expanded", "more"
    ),
    COUNT_NEGATIVE: Fault(INVALID, _RECORD, "recordsCount", "{0} or more"),
    COUNT_TOO_LARGE: Fault(INVALID, _RECORD, "recordsCount", "at most {0} in this payload"),
    COUNT_TOO_SMALL: Fault(INVALID, _RECORD, "records", "{0} as counted"),
    PAYLOAD_LEFT: Fault(INVALID, _RECORD, "records", "their end after {0:record}", "{1:byte} more"),
    BAD_VARINT: Fault(INVALID, _RECORD, "", "a varint of at most {0:byte}", "a longer one, or the end"),
    RECORD_BEYOND: Fault(INVALID, _RECORD, "length", "0 to {0}"),
    RECORD_SLACK: Fault(INVALID, _RECORD, "record", "a body of {0:byte}", "{1} used"),
    KEY_BEYOND: Fault(INVALID, _RECORD, "keyLength", "at most {0}"),
    VALUE_BEYOND: Fault(INVALID, _RECORD, "valueLength", "at most {0}"),
    HEADER_COUNT: Fault(INVALID, _RECORD, "headersCount", "0 to {0}"),
    HEADER_KEY_NULL: Fault(INVALID, _RECORD, "headerKeyLength", "{0} or more"),
    HEADER_BEYOND: Fault(INVALID, _RECORD, "headerKeyLength", "at most {0}"),
    HEADER_VALUE_BEYOND: Fault(INVALID, _RECORD, "headerValueLength", "at most {0}"),
    CONTROL_KEY: Fault(INVALID, _RECORD, "key of a control record", "{0:byte} or more"),
    CONTROL_VERSION: Fault(INVALID, _RECORD, "version of a control record", "{0} or more"),
    CONTROL_VALUE: Fault(INVALID, _RECORD, "value of an end marker", "{0:byte} or more"),
    CONTROL_VALUE_VERSION: Fault(INVALID, _RECORD, "version of an end marker", "{0} or more"),
    WRAPPER_NULL_VALUE: Fault(INVALID, _RECORD, "valueLength of a wrapper", "{0} or more"),
    WRAPPER_EMPTY: Fault(INVALID, _RECORD, "value of a wrapper", "{0:inner message} or more"),
    WRAPPER_OFFSET: Fault(
        INVALID, _RECORD, "offset of a wrapper", "0, or {0} or more as the last inner offset"
    ),
    INNER_CUT: Fault(INVALID, _RECORD, "inner message", "{0:byte}"),
    INNER_SIZE: Fault(INVALID, _RECORD, "messageSize of an inner message", "{0} or more"),
    INNER_COMPRESSED: Fault(INVALID, _RECORD, "codec of an inner message", "{0}"),
    LENGTH_TOO_SMALL: Fault(INVALID, _HEADER, "", "{0} or more"),
    LENGTH_TOO_LARGE: Fault(INVALID, _HEADER, "", "at most {0}"),
    UNKNOWN_MAGIC: Fault(INVALID, "unknown_magic", "magic", "0, 1 or 2"),
    UNUSED_BITS: Fault(SUSPECT, "", "attributes", "no unused bits", "{1:#06x}"),
    BELOW_LEAST: Fault(SUSPECT, "", "", "{0} or more"),
    BELOW_NULL: Fault(SUSPECT, "", "", "{0} or more, read as null"),
    SURPLUS: Fault(SUSPECT, "", "surplus", "none after the value", "{1:byte}"),
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
    MESSAGE_SLACK: "a message has bytes after its value",
    EMPTY_STREAM: "a compressed payload of no bytes: a consumer may refuse the batch",
}


class _Number(int):
    """A number that a text may name a noun for: ``{0:byte}`` is ``1 byte`` or ``2000 bytes``."""

    def __format__(self, form: str) -> str:
        return count_of(int(self), form) if form[:1].isalpha() else super().__format__(form)


def expected_of(code: int, expected: int) -> str:
    """Returns what was expected, in words."""
    return FAULTS[code].expected.format(_Number(expected))


def text_of(code: int, expected: int, found: int = 0, field: str = "") -> str:
    """Returns the fault in words, without its place. field: its name, where the fault has none of its own."""
    fault = FAULTS[code]
    name = VARINTS[found] if code == BAD_VARINT else fault.field or field
    found_words = fault.found.format(_Number(expected), _Number(found))
    return f"{name}: expected {expected_of(code, expected)}, found {found_words}"


def cut_text(size: int, room: int) -> str:
    """Returns what is wrong where a segment ends: the length of the last batch, or bytes are missing.

    size: of that batch, below 0 where its header is cut; room: the bytes that are there.
    """
    if size < 0:
        return f"the segment ends inside a header: found {count_of(room, 'byte')}"
    return f"the segment ends inside a batch: {count_of(size, 'byte')} by its length, {room} are there"


def describe(code: int, expected: int, found: int, at: int, field: str = "") -> str:
    """Returns the fault in words, with its place.

    at: byte in the segment; below 0, -1 - the byte in the expanded payload. field: as for ``text_of``.
    """
    text = text_of(code, expected, found, field)
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

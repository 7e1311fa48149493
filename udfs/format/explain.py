"""Explains why a batch is refused: reads it again, in plain Python, for what was expected and found.

A kernel stops at a fault with a code and a place and nothing more. Errors are rare, kernels are not. What
is read here is a length or two near that place, so that a hostile batch costs no more than a sound one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.varints import varint_at


class Numbers(NamedTuple):
    """The numbers of a fault: its place in the data, what was expected there, what was found."""

    at: int
    expected: int
    found: int = 0


class _Fault:
    """A row of BATCH at fault, and the buffer (uint8) where its data lie."""

    def __init__(self, e: np.void, data: np.ndarray) -> None:
        self.e, self._data = e, data
        self.at, self.begin = int(e["stopped_at"]), int(e["stopped_in"])
        self.end = int(e["data_at"] + e["data_size"])

    def int_at(self, at: int, size: int) -> int:
        """Returns the big-endian signed integer of ``size`` bytes at ``at``."""
        return int.from_bytes(self._data[at : at + size].tobytes(), "big", signed=True)

    def crc32(self, begin: int, end: int) -> int:
        return zlib.crc32(self._data[begin:end].tobytes())

    def varint(self, at: int) -> tuple[int, int]:
        """Returns the int32 in the varint at ``at``, and the position after it; the kernel has read it."""
        found = varint_at(self._data, at, len(self._data))
        assert found is not None
        return found

    # Parts of a record of magic 2

    def body(self) -> tuple[int, int]:
        """Returns where the body of the record begins, and its size."""
        size, start = self.varint(self.begin)
        return start, size

    def record_end(self) -> int:
        """Returns where the record ends."""
        start, size = self.body()
        return start + size

    def key(self) -> tuple[int, int]:
        """Returns the size of the record's key, -1 for null, and where it begins."""
        at = self.body()[0] + 1
        while self._data[at] >= 0x80:  # the timestamp delta
            at += 1
        size, at = self.varint(self.varint(at + 1)[1])
        return max(size, -1), at

    def value(self) -> tuple[int, int]:
        """Returns the size of the record's value, -1 for null, and where it begins."""
        size, at = self.key()
        size, at = self.varint(at + max(size, 0))
        return max(size, -1), at

    # Parts of a message of magic 0 or 1

    def message_end(self) -> int:
        """Returns where the message ends."""
        return self.begin + f.LOG_OVERHEAD + self.int_at(self.begin + f.LENGTH_POS, 4)

    def least_message(self) -> int:
        """Returns the size of the smallest message of its magic."""
        return f.V0_MIN_SIZE if self._data[self.at + f.MAGIC_POS] == f.MAGIC_V0 else f.V1_MIN_SIZE


def _bad_varint(x: _Fault) -> Numbers:
    """Returns the place of a bad varint, and the most bytes that it may have.

    Attributes, deltas and the key's length are reported as one; all other varints are an int32.
    """
    head = x.at != x.begin and x.at == x.body()[0]
    return Numbers(x.at, f.MAX_VARLONG_BYTES if head else f.MAX_VARINT_BYTES)


def _record_beyond(x: _Fault) -> Numbers:
    start, size = x.body()
    return Numbers(x.at, x.end - start, size)


def _record_slack(x: _Fault) -> Numbers:
    start, size = x.body()
    return Numbers(start, size, x.at - start)


def _length_beyond(x: _Fault) -> Numbers:
    """Returns the numbers of a key, a value or a part of a header whose length at ``x.at`` is too large."""
    size, at = x.varint(x.at)
    return Numbers(x.at, x.record_end() - at, size)


def _key_beyond(x: _Fault) -> Numbers:
    if x.e["magic"] == f.MAGIC_V2:
        return _length_beyond(x)
    return Numbers(x.at, x.message_end() - x.at - 8, x.int_at(x.at, 4))  # the value's length has to fit too


def _value_beyond(x: _Fault) -> Numbers:
    if x.e["magic"] == f.MAGIC_V2:
        return _length_beyond(x)
    return Numbers(x.at, x.message_end() - x.at - 4, x.int_at(x.at, 4))


def _header_count(x: _Fault) -> Numbers:
    count, at = x.varint(x.at)
    return Numbers(x.at, (x.record_end() - at) // f.MIN_HEADER_SIZE, count)


def _control_key(x: _Fault) -> Numbers:
    size, at = x.key()
    return Numbers(at, f.CONTROL_KEY_SIZE, size)


def _control_version(x: _Fault) -> Numbers:
    at = x.key()[1]
    return Numbers(at, 0, x.int_at(at, 2))


def _control_value(x: _Fault) -> Numbers:
    size, at = x.value()
    return Numbers(at, f.END_MARKER_VALUE_SIZE, size)


def _control_value_version(x: _Fault) -> Numbers:
    at = x.value()[1]
    return Numbers(at, 0, x.int_at(at, 2))


def _inner_crc(x: _Fault) -> Numbers:
    stored = x.int_at(x.at + f.LEGACY_CRC_POS, 4) & 0xFFFFFFFF
    return Numbers(x.at, x.crc32(x.at + f.MAGIC_POS, x.message_end()), stored)


def _inner_cut(x: _Fault) -> Numbers:
    room = x.end - x.at
    return Numbers(x.at, f.V0_MIN_SIZE if room < f.HEADER_UP_TO_MAGIC else x.message_end() - x.at, room)


def _inner_size(x: _Fault) -> Numbers:
    return Numbers(x.at, x.least_message() - f.LOG_OVERHEAD, x.int_at(x.at + f.LENGTH_POS, 4))


def _inner_compressed(x: _Fault) -> Numbers:
    return Numbers(x.at, 0, x.int_at(x.at + f.LEGACY_ATTRIBUTES_POS, 1) & f.CODEC_MASK)


# Faults in the data of a batch
_IN_DATA: dict[int, Callable[[_Fault], Numbers]] = {
    faults.INNER_CRC_MISMATCH: _inner_crc,
    faults.PAYLOAD_LEFT: lambda x: Numbers(x.at, int(x.e["count"]), x.end - x.at),
    faults.BAD_VARINT: _bad_varint,
    faults.RECORD_BEYOND: _record_beyond,
    faults.RECORD_SLACK: _record_slack,
    faults.KEY_BEYOND: _key_beyond,
    faults.VALUE_BEYOND: _value_beyond,
    faults.HEADER_COUNT: _header_count,
    faults.HEADER_KEY_NULL: lambda x: Numbers(x.at, 0, x.varint(x.at)[0]),
    faults.HEADER_BEYOND: _length_beyond,
    faults.CONTROL_KEY: _control_key,
    faults.CONTROL_VERSION: _control_version,
    faults.CONTROL_VALUE: _control_value,
    faults.CONTROL_VALUE_VERSION: _control_value_version,
    faults.WRAPPER_NULL_VALUE: lambda x: Numbers(x.at, 0, x.int_at(x.at, 4)),
    faults.WRAPPER_EMPTY: lambda x: Numbers(x.at, 1),
    faults.INNER_CUT: _inner_cut,
    faults.INNER_SIZE: _inner_size,
    faults.INNER_COMPRESSED: _inner_compressed,
    faults.COUNT_TOO_SMALL: lambda x: Numbers(x.at, int(x.e["count"]), int(x.e["stopped_after"])),
}


def _of_batch(e: np.void, data: np.ndarray, limit: int) -> Numbers:
    """Returns the numbers of a fault of the batch itself; its place counts from where the batch begins."""
    payload, most = int(e["payload_at"] - e["at"]), int(e["data_size"]) // f.MIN_RECORD_SIZE
    last_codec = f.CODEC_ZSTD if e["magic"] == f.MAGIC_V2 else f.CODEC_LZ4
    match int(e["fault"]):
        case faults.CRC_MISMATCH:
            return Numbers(0, int(e["crc_computed"]), int(e["crc_stored"]))
        case faults.UNKNOWN_CODEC:
            return Numbers(payload, last_codec, int(e["codec"]))
        case faults.DECOMPRESSION_FAILED | faults.DECOMPRESSED_TOO_LARGE:
            return Numbers(payload, limit)
        case faults.COUNT_NEGATIVE:
            return Numbers(f.RECORDS_COUNT_POS, 0, int(e["count"]))
        case faults.COUNT_TOO_LARGE:
            return Numbers(f.RECORDS_COUNT_POS, most, int(e["count"]))
        case faults.WRAPPER_OFFSET:
            return Numbers(0, _Fault(e, data).int_at(int(e["stopped_at"]), 8), int(e["last_offset"]))
    raise KeyError(f"fault {e['fault']}")


def explain(e: Any, data: np.ndarray, limit: int) -> None:
    """Fills in ``fault_at``, ``fault_expected`` and ``fault_found`` of a batch at fault.

    ``e``: its row of BATCH, as kernels left it; ``data``: uint8, the buffer where its data lie; ``limit``:
    bytes that one batch may expand to. ``fault_at`` becomes a position in the segment, or -1 - that in the
    expanded payload.
    """
    tell = _IN_DATA.get(int(e["fault"]))
    if tell is None:
        numbers = _of_batch(e, data, limit)
        at = int(e["position"]) + numbers.at
    else:
        numbers = tell(_Fault(e, data))
        at = int(e["position"]) + numbers.at - int(e["at"])
        if e["expanded"]:
            at = -1 - (numbers.at - int(e["data_at"]))
    e["fault_at"], e["fault_expected"], e["fault_found"] = at, numbers.expected, numbers.found

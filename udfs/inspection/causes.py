"""What most likely happened to a damaged batch, found by trying: is it sound once that is undone?"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from udfs.format import layout as f
from udfs.kernels.crc_search import TABLES, changed_byte
from udfs.kernels.framing import batch_size, checksum, is_sound

BIT, BYTE, ZEROS, CUT, OTHER, UNKNOWN = (
    "flipped bit",
    "changed byte",
    "zeros",
    "cut",
    "other bytes",
    "unknown",
)
CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
_LEAST_ZEROS = 64
_HEADER_V2 = struct.Struct(">qiibIhiqqqhii")
_MOST_BYTES = 1 << 30  # of a batch that is taken for one though no checksum says so
_PAGES = (65536, 4096, 512)
_SIGNATURES = {
    b"\x1f\x8b\x08": "a gzip file",
    b"\x7fELF": "an ELF program",
    b"PK\x03\x04": "a zip file",
    b"\x89PNG\r\n": "a PNG picture",
    b"%PDF-": "a PDF file",
    b"SQLite format 3\0": "a SQLite database",
    b"PAR1": "a Parquet file",
    b"\xca\xfe\xba\xbe": "a Java class",
}


@dataclass(frozen=True)
class Cause:
    """kind: one of the constants. certainty: of it. text: in words.

    position, bits: the byte of the segment that was changed and the mask of its changed bits, or where the
    wrong bytes begin; size: how many they are. mended: the batch's bytes with that undone, or None.
    """

    kind: str
    certainty: str
    text: str
    position: int = -1
    size: int = 0
    bits: int = 0
    mended: bytes | None = None

    @property
    def bit(self) -> int:
        """The number of the flipped bit, 0 for the lowest; -1 where it is not one bit."""
        return self.bits.bit_length() - 1 if self.kind == BIT else -1


def flips_of_header(data: np.ndarray, position: int) -> Iterator[Cause]:
    """Single bits of length and magic with which a sound batch begins at ``data[0]`` (uint8).

    They decide where the checksum ends and which it is, so that each of them is tried.
    """
    for at in (*range(f.LENGTH_POS, f.LOG_OVERHEAD), f.MAGIC_POS):
        for bit in range(8):
            if at >= len(data):
                return
            data[at] ^= 1 << bit
            size = int(batch_size(data, 0, len(data)))
            found = 0 < size <= len(data) and is_sound(data, 0, size)
            mended = data[:size].tobytes() if found else None
            data[at] ^= 1 << bit
            if mended is not None:
                yield _flip(position + at, 1 << bit, mended, data, at)


def _flip(position: int, bits: int, mended: bytes, data: np.ndarray, at: int) -> Cause:
    name = field_at(mended, at)
    was, now = mended[at], int(data[at])
    if bits & (bits - 1) == 0:
        what = f"bit {bits.bit_length() - 1} of the byte at position {position} is flipped ({name}): "
        kind, sure = BIT, CERTAIN
    else:
        what = f"the byte at position {position} is changed ({name}): "
        kind, sure = BYTE, LIKELY
    text = f"{what}{now:#04x}, expected {was:#04x}; with it the checksum is right"
    return Cause(kind, sure, text, position, 1, bits, mended)


def field_at(batch: bytes, at: int) -> str:
    """The field of the header that a byte of a batch is in, or what is behind it."""
    names = _FIELDS_V2 if batch[f.MAGIC_POS] >= f.MAGIC_V2 else _FIELDS_LEGACY
    for begin, name in reversed(names):
        if at >= begin:
            return name
    return "offset"


_FIELDS_V2 = (
    *(
        (f.OFFSET_POS, "baseOffset"),
        (f.LENGTH_POS, "batchLength"),
        (f.LEADER_EPOCH_POS, "partitionLeaderEpoch"),
    ),
    *((f.MAGIC_POS, "magic"), (f.V2_CRC_POS, "crc"), (f.V2_ATTRIBUTES_POS, "attributes")),
    *((f.LAST_OFFSET_DELTA_POS, "lastOffsetDelta"), (f.BASE_TIMESTAMP_POS, "baseTimestamp")),
    *((f.MAX_TIMESTAMP_POS, "maxTimestamp"), (f.PRODUCER_ID_POS, "producerId")),
    *((f.PRODUCER_EPOCH_POS, "producerEpoch"), (f.BASE_SEQUENCE_POS, "baseSequence")),
    *((f.RECORDS_COUNT_POS, "recordsCount"), (f.V2_HEADER_SIZE, "records")),
)
_FIELDS_LEGACY = (
    *((f.OFFSET_POS, "offset"), (f.LENGTH_POS, "messageSize"), (f.LEGACY_CRC_POS, "crc")),
    *((f.MAGIC_POS, "magic"), (f.LEGACY_ATTRIBUTES_POS, "attributes"), (f.V1_TIMESTAMP_POS, "the rest")),
)


def change_under_checksum(batch: np.ndarray, position: int) -> Cause | None:
    """The one bit, or the one byte, whose change explains the wrong checksum of a whole batch (uint8)."""
    data = batch.copy()
    v2 = data[f.MAGIC_POS] >= f.MAGIC_V2
    crc_at, begin = (f.V2_CRC_POS, f.V2_ATTRIBUTES_POS) if v2 else (f.LEGACY_CRC_POS, f.MAGIC_POS)
    stored = int.from_bytes(data[crc_at : crc_at + 4].tobytes(), "big")
    difference = stored ^ int(checksum(data, 0, len(data)))
    in_crc = [i for i in range(4) if difference >> (8 * (3 - i)) & 0xFF]
    for single in (True, False):
        if len(in_crc) == 1:  # the checksum itself was changed
            bits = difference >> (8 * (3 - in_crc[0])) & 0xFF
            if not single or bits & (bits - 1) == 0:
                return _undone(data, batch, crc_at + in_crc[0], bits, position)
        at, bits = changed_byte(difference, len(data) - begin, *TABLES[bool(v2)], single)
        if at >= 0:
            return _undone(data, batch, begin + int(at), int(bits), position)
    return None


def _undone(data: np.ndarray, batch: np.ndarray, at: int, bits: int, position: int) -> Cause:
    data[at] ^= bits
    return _flip(position + at, bits, data.tobytes(), batch, at)


def zeros(content: bytes, position: int) -> Cause | None:
    """The longest run of zero bytes in a damaged batch, if it is one that data hardly have."""
    runs = [m.span() for m in re.finditer(rb"\0{%d,}" % _LEAST_ZEROS, content)]
    if not runs:
        return None
    begin, end = max(runs, key=lambda run: run[1] - run[0])
    low, high = position + begin, position + end
    for page in _PAGES:
        first, last = -(-low // page) * page, high // page * page
        if last > first:
            text = f"the bytes from position {first} to {last} are zeros, whole pages of {page} bytes: "
            text += "a write that never reached the disk"
            return Cause(ZEROS, LIKELY, text, low, high - low)
    text = f"the {high - low} bytes from position {low} are zeros"
    return Cause(ZEROS, POSSIBLE, text, low, high - low)


def bytes_of_a_file(content: bytes, position: int) -> Cause | None:
    """The begin of a file of another kind, at the begin of a page of the disk."""
    for page in _PAGES[1:]:
        for place in range(-(-position // page) * page, position + len(content), page):
            at = place - position
            for mark, name in _SIGNATURES.items():
                if content.startswith(mark, at):
                    text = f"at position {place}, the begin of a page of {page} bytes, {name} begins"
                    return Cause(OTHER, LIKELY, f"{text}: bytes of another file", place, len(content) - at)
    return None


def cut_batch_inside(content: bytes, position: int) -> Cause | None:
    """A header of magic 2 inside a damaged batch, whose batch was overwritten or cut: no checksum tells.

    Its fields must agree with each other, which those of other bytes do not.
    """
    for match in re.finditer(rb"(?<=.{16})\x02(?=.{44})", content, re.DOTALL):
        at = match.start() - f.MAGIC_POS
        e = _HEADER_V2.unpack_from(content, at)
        base, length, epoch, _, _, attributes, last, first_ms, newest, producer, producer_epoch, _, count = e
        agrees = (
            f.V2_HEADER_SIZE - f.LOG_OVERHEAD <= length < _MOST_BYTES
            and base >= 0 <= last
            and epoch >= -1 <= producer
            and producer_epoch >= -1
            and attributes & f.V2_UNUSED_MASK == 0
            and attributes & f.CODEC_MASK <= f.CODEC_ZSTD
            and 0 < count <= last + 1
            and -1 <= first_ms <= newest
        )
        if at > 0 and agrees:
            begin = position + at
            text = f"at position {begin} the header of a batch lies (offsets {base} to {base + last}), cut: "
            return Cause(OTHER, POSSIBLE, f"{text}bytes of another file", begin, len(content) - at)
    return None


def single_bits(stored: int, size: int) -> Iterator[tuple[int, int]]:
    """(bit, value) of each signed integer of ``size`` bytes that is one bit from ``stored``."""
    width = 8 * size
    for bit in range(width):
        value = (stored ^ (1 << bit)) & ((1 << width) - 1)
        yield bit, value - (1 << width) if value >> (width - 1) else value

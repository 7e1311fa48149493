"""Finds what most likely happened to a damaged batch, by trying: is it sound once that is undone?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.plain_header import field_at
from kafka_log_lake.udfs.kernels.crc_search import TABLES, changed_byte, shift_begin
from kafka_log_lake.udfs.kernels.framing import batch_size, checksum, is_sound
from kafka_log_lake.udfs.words import count_of

BIT, BYTE, ZEROS, CUT = "flipped bit", "changed byte", "zeros", "cut"
ORDER, OTHER, UNKNOWN = "wrong order", "other bytes", "unknown"
CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
# By chance one damage in this many looks like a changed bit or byte
_FEW_BY_CHANCE, _SOME_BY_CHANCE, _MANY_BY_CHANCE = 1000, 20, 4


@dataclass(frozen=True)
class Cause:
    """What may have happened to a damaged batch.

    kind, certainty: one of the constants above. text: in words. position, bits: the byte of the segment that
    was changed and the mask of its changed bits; or where the wrong bytes begin, -1 unknown. size: the number
    of wrong bytes. mended: the batch's bytes with that undone, or None.
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
        """Returns the number of the flipped bit, 0 for the lowest; -1 where the cause is not one bit."""
        return self.bits.bit_length() - 1 if self.kind == BIT else -1


def flips_of_header(data: np.ndarray, position: int) -> Iterator[Cause]:
    """Yields single bits of length and magic that, flipped, give a sound batch at ``data[0]`` (uint8).

    Length and magic decide where the checksum ends and which one it is, so each of these bits is tried.
    """
    for at in (*range(f.LENGTH_POS, f.LOG_OVERHEAD), f.MAGIC_POS):
        for bit in range(8):
            if at >= len(data):
                return
            data[at] ^= 1 << bit
            size = int(batch_size(data, 0, len(data)))
            is_sound_now = 0 < size <= len(data) and is_sound(data, 0, size)
            mended = data[:size].tobytes() if is_sound_now else None
            data[at] ^= 1 << bit
            if mended is not None:
                yield _flip(position + at, 1 << bit, mended, data, at, CERTAIN)


def change_of_header(data: np.ndarray, position: int, ends: list[int]) -> Cause | None:
    """Finds a length leading to one of ``ends``, or a magic, that makes the checksum right; else None."""
    if len(data) < f.HEADER_UP_TO_MAGIC:
        return None
    for size in dict.fromkeys((*ends, int(batch_size(data, 0, len(data))))):
        for magic in (f.MAGIC_V2, f.MAGIC_V1, f.MAGIC_V0):
            if not f.V0_MIN_SIZE <= size <= len(data):
                continue
            mended = data[:size].copy()
            mended[f.LENGTH_POS : f.LOG_OVERHEAD] = list((size - f.LOG_OVERHEAD).to_bytes(4, "big"))
            mended[f.MAGIC_POS] = magic
            if batch_size(mended, 0, size) == size and is_sound(mended, 0, size):
                return _changed(position, mended, data)
    return None


def _changed(position: int, mended: np.ndarray, data: np.ndarray) -> Cause:
    """Describes the change of a header. mended: the batch; data: as stored, from ``position`` on."""
    places = np.flatnonzero(mended != data[: len(mended)])
    first, last = int(places[0]), int(places[-1])
    if first == last:
        bits = int(mended[first] ^ data[first])
        return _flip(position + first, bits, mended.tobytes(), data, first, CERTAIN)
    words = []
    for at, size, name in ((f.LENGTH_POS, 4, "length"), (f.MAGIC_POS, 1, "magic")):
        now, was = (
            int.from_bytes(bytes_[at : at + size].tobytes(), "big", signed=True) for bytes_ in (data, mended)
        )
        words += [f"{name} at position {position + at}: {now}, expected {was}"] if now != was else []
    text = f"the header is written over: {'; '.join(words)}; with that the checksum is right"
    return Cause(OTHER, CERTAIN, text, position + first, last + 1 - first, 0, mended.tobytes())


def _flip(position: int, bits: int, mended: bytes, data: np.ndarray, at: int, certainty: str) -> Cause:
    name = field_at(mended[f.MAGIC_POS], at)
    was, now = mended[at], int(data[at])
    kind = BIT if bits & (bits - 1) == 0 else BYTE
    what = f"bit {bits.bit_length() - 1} of the byte" if kind == BIT else "the byte"
    changed = "flipped" if kind == BIT else "changed"
    text = f"{what} at position {position} is {changed} ({name}): {now:#04x}, expected {was:#04x}; "
    return Cause(kind, certainty, f"{text}with it the checksum is right", position, 1, bits, mended)


def _sums(batch: np.ndarray) -> tuple[int, int, int]:
    """Returns (place of the checksum, begin of the bytes it covers, XOR of stored and computed checksum)."""
    v2 = batch[f.MAGIC_POS] >= f.MAGIC_V2
    at, begin = (f.V2_CRC_POS, f.V2_ATTRIBUTES_POS) if v2 else (f.LEGACY_CRC_POS, f.MAGIC_POS)
    stored = int.from_bytes(batch[at : at + 4].tobytes(), "big")
    return at, begin, stored ^ int(checksum(batch, 0, len(batch)))


def change_under_checksum(batch: np.ndarray, position: int) -> Cause | None:
    """Finds the one bit, or one byte, whose change explains a whole batch's wrong checksum; else None.

    batch: uint8[n]. The longer the batch, the more changes are tried, and the more likely it is that one fits
    by chance.
    """
    crc_at, begin, difference = _sums(batch)
    tables = TABLES[bool(batch[f.MAGIC_POS] >= f.MAGIC_V2)]
    in_crc = [i for i in range(4) if difference >> (8 * (3 - i)) & 0xFF]
    for single in (True, False):
        if len(in_crc) == 1:  # the checksum itself was changed
            bits = difference >> (8 * (3 - in_crc[0])) & 0xFF
            if not single or bits & (bits - 1) == 0:
                return _undone(batch, crc_at + in_crc[0], bits, position, CERTAIN if single else LIKELY)
        at, bits = changed_byte(difference, len(batch) - begin, *tables, single)
        if at >= 0:
            return _by_chance(
                _undone(batch, begin + int(at), int(bits), position, CERTAIN if single else LIKELY)
            )
    return None


def _by_chance(cause: Cause) -> Cause | None:
    """Lowers the certainty of a cause that was found by trying all bits or bytes; None if it is too low."""
    of = (1 << 32) // (len(cause.mended or b"") * (8 if cause.kind == BIT else 255))
    if of >= _FEW_BY_CHANCE:
        return cause
    if of < _MANY_BY_CHANCE:
        return None
    sure = LIKELY if cause.kind == BIT and of >= _SOME_BY_CHANCE else POSSIBLE
    return replace(
        cause, certainty=sure, text=f"{cause.text}, as it is by chance in 1 of {of} damages of this length"
    )


def _undone(batch: np.ndarray, at: int, bits: int, position: int, certainty: str) -> Cause:
    data = batch.copy()
    data[at] ^= bits
    return _flip(position + at, bits, data.tobytes(), batch, at, certainty)


def put_in(data: np.ndarray, size: int, more: int, position: int) -> Cause | None:
    """Finds ``more`` bytes without which the checksum of a batch is right; else None.

    The batch begins at ``data[0]`` and has ``size`` bytes by its header.
    """
    if not 0 < more <= len(data) - size:
        return None
    _, begin, difference = _sums(data[:size])
    tables = TABLES[bool(data[f.MAGIC_POS] >= f.MAGIC_V2)]
    at = int(shift_begin(difference, data, begin, size, more, *tables))
    if at < 0:
        return None
    first = position + at
    text = f"{count_of(more, 'byte')} {'was' if more == 1 else 'were'} put in at position {first}: "
    text += "the checksum is right without"
    mended = np.concatenate([data[:at], data[at + more : size + more]]).tobytes()
    return Cause(OTHER, CERTAIN, text, first, more, 0, mended)


def single_bits(stored: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields (bit, value) of each signed integer of ``size`` bytes that is one bit from ``stored``."""
    width = 8 * size
    for bit in range(width):
        value = (stored ^ (1 << bit)) & ((1 << width) - 1)
        yield bit, value - (1 << width) if value >> (width - 1) else value

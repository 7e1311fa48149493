"""What an input costs: bytes read, memory held and CPU time, each against the bytes it has and expands to.

Inputs are made by a recipe: a few pieces, again and again up to a size. Pieces are what a decoder may take
too long over: lengths that claim what follows, tiny damaged messages, batches within values, zeros, payloads
of many empty parts or of much in little. The search keeps the recipes that read most for their size, and
changes them. What is counted (reads, memory) repeats exactly; CPU time has bounds that a busy machine keeps
too.
"""

from __future__ import annotations

import gzip
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.decoder import headers
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from tests.fuzz.checks import LIMIT
from tests.fuzz.segments import Maker
from tests.support.fast import BytesSource
from tests.support.segment_maker import (
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    Batch,
    Message,
    Record,
    compress,
    varint,
)

SMALL, LARGE = 1 << 18, 1 << 21  # bytes of an input
_WINDOW = 1 << 16
_POOL = 8  # recipes that are changed
_MOST_PIECES = 6
_FEW = 8  # batches of an input that expand to the limit
_THOROUGH = 4  # every how many inputs one is checked for memory and growth too

# What an input may cost. An adversary's bytes take up to 1.3 us each on an idle machine, tiny records take
# 12 bytes of columns each; for a damaged range a few blocks are read, of headers and of running checksums.
_READ_A_BYTE, _READ_A_DAMAGE, _READ = 64, 64 << 10, 1 << 20
_SECONDS_A_BYTE, _SECONDS = 10e-6, 0.2
_HELD_A_BYTE, _HELD = 20, 4 << 20
# Eight times the bytes may take this many times the seconds: between 8 (linear) and 64 (quadratic)
_GROWTH = 20


# Headers are followed in blocks of this size, not in the decoder's 64 KiB: what is read for each damaged
# range has to be little compared with an input
BLOCK = 1 << 12


class CountingSource(BytesSource):
    """A source that counts what is read of it."""

    read = 0

    def read_into(self, position: int, view: np.ndarray) -> int:
        self.read += len(view)
        return super().read_into(position, view)


class Cost(NamedTuple):
    """What an input took. size: its bytes and those it expands to; read: bytes; seconds: of CPU time."""

    size: int
    damages: int
    read: int
    seconds: float

    @property
    def allowed_reads(self) -> int:
        return _READ_A_BYTE * self.size + _READ_A_DAMAGE * self.damages + _READ


def cost(data: bytes) -> Cost:
    """Decode a segment and count."""
    source = CountingSource(data)
    size, damages = len(data), 0
    began = time.thread_time()
    for group in SegmentDecoder(source, Range(len(data)), _WINDOW, LIMIT):
        failed = (group.batches["codec"] != 0) & (group.batches["fault"] != 0)
        size += int(group.batches["data_size"].sum()) + LIMIT * int(failed.sum())  # it may expand up to there
        damages += len(group.damages)
    return Cost(size, damages, source.read, time.thread_time() - began)


_POOLS: list[pa.MemoryPool] = []  # kept: what was allocated from one names it


def held(data: bytes) -> int:
    """The most bytes that Python's objects, arrays and columns took while a segment was decoded."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        for _ in SegmentDecoder(BytesSource(data), Range(len(data)), _WINDOW, LIMIT):
            pass
        return int(tracemalloc.get_traced_memory()[1] + pool.max_memory())
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def broken(found: Cost) -> dict[str, str]:
    """The rules that a cost breaks, each with figures."""
    rules = {}
    if found.read > found.allowed_reads:
        rules["reads too much"] = f"{found.read:,} bytes read, allowed {found.allowed_reads:,}"
    allowed = _SECONDS_A_BYTE * found.size + _SECONDS
    if found.seconds > allowed:
        rules["takes too long"] = f"{found.seconds:.2f} s of CPU time, allowed {allowed:.2f}"
    return rules


def broken_by_memory(data: bytes, size: int) -> dict[str, str]:
    """The same for memory, beyond what decoding takes anyway. size: with what it expands to."""
    more, allowed = held(data) - held(data[:1]), _HELD_A_BYTE * size + _HELD
    return {"holds too much": f"{more:,} bytes held, allowed {allowed:,}"} if more > allowed else {}


def broken_by_growth(small: Cost, large: Cost) -> dict[str, str]:
    """The same for two inputs of one recipe, LARGE // SMALL times as much in one as in the other.

    A length that lies may lead somewhere in one and nowhere in the other: then they do not compare.
    """
    rules, allowed = broken(large), _GROWTH * small.seconds + _SECONDS
    alike = large.damages <= _GROWTH * max(1, small.damages)
    if alike and large.seconds > allowed:
        rules["grows too fast"] = f"{small.seconds:.3f} s, then {large.seconds:.2f} s, allowed {allowed:.2f}"
    return rules


def broken_alone(data: bytes) -> dict[str, str]:
    """What one input breaks, without another of its recipe."""
    found = cost(data)
    return broken(found) | broken_by_memory(data, found.size)


def is_costly(path: Path) -> bool:
    """Whether a kept input is one that cost too much: the slow forms of the decoder can't take it."""
    return path.stem.startswith("costs-")


# Recipes


class Piece(NamedTuple):
    """A part of a recipe. make: from its number and the bytes that are left."""

    name: str
    make: Callable[[int, int], bytes]


Recipe = tuple[Piece, ...]


def build(recipe: Recipe, size: int) -> bytes:
    """The pieces of a recipe, again and again, in at least ``size`` bytes."""
    out, number = bytearray(), 0
    while len(out) < size:
        for piece in recipe:
            out += piece.make(number, max(0, size - len(out)))
        number += 1
    return bytes(out)


def _rising(batch: bytes, count: int = 8) -> Callable[[int, int], bytes]:
    """The batch with offsets that rise from one to the next; no checksum covers its base offset."""
    return lambda number, left: (number * count).to_bytes(8, "big") + batch[8:]


def _sound(maker: Maker) -> bytes:
    return Batch([Record(key=b"k", value=bytes(maker.number(2) * 40))] * (1 + maker.number(3))).encode()


def _lying(maker: Maker) -> Piece:
    """A length that claims some eighths of what is left, or a few bytes."""
    batch, eighths, fixed = _sound(maker), 1 + maker.number(8), maker.number(2) * maker.number(1 << 14)
    eighths = 0 if fixed else eighths

    def make(number: int, left: int) -> bytes:
        length = min(1 << 30, 60 + fixed + left * eighths // 8)
        return (number * 8).to_bytes(8, "big") + length.to_bytes(4, "big") + batch[12:]

    return Piece("a length that lies", make)


def _tiny(maker: Maker) -> Piece:
    message = bytearray(Message(magic=maker.number(2)).encode())
    message[12] ^= maker.number(2)
    return Piece("a tiny message", _rising(bytes(message)))


def _host(maker: Maker) -> Piece:
    """A damaged batch whose value holds sound ones."""
    inner = _sound(maker)
    value = b"".join(_rising(inner)(100 + n, 0) for n in range(1 + maker.number(80)))
    host = bytearray(Batch([Record(value=value)]).encode())
    host[(8, 17)[maker.number(2)] + maker.number(4)] ^= 1
    return Piece("batches in a damaged value", _rising(bytes(host)))


def _between(maker: Maker) -> Piece:
    data = bytes([maker.number(2) * 0xFF]) * (1 << maker.number(14))
    return Piece("bytes between", lambda number, left: data)


_EMPTY = {
    GZIP: (b"", gzip.compress(b"", mtime=0)),
    SNAPPY: (XERIAL_HEADER, b"\x00\x00\x00\x01\x00"),
    LZ4: (b"", compress(LZ4, b"")),
    ZSTD: (b"", compress(ZSTD, b"")),
}


def _empty_parts(maker: Maker) -> Piece:
    """A payload of empty members, blocks or frames, in a share of what is left."""
    codec, share = 1 + maker.number(4), 1 + maker.number(4)
    head, part = _EMPTY[codec]
    last = compress(codec, Record(value=b"v").encode(), "raw")
    end = len(last).to_bytes(4, "big") + last if codec == SNAPPY else last

    def make(number: int, left: int) -> bytes:
        stored = head + part * (left // share // len(part)) + end
        return Batch(codec=codec, stored=stored, count=1, base_offset=number).encode()

    return Piece(f"empty parts, codec {codec}", make)


def _expanding(maker: Maker) -> Piece:
    """Much in little: records, headers or zeros, up to the limit or past it."""
    codec, size, what = 1 + maker.number(4), LIMIT >> maker.number(3), maker.number(3)
    count, payload = 1, bytes(2 * size)
    if what == 0:
        record = Record().encode()
        count = size // len(record)
        payload = record * count
    elif what == 1:
        key = bytes([maker.number(256)])
        record, header = Record(headers=((key, None),)).encode(), b"\x02" + key + b"\x01"
        headers = (size - 64) // len(header)
        body = record[1:].replace(b"\x02" + header, varint(headers) + header * headers)
        payload = varint(len(body)) + body
    stored = compress(codec, payload)
    batch = Batch(codec=codec, stored=stored, count=count, last_offset_delta=count - 1).encode()
    few, then = _rising(batch, LIMIT), _rising(_sound(maker))
    return Piece(
        f"much in little, {what}, codec {codec}",
        lambda number, left: few(number, left) if number < _FEW else then(number, left),
    )


def _changed(maker: Maker) -> Piece:
    return Piece("a changed batch", _rising(maker.batch().ljust(8, b"\x00")))


def _plain(maker: Maker) -> Piece:
    return Piece("a sound batch", _rising(_sound(maker)))


_KINDS = (_lying, _tiny, _host, _between, _empty_parts, _expanding, _changed, _plain, _plain)


def _piece(maker: Maker) -> Piece:
    return _KINDS[maker.number(len(_KINDS))](maker)


class Finding(NamedTuple):
    """A rule that an input breaks."""

    rule: str
    printed: str
    data: bytes


@dataclass
class Search:
    """Makes costly inputs, the same ones for the same ``seed``, and judges them."""

    seed: int
    best: list[tuple[float, Recipe]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._maker = Maker(self.seed)
        self._number = 0

    def recipe(self) -> Recipe:
        """A new recipe, or more often one of the best, changed in a place."""
        maker = self._maker
        if not self.best or maker.number(3) == 0:
            return tuple(_piece(maker) for _ in range(1 + maker.number(3)))
        pieces = list(self.best[maker.number(len(self.best))][1])
        at, how = maker.number(len(pieces)), maker.number(3)
        if how == 0 and len(pieces) > 1:
            del pieces[at]
        elif how == 1 and len(pieces) < _MOST_PIECES:
            pieces.insert(at, _piece(maker))
        else:
            pieces[at] = _piece(maker)
        return tuple(pieces)

    def examine(self, recipe: Recipe, take: Callable[[bytes], None]) -> Iterator[Finding]:
        """Rules that inputs of a recipe break, twice: what was chance the first time is not again.

        take: called with each input before it is decoded.
        """
        self._number += 1
        thorough = self._number % _THOROUGH == 1
        first = self._broken(recipe, thorough, take)
        again = self._broken(recipe, thorough, take) if first else {}
        for rule in sorted(first.keys() & again.keys()):
            names = ", ".join(piece.name for piece in recipe)
            yield Finding(rule, f"{again[rule][0]}\nagain and again: {names}", again[rule][1])

    def _broken(
        self, recipe: Recipe, thorough: bool, take: Callable[[bytes], None]
    ) -> dict[str, tuple[str, bytes]]:
        data = build(recipe, SMALL)
        take(data)
        small = cost(data)
        self._remember(small, recipe)
        rules = broken(small)
        if thorough and not rules:
            rules = broken_by_memory(data, small.size)
        if thorough and not rules:
            data = build(recipe, LARGE)
            take(data)
            rules = broken_by_growth(small, cost(data))
        return {rule: (printed, data) for rule, printed in rules.items()}

    def _remember(self, found: Cost, recipe: Recipe) -> None:
        if all(recipe != known for _, known in self.best):
            self.best.append((found.read / found.allowed_reads, recipe))
            self.best.sort(key=lambda one: -one[0])
            del self.best[_POOL:]


def prepare() -> None:
    """Small blocks; and what is compiled or loaded on first use is, so that no input pays for it."""
    headers._HEADERS = BLOCK
    maker = Maker(0)
    for kind in _KINDS:
        for _ in range(8):
            data = build((kind(maker),), 1 << 14)
            cost(data)
    held(data)

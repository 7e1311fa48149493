"""Partition folders as brokers and operators leave them: the files of a small world, and how they change.

A file is the batches that its log holds and what hides them: a copy that has not come to its end, zeros that
were laid out in advance, junk after the last batch, a payload that has not reached the disk, flipped bits.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.segment_maker import (
    CONTROL,
    TRANSACTIONAL,
    Batch,
    Message,
    Record,
    segment_name,
    wrap,
)

V2_HEADER = 61
_PRODUCERS = (1, 2, 3)


@dataclass(frozen=True)
class Piece:
    """A batch of a log. made: its description, for magic 2. opens, ends: the producer of a transaction."""

    first: int
    last: int
    data: bytes
    made: Batch | None = None
    opens: int | None = None
    ends: int | None = None


@dataclass
class File:
    """A segment file. cut: bytes that the copy has so far. laid_out: length of a file that ends in zeros.

    hollow: the last batch's payload is zeros yet. flips: position -> mask of bits that a disk turned over.
    touched: positions where bits were ever turned over since the file was last written anew.
    """

    base: int
    pieces: list[Piece] = field(default_factory=list)
    mtime: int = 0
    cut: int | None = None
    laid_out: int = 0
    junk: bytes = b""
    hollow: bool = False
    flips: dict[int, int] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        """The offset after its last batch."""
        return self.pieces[-1].last + 1 if self.pieces else self.base

    @property
    def size(self) -> int:
        return sum(len(piece.data) for piece in self.pieces)

    def bytes(self) -> bytes:
        data = bytearray(b"".join(piece.data for piece in self.pieces))
        if self.hollow:
            payload = len(self.pieces[-1].data) - V2_HEADER
            data[len(data) - payload :] = bytes(payload)
        for position, mask in self.flips.items():
            data[position] ^= mask
        data += self.junk
        if self.cut is not None:
            return bytes(data[: self.cut])
        return bytes(data) + bytes(max(0, self.laid_out - len(data)))

    def clear(self) -> None:
        """What its broker does before it writes on: all that is no batch goes."""
        self.cut, self.laid_out, self.junk, self.hollow = None, 0, b"", False

    def rewrite(self, pieces: list[Piece]) -> None:
        self.clear()
        self.pieces, self.flips, self.touched = pieces, {}, set()


@dataclass
class Folder:
    """A partition folder with its files, the last one active.

    real: where a link leads, if it is one. swallowed: a file that the cleaner merged away and is still there.
    """

    path: Path
    topic: str
    partition: int
    topic_id: str | None
    files: list[File] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    real: Path | None = None
    swallowed: File | None = None

    @property
    def disk(self) -> str:
        return self.path.parent.name

    @property
    def active(self) -> File:
        return self.files[-1]

    def open(self) -> set[int]:
        """Producers with a transaction that no marker has ended."""
        found: set[int] = set()
        for piece in (piece for file in self.files for piece in file.pieces):
            if piece.opens is not None:
                found.add(piece.opens)
            if piece.ends is not None:
                found.discard(piece.ends)
        return found

    def bytes(self) -> dict[Path, tuple[bytes, int]]:
        place = self.real or self.path
        return {place / segment_name(file.base): (file.bytes(), file.mtime) for file in self.files}


def copied(folder: Folder, path: Path) -> Folder:
    """The same log in another folder."""
    files = [
        replace(f, pieces=list(f.pieces), flips=dict(f.flips), touched=set(f.touched)) for f in folder.files
    ]
    return replace(folder, path=path, files=files, epochs=dict(folder.epochs), real=None, swallowed=None)


class Maker:
    """Makes batches; no two hold the same values, so a log that is written again has other bytes."""

    def __init__(self, draw: random.Random, with_transactions: bool) -> None:
        self._draw = draw
        self._kinds = ["plain"] * 4 + ["message", "wrapper"]
        self._kinds += ["data"] * 3 + ["marker"] * 2 if with_transactions else []
        self._serial = 0

    def make(self, folder: Folder, offset: int) -> Piece:
        kind = self._draw.choice(self._kinds)
        if kind == "message":
            message = Message(magic=self._draw.randrange(2), offset=offset, key=b"k", value=self._value())
            return Piece(offset, offset, message.encode())
        if kind == "wrapper":
            return self._wrapper(offset)
        if kind == "data":
            return self._data(folder, offset)
        if kind == "marker" and folder.epochs:
            return self._marker(folder, offset)
        return self._batch(offset)

    def _value(self) -> bytes:
        self._serial += 1
        return b"value %d " % self._serial + b"v" * self._draw.randrange(20)

    def _batch(self, offset: int, **values: Any) -> Piece:
        count = self._draw.randint(1, 4)
        records = tuple(
            Record(key=b"k%d" % self._draw.randrange(5), value=self._value()) for _ in range(count)
        )
        codec = self._draw.choice((0, 0, 0, 1, 2, 3, 4))
        made = Batch(records, codec=codec, base_offset=offset, **values)
        return Piece(offset, offset + count - 1, made.encode(), made)

    def _wrapper(self, offset: int) -> Piece:
        magic, count = self._draw.randrange(2), self._draw.randint(1, 3)
        inner = [Message(magic=magic, offset=offset + i, key=b"k", value=self._value()) for i in range(count)]
        wrapper = wrap(inner, codec=self._draw.choice((1, 2, 3)), magic=magic)
        return Piece(offset, offset + count - 1, wrapper.encode())

    def _data(self, folder: Folder, offset: int) -> Piece:
        producer = self._draw.choice(_PRODUCERS)
        epoch = folder.epochs.setdefault(producer, 0)
        if self._draw.random() < 0.1:
            folder.epochs[producer] = epoch = epoch + 1
        piece = self._batch(offset, flags=TRANSACTIONAL, producer_id=producer, producer_epoch=epoch)
        return replace(piece, opens=producer)

    def _marker(self, folder: Folder, offset: int) -> Piece:
        producer = self._draw.choice(sorted(folder.open()) or sorted(folder.epochs))
        folder.epochs[producer] += self._draw.randrange(2)  # newer brokers raise it with every marker
        key = struct.pack(">hh", 0, self._draw.randrange(2))
        made = Batch(
            (Record(key=key, value=struct.pack(">hi", 0, 1)),),
            base_offset=offset,
            flags=TRANSACTIONAL | CONTROL,
            producer_id=producer,
            producer_epoch=folder.epochs[producer],
        )
        return Piece(offset, offset, made.encode(), made, ends=producer)

    def cleaned(self, pieces: list[Piece]) -> list[Piece]:
        """What the log cleaner leaves of these batches; the last one stays, if only its header."""
        kept = []
        for place, piece in enumerate(pieces):
            if piece.ends is not None:
                kept.append(piece)
            elif piece.made is not None:
                kept += self._thinned(piece, is_last=place == len(pieces) - 1)
            elif self._draw.random() < 0.6:
                kept.append(piece)
        return kept

    def _thinned(self, piece: Piece, is_last: bool) -> list[Piece]:
        made = piece.made
        assert made is not None
        records = [replace(r, offset_delta=d) for r, d in zip(made.records, made.deltas(), strict=True)]
        left = [record for record in records if self._draw.random() < 0.6]
        if len(left) == len(records):
            return [piece]
        if not left and not is_last:
            return []
        codec = made.codec if left else 0
        thin = replace(made, records=tuple(left), codec=codec, last_offset_delta=piece.last - piece.first)
        return [replace(piece, data=thin.encode(), made=thin)]

"""A segment that is put together from ranges of other segments, whose bytes stay where they are.

A file of JSON next to the segment's name lists them: ``files``, the URIs of what they are taken from; and
``pieces``, in the order of their bytes: number of the file, position in it, size in bytes, and in hex what
stands in the place of the piece's first bytes, null for nothing.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kafka_log_lake.udfs.storage.byte_source import (
    ByteSource,
    SourceChanged,
    SourceUnreadable,
    UnreadableRange,
)

_OPEN = 4  # sources that are open at a time


class Piece(NamedTuple):
    """A range of a segment. head: what replaces its first bytes."""

    uri: str
    position: int
    size: int
    head: bytes = b""


def pieces_text(pieces: Sequence[Piece]) -> str:
    """Returns the JSON text of the file that lists the pieces."""
    numbers: dict[str, int] = {}
    rows = [
        [numbers.setdefault(piece.uri, len(numbers)), piece.position, piece.size, piece.head.hex() or None]
        for piece in pieces
    ]
    return json.dumps({"files": list(numbers), "pieces": rows})


def read_pieces(path: str) -> list[Piece]:
    """Reads the pieces that a file lists. Raises a SourceError where it can't be read."""
    try:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        files = stored["files"]
        return [
            Piece(files[number], position, size, bytes.fromhex(head or ""))
            for number, position, size, head in stored["pieces"]
        ]
    except FileNotFoundError as error:
        raise SourceChanged("it can't be opened: its list of pieces is gone") from error
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise SourceUnreadable(f"its list of pieces can't be read: {error}") from error


class PiecesSource:
    """The bytes of a segment that is put together from pieces, as a ``ByteSource``."""

    def __init__(self, pieces: Sequence[Piece], open_source: Callable[[str], ByteSource]) -> None:
        """Takes the pieces in order, and the function that opens by its URI what they are taken from."""
        self._pieces, self._open_source = pieces, open_source
        self._ends = np.cumsum([piece.size for piece in self._pieces], dtype=np.int64)
        self._open: OrderedDict[str, ByteSource] = OrderedDict()

    def size(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read_into(self, position: int, view: np.ndarray) -> int:
        done = 0
        while done < len(view) and position + done < self.size():
            piece, at = self._piece(position + done)
            part = view[done : done + piece.size - at]
            got = self._source(piece).read_into(piece.position + at, part)
            if got < len(part):
                raise SourceChanged(f"{piece.uri} ends at byte {piece.position + at + got}")
            if at < len(piece.head):
                head = np.frombuffer(piece.head, dtype=np.uint8)[at : at + len(part)]
                part[: len(head)] = head
            done += len(part)
        return done

    def _piece(self, position: int) -> tuple[Piece, int]:
        """Returns the piece that holds the byte at ``position``, and the byte's place in it."""
        number = int(np.searchsorted(self._ends, position, side="right"))
        piece = self._pieces[number]
        return piece, position - int(self._ends[number]) + piece.size

    def _source(self, piece: Piece) -> ByteSource:
        source = self._open.pop(piece.uri, None) or self._open_source(piece.uri)
        self._open[piece.uri] = source
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)[1].close()
        return source

    def unreadable(self, position: int, end: int) -> list[UnreadableRange]:
        ranges: list[UnreadableRange] = []
        while position < min(end, self.size()):
            piece, at = self._piece(position)
            begin, size = piece.position + at, min(piece.size - at, end - position)
            for range_ in self._source(piece).unreadable(begin, begin + size):
                first = max(range_.position, begin)
                size_here = min(range_.position + range_.size, begin + size) - first
                ranges.append(replace(range_, position=position + first - begin, size=size_here))
            position += size
        return ranges

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

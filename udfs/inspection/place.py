"""A place in a segment, and the batches next to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from udfs.format import layout as f
from udfs.kernels.framing import BATCH, read_header
from udfs.source.byte_source import ByteSource


class Neighbour(NamedTuple):
    """A batch before or behind. base_offset: as stored, of magic 0 and 1 that of the batch itself."""

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    is_sound: bool


@dataclass(frozen=True)
class Place:
    """Where to look. end: where a damaged range ends, as far as headers tell.

    first_offset: of the segment, by its name; -1 unknown. epoch_at: the leader's epoch at an offset, by the
    epoch file next to the segment; -1 unknown.
    """

    position: int
    end: int
    before: Neighbour | None = None
    after: Neighbour | None = None
    first_offset: int = -1
    epoch_at: Callable[[int], int] = lambda _: -1


def read(source: ByteSource, position: int, size: int) -> np.ndarray:
    """uint8: the bytes of a segment, fewer at its end."""
    data = np.empty(max(0, size), dtype=np.uint8)
    return data[: source.read_into(position, data)]


def header_of(data: np.ndarray, position: int) -> np.void:
    """BATCH: of the batch that ``data`` (uint8) holds; of a header that is not whole the rest is zeros."""
    head = np.zeros(f.V2_HEADER_SIZE, dtype=np.uint8)
    head[: min(len(head), len(data))] = data[: len(head)]
    row = np.zeros(1, dtype=BATCH)
    read_header(head, 0, len(data), position, row[0])
    e: np.void = row[0]
    return e

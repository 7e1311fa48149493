"""A slice of a segment opened in a worker process, and what the header of a batch that is cut says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from pipelines.plan.slices import Slice
from udfs.format import layout as f
from udfs.kernels.framing import BATCH, UNKNOWN_OFFSET, batch_size, read_header
from udfs.source.byte_source import ByteSource, SourceError, open_source, read_at
from udfs.spark.protocol import SliceReport
from udfs.spark.task_input import problem_of

Found = TypeVar("Found")


def read_slice(
    slice_: Slice, read: Callable[[ByteSource, SliceReport], Found], failed: Callable[[SliceReport], Found]
) -> Found:
    """What ``read`` gives of the open segment; of ``failed`` where it can't be opened or read.

    read: gets a report without totals. failed: gets one with the problem.
    """
    report = SliceReport(slice_.group_id, slice_.segment.segment, slice_.start)
    try:
        source = open_source(slice_.segment.uri, slice_.stop)
        try:
            return read(source, report)
        finally:
            source.close()
    except SourceError as error:
        return failed(replace(report, problem=problem_of(error), detail=str(error)))


def claimed_by_torn(source: ByteSource, position: int, length: int) -> tuple[int, int] | None:
    """First and last offset by the header of a batch that is cut; None where they are not in it."""
    head = np.zeros(f.V2_HEADER_SIZE, dtype=np.uint8)
    got = read_at(source, position, head, length)
    if got < f.HEADER_UP_TO_MAGIC or (head[f.MAGIC_POS] == f.MAGIC_V2 and got < len(head)):
        return None
    row = np.zeros(1, dtype=BATCH)
    read_header(head, 0, max(int(batch_size(head, 0, got)), 0), position, row[0])
    first, last = int(row["base_offset"][0]), int(row["last_offset"][0])
    return (last if first == UNKNOWN_OFFSET else first), last

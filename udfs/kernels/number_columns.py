"""Fills the columns of numbers: from the lines of each row, and what is constant in a batch as runs."""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels import arena as a
from kafka_log_lake.udfs.kernels import record_cursor as c
from kafka_log_lake.udfs.kernels.arena import part_of, set_bits
from kafka_log_lake.udfs.kernels.framing import increment_sequence
from kafka_log_lake.udfs.kernels.jit import inlined, int64, kernel

_MOST = (1 << 63) - 1


@kernel
def _fill_offsets(lines: np.ndarray, offset: np.ndarray, size: np.ndarray, filled: np.ndarray) -> None:
    """Writes offset (int64) and size (int32) of each row, if requested, and the bounds of the offsets."""
    n = filled["rows"]
    lowest, highest = lines[c.LINE_OFFSET, 0], lines[c.LINE_OFFSET, 0]
    for i in range(n):
        value = lines[c.LINE_OFFSET, i]
        lowest = min(lowest, value)
        highest = max(highest, value)
    filled["min_offset"], filled["max_offset"] = lowest, highest
    if len(offset):
        for i in range(n):
            offset[i] = lines[c.LINE_OFFSET, i]
    if len(size):
        for i in range(n):
            size[i] = lines[c.LINE_SIZE, i]


@inlined
def _is_null(timestamp: int) -> bool:
    return timestamp == f.NO_TIMESTAMP or timestamp < f.MIN_TIMESTAMP_MS or timestamp > f.MAX_TIMESTAMP_MS


@kernel
def _fill_timestamps(
    lines: np.ndarray,
    milliseconds: np.ndarray,
    microseconds: np.ndarray,
    valid: np.ndarray,
    filled: np.ndarray,
) -> None:
    """Writes each row's timestamp in ms, in us (null: none, or outside SQL's range), and bounds of these."""
    n = filled["rows"]
    earliest, latest, nulls = _MOST, -_MOST, 0
    for i in range(n):
        timestamp = lines[c.LINE_TIMESTAMP, i]
        null = _is_null(timestamp)
        nulls += null
        earliest = min(earliest, _MOST if null else timestamp * 1000)
        latest = max(latest, -_MOST if null else timestamp * 1000)
    filled["null_timestamps"] = nulls
    filled["min_timestamp"], filled["max_timestamp"] = earliest, latest
    if len(milliseconds):
        for i in range(n):
            milliseconds[i] = lines[c.LINE_TIMESTAMP, i]
    if len(microseconds):
        for i in range(n):
            microseconds[i] = lines[c.LINE_TIMESTAMP, i] * 1000
        if nulls:
            valid[:] = 255
            for i in range(n):
                if _is_null(lines[c.LINE_TIMESTAMP, i]):
                    a.unset_bit(valid, 0, i)
                    microseconds[i] = 0


@inlined
def _run(column: np.ndarray, begin: int, end: int, value: int) -> None:
    """Writes the same value to the rows from ``begin`` to ``end``, if the column is requested."""
    if len(column):
        column[begin:end] = value


@kernel
def _fill_sequences(lines: np.ndarray, sequence: np.ndarray, begin: int, end: int, e: np.void) -> None:
    """Writes the sequence (int32) of each row of a batch; -1 where it has none."""
    if e["magic"] != f.MAGIC_V2 or e["base_sequence"] < 0:
        sequence[begin:end] = f.NO_SEQUENCE
        return
    first, base = int64(e["base_sequence"]), e["base_offset"]
    for i in range(begin, end):
        sequence[i] = increment_sequence(first, lines[c.LINE_OFFSET, i] - base)


@kernel
def _fill_runs(
    batches: np.ndarray, lines: np.ndarray, arena: np.ndarray, at: np.ndarray, filled: np.ndarray
) -> None:
    """Writes columns that are constant in a batch, and sequences, a run of rows at a time."""
    magic = part_of(arena, at, a.MAGIC).view(np.int8)
    kind = part_of(arena, at, a.TIMESTAMP_TYPE).view(np.int32)
    position = part_of(arena, at, a.POSITION).view(np.int64)
    producer = part_of(arena, at, a.PRODUCER_ID).view(np.int64)
    producer_epoch = part_of(arena, at, a.PRODUCER_EPOCH).view(np.int16)
    leader = part_of(arena, at, a.LEADER_EPOCH).view(np.int32)
    sequence = part_of(arena, at, a.SEQUENCE).view(np.int32)
    transactional = part_of(arena, at, a.TRANSACTIONAL)
    control = part_of(arena, at, a.CONTROL)
    transactional[:] = 0
    control[:] = 0
    begin, n = 0, filled["rows"]
    for k in range(len(batches)):
        e = batches[k]
        if e["fault"] or e["record_count"] == 0:
            continue
        end = min(begin + int64(e["record_count"]), n)  # of a batch in chunks only n rows are there
        _run(magic, begin, end, e["magic"])
        _run(kind, begin, end, e["timestamp_type"])
        _run(position, begin, end, e["position"])
        _run(producer, begin, end, e["producer_id"])
        _run(producer_epoch, begin, end, e["producer_epoch"])
        _run(leader, begin, end, e["leader_epoch"])
        if len(sequence):
            _fill_sequences(lines, sequence, begin, end, e)
        if e["magic"] == f.MAGIC_V2:
            if e["attributes"] & f.TRANSACTIONAL_MASK and len(transactional):
                set_bits(transactional, begin, end)
            if e["attributes"] & f.CONTROL_MASK:
                filled["controls"] += end - begin
                if len(control):
                    set_bits(control, begin, end)
        begin = end


@kernel
def fill_numbers(
    batches: np.ndarray, lines: np.ndarray, arena: np.ndarray, at: np.ndarray, filled: np.ndarray
) -> None:
    """Fills the columns of numbers of an arena (uint8), laid out by ``at``, for the rows of ``batches``.

    ``lines``: from ``new_lines``; without any, nothing is filled. ``filled``: a row of FILLED, whose rows are
    read; its nulls and bounds are written.
    """
    if filled["rows"] == 0 or lines.shape[1] == 0:
        return
    offset = part_of(arena, at, a.OFFSET).view(np.int64)
    _fill_offsets(lines, offset, part_of(arena, at, a.SIZE).view(np.int32), filled)
    milliseconds = part_of(arena, at, a.TIMESTAMP_MS).view(np.int64)
    microseconds = part_of(arena, at, a.TIMESTAMP).view(np.int64)
    _fill_timestamps(lines, milliseconds, microseconds, part_of(arena, at, a.TIMESTAMP_VALID), filled)
    _fill_runs(batches, lines, arena, at, filled)
    part_of(arena, at, a.CONTROL_TYPE_VALID)[:] = 0
    part_of(arena, at, a.CONTROL_TYPES)[:] = 0

"""Counts batches and records in the totals of what was decoded."""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.decoder.decoded import Totals
from kafka_log_lake.udfs.kernels import framing
from kafka_log_lake.udfs.kernels.record_builder import Built


def add_batches(totals: Totals, batches: np.ndarray) -> dict[str, int]:
    """Adds batches, in their order, to ``totals``; returns their SUMS by name."""
    sums = np.zeros(1, dtype=framing.SUMS)
    framing.sum_up(batches, sums)
    total = dict(zip(sums.dtype.names or (), sums[0].item(), strict=True))
    if not len(batches):
        return total
    totals.batches += len(batches)
    totals.sound_bytes += total["sound_bytes"]
    totals.transactional += total["transactional"]
    totals.last_position = int(batches["position"][-1])
    if total["counted"]:
        first, regressions = total["first_offset"], total["regressions"]
        if totals.end_offset is not None and first <= totals.end_offset:
            regressions += 1
        if totals.first_base_offset is None:
            totals.first_base_offset = first
        totals.end_offset = total["last_offset"]
        totals.offset_regressions += regressions
    return total


def add_records(totals: Totals, built: Built) -> None:
    """Adds built records to ``totals``.

    Without columns only their number is known: nobody has read their offsets and timestamps.
    """
    filled = dict(zip(built.filled.dtype.names or (), built.filled[0].item(), strict=True))
    totals.records += filled["rows"]
    if built.records is None:
        return
    earliest, latest = filled["min_timestamp"], filled["max_timestamp"]
    times = (earliest, latest) if earliest <= latest else (None, None)
    totals.add_bounds(filled["min_offset"], filled["max_offset"], *times)

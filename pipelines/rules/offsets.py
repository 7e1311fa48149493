"""Finds the order of the offsets of logs, from a lake's tables: ``udfs.batches.offsets`` over Arrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.rules.files import Files
from kafka_log_lake.udfs.batches.offsets import RUN, Order, order
from kafka_log_lake.udfs.batches.retention import COMPACTED_TOPICS
from kafka_log_lake.udfs.compute import pc

# Columns of the sound batches, and of quarantine, that decide
BATCH_COLUMNS = (
    *("segment", "position", "base_offset", "last_offset", "record_count", "delete_horizon_ms"),
    "status",
)
PLACE_COLUMNS = ("segment", "position")


def orders_of(
    files: Files, batches: pa.Table, quarantine: pa.Table, unread: Mapping[str, Collection[int]]
) -> Iterator[tuple[int, Order]]:
    """Yields the number of each log, and the order of its offsets.

    batches: BATCH_COLUMNS of all sound batches of the files. quarantine: PLACE_COLUMNS of all damaged ranges.
    unread: partition_dir -> base offsets of files that are there and were not decoded.
    """
    runs, file = _runs(files, batches)
    damaged = files.numbers(quarantine.column("segment"))
    damaged_at = quarantine.column("position").to_numpy()
    is_left_out = pc.fill_null(pc.less(files.rows.column("left_out"), 0), False).to_numpy()
    ends = np.append(np.flatnonzero(np.diff(files.log)) + 1, len(files.log))
    begin = 0
    for log, end in enumerate(ends.tolist()):
        here = (damaged >= begin) & (damaged < end)
        places = np.stack([files.base[damaged[here]], damaged_at[here]], axis=1)
        covered = [*files.base[begin:end][is_left_out[begin:end]].tolist()]
        covered += unread.get(files.logs.column("partition_dir")[log].as_py(), ())
        low, high = np.searchsorted(file, [begin, end])
        every = sorted({*files.base[begin:end].tolist(), *covered})
        all_runs = with_undecoded(runs[low:high], covered, every)
        all_runs["damages"] = ranges_before(all_runs, places)
        is_compacted = files.logs.column("topic")[log].as_py() in COMPACTED_TOPICS
        yield log, order(all_runs, int(here.sum()), (every[0], every[-1]), is_compacted)
        begin = end


def with_undecoded(runs: np.ndarray, covered: Collection[int], every: list[int]) -> np.ndarray:
    """Returns RUN: the runs, and one for each file that was not decoded, in the order of the files.

    covered: base offsets of these files. every: the base offsets of all files, rising.
    """
    limits = dict(pairwise(every))
    added = np.zeros(len(covered), dtype=RUN)
    for run, base in zip(added, sorted(covered), strict=True):
        last = limits.get(base, base) - 1
        run["file_base"], run["first"], run["last"], run["last_base"] = base, base, last, base
        run["first_last"] = last
        run["file_limit"] = limits.get(base, np.iinfo(np.int64).max)
    merged = np.concatenate([runs, added])
    result: np.ndarray = merged[np.lexsort((merged["position"], merged["file_base"]))]
    return result


def ranges_before(runs: np.ndarray, damaged: np.ndarray) -> np.ndarray:
    """Returns int64[n]: the number of damaged ranges before each run.

    damaged: int64[m, 2], file_base and position of each.
    """
    return places_before(np.stack([runs["file_base"], runs["position"]], axis=1), damaged)


def places_before(places: np.ndarray, damaged: np.ndarray) -> np.ndarray:
    """Returns int64[n]: the number of damaged ranges before each place.

    places, damaged: int64[n, 2], file and position in it.
    """
    is_damage = np.arange(len(places) + len(damaged)) >= len(places)
    file, position = np.concatenate([places, damaged]).T
    in_order = np.lexsort((~is_damage, position, file))
    counted = np.empty(len(in_order), dtype=np.int64)
    counted[in_order] = np.cumsum(is_damage[in_order])
    result: np.ndarray = counted[: len(places)]
    return result


def _runs(files: Files, batches: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Returns RUN[n], a run a batch, and the file of each, in the order of the files."""
    file, position = files.numbers(batches.column("segment")), batches.column("position").to_numpy()
    in_order = np.lexsort((position, file))
    runs = np.zeros(len(file), dtype=RUN)
    last = batches.column("last_offset").to_numpy()
    first = pc.coalesce(batches.column("base_offset"), batches.column("last_offset")).to_numpy()
    runs["file_base"], runs["file_limit"] = files.base[file], files.limit[file]
    runs["position"], runs["first"], runs["last"] = position, first, np.maximum(first, last)
    runs["last_base"], runs["first_last"] = first, runs["last"]
    span = np.where(first >= 0, runs["last"] - first, -1)
    has_horizon = batches.column("delete_horizon_ms").is_valid().to_numpy()
    is_ok = pc.equal(batches.column("status"), "ok").to_numpy(zero_copy_only=False)
    runs["is_cleaned"] = is_ok & (has_horizon | (span >= batches.column("record_count").to_numpy()))
    runs["batches"] = 1
    return runs[in_order], file[in_order]

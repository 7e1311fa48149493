"""Scans slices of segments in worker processes, until the slices of each segment fit together."""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

from pipelines.execute.verdicts import chain_break
from pipelines.plan.slices import Segment, Slice, make_slices, whole
from pipelines.scanning.slice_scan import SliceScan, scan_slice

OnScanned = Callable[[int], None]  # called with the bytes of each scanned slice
Map = Callable[[Callable[[Slice], SliceScan], Sequence[Slice]], Iterator[SliceScan]]


def scan_segments(
    segments: Sequence[Segment], processes: int, slice_bytes: int, limit: int, on_scanned: OnScanned
) -> Iterator[tuple[Segment, list[SliceScan]]]:
    """Each segment with its slices in order.

    processes: those that scan, at most. limit: bytes that a batch may decompress to.
    """
    slices = make_slices(segments, slice_bytes)
    workers = max(1, min(processes, len(slices)))
    with _workers(workers) as run:
        scans = _by_segment(_scan(run, slices, limit, on_scanned))
        broken = [s for s in segments if _is_broken(s, scans[s.segment])]
        scans |= _by_segment(_scan(run, whole(broken, 0), limit, on_scanned))
    for segment in segments:
        yield segment, scans[segment.segment]


@contextmanager
def _workers(number: int) -> Iterator[Map]:
    """A ``map`` that runs in worker processes, or in this process if one is enough."""
    if number == 1:
        yield map
        return
    with process_pool(number) as executor:
        yield lambda function, slices: executor.map(function, slices, chunksize=_chunk(len(slices)))


def process_pool(number: int) -> ProcessPoolExecutor:
    """Worker processes. A forked one shares the kernels that are loaded in this process."""
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    return ProcessPoolExecutor(number, multiprocessing.get_context(method))


def _scan(run: Map, slices: Sequence[Slice], limit: int, on_scanned: OnScanned) -> Iterator[SliceScan]:
    ordered = sorted(slices, key=lambda s: s.start - s.stop)  # the largest first
    scans = run(partial(scan_slice, max_batch_uncompressed=limit), ordered)
    for slice_, scan in zip(ordered, scans, strict=True):
        on_scanned(slice_.stop - slice_.start)
        yield scan


def _chunk(slices: int) -> int:
    """Slices that a process gets at a time: more if there are many."""
    return max(1, min(32, slices // 64))


def _by_segment(scans: Iterable[SliceScan]) -> dict[str, list[SliceScan]]:
    by_segment: dict[str, list[SliceScan]] = defaultdict(list)
    for scan in scans:
        by_segment[scan.report.segment].append(scan)
    for of_segment in by_segment.values():
        of_segment.sort(key=lambda scan: scan.report.start)
    return by_segment


def _is_broken(segment: Segment, scans: list[SliceScan]) -> bool:
    reports = [scan.report for scan in scans]
    return not any(r.problem for r in reports) and chain_break(segment, reports) is not None

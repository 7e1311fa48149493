"""Scans slices of segments in worker processes or tasks, until the slices of each segment fit together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

from kafka_log_lake.pipelines.engine.pool import Map, WorkerPool
from kafka_log_lake.pipelines.plan.slices import Segment, Slice, make_slices, whole
from kafka_log_lake.pipelines.tasks.verdicts import chain_break
from kafka_log_lake.udfs.spark.protocol import SliceReport

ALONE_BYTES = 1 << 20  # of segments that one process reads before another has started

OnScanned = Callable[[int], None]  # called with the bytes of each scanned slice


class OfSlice(Protocol):
    """The base of what scanning a slice gives."""

    @property
    def report(self) -> SliceReport: ...


Scan = TypeVar("Scan", bound=OfSlice)


def scan_segments(
    segments: Sequence[Segment],
    processes: int,
    slice_bytes: int,
    on_scanned: OnScanned,
    scan: Callable[[Slice], Scan],
    run: Map | None = None,
) -> Iterator[tuple[Segment, list[Scan]]]:
    """Yields each segment with the scans of its slices in order.

    processes: those that scan, at most. scan: what is done with a slice. run: what does it elsewhere; None
    for processes of this machine.
    """
    slices = make_slices(segments, slice_bytes)
    with scan_workers(slices, processes) if run is None else nullcontext(run) as mapped:
        scans = _by_segment(_scan(mapped, scan, slices, on_scanned))
        broken = [s for s in segments if _is_broken(s, scans[s.segment])]
        scans |= _by_segment(_scan(mapped, scan, whole(broken, 0), on_scanned))
    for segment in segments:
        yield segment, scans[segment.segment]


@contextmanager
def scan_workers(slices: Sequence[Slice], processes: int) -> Iterator[Map]:
    """Yields a ``map`` that runs in worker processes, or in this process if one is enough for the slices."""
    size = sum(s.stop - s.start for s in slices)
    number = 1 if size < ALONE_BYTES else max(1, min(processes, len(slices)))
    if number == 1:
        yield map
        return
    with WorkerPool(number, is_forked=True) as pool:

        def run(function: Callable[[Any], Any], items: Iterable[object]) -> Iterator[Any]:
            given = list(items)
            # more at a time where there are many
            return pool.map(function, given, together=max(1, min(32, len(given) // 64)))

        yield run


def _scan(
    run: Map, work: Callable[[Slice], Scan], slices: Sequence[Slice], on_scanned: OnScanned
) -> Iterator[Scan]:
    ordered = sorted(slices, key=lambda s: s.start - s.stop)  # the largest first
    scans = run(work, ordered)
    for slice_, scan in zip(ordered, scans, strict=True):
        on_scanned(slice_.stop - slice_.start)
        yield scan


def _by_segment(scans: Iterable[Scan]) -> dict[str, list[Scan]]:
    by_segment: dict[str, list[Scan]] = defaultdict(list)
    for scan in scans:
        by_segment[scan.report.segment].append(scan)
    for of_segment in by_segment.values():
        of_segment.sort(key=lambda scan: scan.report.start)
    return by_segment


def _is_broken(segment: Segment, scans: Sequence[OfSlice]) -> bool:
    reports = [scan.report for scan in scans]
    return not any(r.problem for r in reports) and chain_break(segment, reports) is not None

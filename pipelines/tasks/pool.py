"""Scans slices of segments in worker processes or tasks, until the slices of each segment fit together."""

from __future__ import annotations

import ctypes
import multiprocessing
import pickle
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from kafka_log_lake.pipelines.plan.slices import Segment, Slice, make_slices, whole
from kafka_log_lake.pipelines.tasks.verdicts import chain_break
from kafka_log_lake.udfs.spark.protocol import SliceReport

if TYPE_CHECKING:
    from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand

ALONE_BYTES = 1 << 20  # of segments that one process reads before another has started
_PR_SET_PDEATHSIG = 1  # linux/prctl.h

OnScanned = Callable[[int], None]  # called with the bytes of each scanned slice


class OfSlice(Protocol):
    """The base of what scanning a slice gives."""

    @property
    def report(self) -> SliceReport: ...


Scan = TypeVar("Scan", bound=OfSlice)
# Gives what a function gives for each item, in their order; the function and the items can be pickled
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


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
    size = sum(s.stop - s.start for s in slices)
    workers = 1 if size < ALONE_BYTES else max(1, min(processes, len(slices)))
    with _workers(workers) if run is None else nullcontext(run) as mapped:
        scans = _by_segment(_scan(mapped, scan, slices, on_scanned))
        broken = [s for s in segments if _is_broken(s, scans[s.segment])]
        scans |= _by_segment(_scan(mapped, scan, whole(broken, 0), on_scanned))
    for segment in segments:
        yield segment, scans[segment.segment]


@contextmanager
def _workers(number: int) -> Iterator[Map]:
    """Yields a ``map`` that runs in worker processes, or in this process if one is enough."""
    if number == 1:
        yield map
        return
    with WorkerPool(number) as executor:

        def run(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
            given = list(items)
            # more at a time where there are many
            chunk = max(1, min(32, len(given) // 64))
            return executor.map(partial(_unless_ended, function), given, chunksize=chunk)

        yield run


def stage_of(
    function: Callable[[Any], Any],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes a stage of Spark or of a worker from a function: rows (number, item) -> (number, result).

    Items and results are pickled.
    """

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, item in zip(*batch.to_pydict().values(), strict=True):
                result = pickle.dumps(function(pickle.loads(item)))
                yield pa.RecordBatch.from_pydict(
                    {"number": pa.array([number], pa.int32()), "result": pa.array([result], pa.binary())}
                )

    return stage


def task_map(on_demand: SparkOnDemand) -> Map:
    """Returns a ``map`` over tasks of Spark, or over worker processes where the job has these.

    The function is one that workers can import, what it takes and gives can be pickled.
    """

    def run(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        pickled = [pickle.dumps(item) for item in items]
        if not pickled:
            return iter(())
        tasks = [
            pa.table({"number": pa.array([number], pa.int32()), "item": pa.array([item], pa.binary())})
            for number, item in enumerate(pickled)
        ]
        done = on_demand.run_stage(partial(stage_of, function), tasks, "number int, result binary")
        return (pickle.loads(one) for one in done.sort_by("number").column("result").to_pylist())

    return run


class WorkerPool(ProcessPoolExecutor):
    """Runs functions in worker processes. A forked one shares the kernels that this process has loaded."""

    def __init__(self, number: int) -> None:
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
        context = multiprocessing.get_context(method)
        self._ended = context.Event()
        super().__init__(number, context, _begin, (self._ended,))

    def __exit__(self, *_: object) -> None:
        """Ends the processes; tasks that look at ``is_ended`` end early."""
        self._ended.set()
        self.shutdown(cancel_futures=True)


_ended: Event | None = None  # of the pool that this process works for


def is_ended() -> bool:
    """Says whether nobody waits any more for what this worker process does."""
    return _ended is not None and _ended.is_set()


def _unless_ended(function: Callable[[Any], Any], item: Any) -> Any:
    if is_ended():
        raise CancelledError
    return function(item)


def _begin(ended: Event) -> None:
    """Notes what ``is_ended`` looks at, and makes Linux end this worker when its parent is killed.

    Ctrl-C reaches each process of a terminal. The parent ends the workers: one that is interrupted itself may
    keep the lock of the results, for which the others would wait for ever.
    """
    global _ended
    _ended = ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


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

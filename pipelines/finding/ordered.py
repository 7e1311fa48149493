"""Runs work on slices in worker processes and gives what they find in the order of the log.

A slice that begins within a segment looks for its first batch. Where that is not the batch at which the slice
before it ended, the slice is searched again from there: so slices give what one search of the segment gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

from pipelines.finding.slice_search import Found, search_each
from pipelines.plan.slices import Slice
from pipelines.scanning.pool import WorkerPool

Work = Callable[[Slice], Found]
_AHEAD = 2  # tasks that wait for each process


class _Late(Future[list[Found]]):
    """A task that this process runs when its result is requested."""

    def __init__(self, work: Work, slices: tuple[Slice, ...]) -> None:
        super().__init__()
        self._task = work, slices

    def result(self, timeout: float | None = None) -> list[Found]:
        return search_each(*self._task)


class Workers:
    """Worker processes; without a pool this process, if one is enough."""

    def __init__(self, number: int, pool: WorkerPool | None = None) -> None:
        self._number, self._pool, self._is_first = number, pool, True

    def _submit(self, work: Work, slices: tuple[Slice, ...]) -> Future[list[Found]]:
        """Runs the first task here, which loads the kernels that forked processes then share."""
        if self._pool is None:
            return _Late(work, slices)
        if not self._is_first:
            return self._pool.submit(search_each, work, slices)
        self._is_first = False
        done: Future[list[Found]] = Future()
        done.set_result(search_each(work, slices))
        return done

    def in_order(
        self, tasks: Iterable[tuple[Work, tuple[Slice, ...]]], done: Collection[str] = ()
    ) -> Iterator[Found]:
        """What work on each slice finds. tasks: taken when a process will soon be free.

        done: partition folders of which no more is wanted; whoever takes the results may add to it.
        """
        source, waiting = iter(tasks), deque[tuple[Work, tuple[Slice, ...], Future[list[Found]]]]()
        end: tuple[str, int] | None = None  # the segment of the slice before, and where that ended
        try:
            while True:
                while len(waiting) < self._number * (1 + _AHEAD) and (task := next(source, None)) is not None:
                    waiting.append((*task, self._submit(*task)))
                if not waiting:
                    return
                work, slices, future = waiting.popleft()
                if slices[0].segment.partition_dir in done:
                    future.cancel()
                    continue
                for found in self._all(work, slices, future, done):
                    for one in _fitting(work, found, end):
                        end = one.slice_.segment.uri, _end_of(one)
                        yield one
        finally:
            for _, _, future in waiting:
                future.cancel()

    def _all(
        self, work: Work, slices: tuple[Slice, ...], future: Future[list[Found]], done: Collection[str]
    ) -> Iterator[Found]:
        """What is found in each slice; interrupted ones go on here, as their matches are taken."""
        while slices and slices[0].segment.partition_dir not in done:
            results = future.result()
            yield from results
            last, slices = results[-1], slices[len(results) :]
            if last.rest is not None:
                slices = (_rest_of(last), *slices)
            if slices:
                future = self._submit(work, slices)


def _rest_of(found: Found) -> Slice:
    assert found.rest is not None
    return replace(found.slice_, start=found.rest, exact_start=True)


def _end_of(found: Found) -> int:
    return found.scan.report.totals.end if found.rest is None else found.rest


def _fitting(work: Work, found: Found, end: tuple[str, int] | None) -> Iterator[Found]:
    """What is found in a slice, or in its part behind the slice before, which ended at ``end``."""
    slice_, totals = found.slice_, found.scan.report.totals
    if end is None or end[0] != slice_.segment.uri or slice_.exact_start or found.scan.report.problem:
        yield found
        return
    if end[1] >= slice_.stop:
        return
    if totals.begin == end[1]:
        yield found
        return
    again = replace(slice_, start=end[1], exact_start=True)
    while True:
        found = work(again)
        yield found
        if found.rest is None:
            return
        again = _rest_of(found)


@contextmanager
def workers(number: int) -> Iterator[Workers]:
    """Up to ``number`` processes."""
    if number == 1:
        yield Workers(1)
        return
    with WorkerPool(number) as pool:
        yield Workers(number, pool)

"""Shows the phases of a job while they run, and times them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pyarrow as pa

from kafka_log_lake.pipelines.cli import status
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.pipelines.plan.slices import Segment

_FIRST_RUN, _RUN_SECONDS = 1 << 30, 30.0


class Progress:
    """planned, planned_bytes: segments of the whole job, over all its bounded runs, and what is read of them.
    seconds: phase -> how long it took.
    """

    def __init__(
        self, described: Callable[[str], AbstractContextManager[object]] = lambda name: nullcontext()
    ) -> None:
        """Takes the context that is entered around each phase, by its name.

        Of a stage also by what it reads.
        """
        self._described = described
        self.planned = self.planned_bytes = 0
        self.seconds: dict[str, float] = defaultdict(float)
        self._done: dict[str, int] = {}  # segment -> bytes

    @contextmanager
    def phase(
        self, name: str, detail: Callable[[], str] = lambda: "", description: str = ""
    ) -> Iterator[None]:
        """Shows a phase while the block runs, and adds its time. detail: see ``status.phase``.

        description: what Spark's pages show; the name if it is empty.
        """
        began = time.monotonic()
        try:
            with status.phase(name, detail), self._described(description or name):
                yield
        finally:
            self.seconds[name] += time.monotonic() - began
            pa.default_memory_pool().release_unused()  # what a phase over a million segments freed

    @contextmanager
    def stage(
        self,
        name: str,
        segments: Sequence[Segment],
        finished: AbstractContextManager[Callable[[], float]],
    ) -> Iterator[None]:
        """Shows a phase that is one stage over these segments, with its share of bytes and the time left.

        finished: gives a function for the share of finished tasks. It is taken for the share of bytes:
        tasks hold about the same number of bytes.
        """
        sizes = {s.segment: s.planned_bytes for s in segments}
        size, before = sum(sizes.values()), {**self._done, **dict.fromkeys(sizes, 0)}
        done_bytes, done = sum(before.values()), len(before) - len(sizes)
        began = time.monotonic()

        with finished as finished_share:

            def detail() -> str:
                share = finished_share()
                read = done_bytes + share * size
                every = max(self.planned_bytes, done_bytes + size)
                text = f"{size_text(read)} of {size_text(every)}"
                text += f" ({done + int(share * len(sizes)):,} of {counted_noun(self.planned, 'segment')})"
                rate = share * size / max(time.monotonic() - began, 1e-3)
                return f"{text}, {size_text(rate)}/s, {_left((every - read) / rate)} left" if rate else text

            description = f"{name}: {counted_noun(len(segments), 'segment')}, {size_text(size)}"
            with self.phase(name, detail, description):
                yield
        self._done |= sizes


def _left(seconds: float) -> str:
    """Returns a duration in words, to two figures: 8 s, 2 min 30 s, 1 h 5 min."""
    whole = round(seconds)
    for unit, below, name, smaller in ((3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // below} {smaller}"
    return f"{whole} s"


class Pace:
    """The number of bytes that a bounded run takes, so that a killed job has to do little again.

    most: the upper bound. limit: of the next run; about as many bytes as half a minute takes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.limit = min(most, _FIRST_RUN)

    def took(self, size: int, seconds: float) -> None:
        """Sets the limit by how long a run took."""
        self.limit = min(self._most, max(_FIRST_RUN, int(size / max(seconds, 0.001) * _RUN_SECONDS)))

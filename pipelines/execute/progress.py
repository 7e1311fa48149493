"""The phases of a job: shown while they run, and timed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pyarrow as pa

from pipelines.command import status
from pipelines.command.tables import size_text
from pipelines.command.terminal import counted_noun
from pipelines.plan.slices import Segment


class Progress:
    """planned: segments of the whole job, over all its bounded runs. seconds: phase -> how long it took."""

    def __init__(
        self, described: Callable[[str], AbstractContextManager[object]] = lambda name: nullcontext()
    ) -> None:
        """described: entered around each phase, with its name; of a stage also what it reads."""
        self._described = described
        self.planned = 0
        self.seconds: dict[str, float] = defaultdict(float)
        self._done: set[str] = set()

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
        """A phase that is one stage over these segments.

        finished: gives a function for the share of finished tasks. It is taken for the share of bytes:
        tasks hold about the same number of bytes.
        """
        size = sum(s.planned_bytes for s in segments)
        before = len(self._done - {s.segment for s in segments})
        began = time.monotonic()

        with finished as finished_share:

            def detail() -> str:
                share = finished_share()
                text = f"{before + int(share * len(segments)):,} of {counted_noun(self.planned, 'segment')}"
                rate = share * size / (time.monotonic() - began)
                return f"{text}, {size_text(rate)}/s" if rate else text

            description = f"{name}: {counted_noun(len(segments), 'segment')}, {size_text(size)}"
            with self.phase(name, detail, description):
                yield
        self._done |= {s.segment for s in segments}

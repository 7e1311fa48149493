"""``--watch``: a job again and again in one process, so that tables follow logs that grow."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kafka_log_lake.pipelines.cli.errors import DamageFound, LakeBusy, UserError, one_line
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.pipelines.plan.runs import Plan

log = logging.getLogger(__name__)

_FAILURES_IN_A_ROW = 3
_INTERVAL = 10.0  # seconds
_LAG_SECONDS = 60.0  # of --commit-bytes alone: what stays small, or does not grow, is decoded some time too


def check_settings(settings: Settings) -> None:
    """Raises a UserError for options that --watch does not go with, or that go with it alone."""
    if settings.watch and settings.redecode:
        raise UserError("--watch would repeat --redecode in every run: leave one of them out")
    if not settings.watch and (settings.commit_bytes, settings.commit_lag) != (None, None):
        raise UserError("--commit-bytes and --commit-lag say when a run of --watch decodes: add --watch")
    if not settings.watch and settings.interval is not None:
        raise UserError("--interval says how long --watch waits between two runs: add --watch")


class Batching:
    """The choice whether a run decodes what it planned or leaves it to a later one: fewer, larger commits.

    It decodes where the new bytes reach ``--commit-bytes``, or where the oldest change has waited for
    ``--commit-lag``; at once without both, and in the first run of a process, whose changes may have waited
    long. Nothing is kept of what waits but the time: the next run lists and plans it again.

    clock: seconds that only rise. They count from the run that found a change: times of files are of another
    clock, and the log cleaner keeps them.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = math.inf if settings.commit_bytes is None else settings.commit_bytes
        alone = 0.0 if settings.commit_bytes is None else _LAG_SECONDS
        self._lag = alone if settings.commit_lag is None else settings.commit_lag
        self._clock = clock
        # When the oldest change was found that is not decoded; what a first run finds may have waited long
        self._since: float | None = -math.inf
        self._left: tuple[int, int] | None = None  # segments and new bytes that the last run left

    def is_due(self, plan: Plan) -> bool:
        """Returns whether a run carries out its plan now, as one without any change does."""
        self._left = None
        if not plan.has_changes:
            return True
        if self._since is None:
            self._since = self._clock()
        new_bytes = plan.new_bytes
        if new_bytes >= self._size or self._clock() - self._since >= self._lag:
            return True
        self._left = plan.planned, new_bytes
        return False

    @property
    def lag(self) -> tuple[int, int, float]:
        """Returns segments and new bytes that the last run left, and seconds since the oldest were found."""
        if self._left is None or self._since is None:
            return 0, 0, 0.0
        return *self._left, self._clock() - self._since

    def done(self) -> None:
        """Notes that a run ended without an error: what it did not leave is decoded."""
        if self._left is None:
            self._since = None

    def tell(self) -> None:
        """Logs what the last run left, when no other follows in this process."""
        if self._left is not None:
            segments, size = self._left
            log.info(
                "not decoded yet: %s of new bytes in %s; the next start decodes them at once",
                size_text(size),
                counted_noun(segments, "segment"),
            )


def watch(run: Callable[[], None], interval: float | None) -> None:
    """Calls ``run`` every ``interval`` seconds (None: 10), until SIGTERM: a call that is running ends first.

    An error of the first call is raised: the arguments may be wrong. Later ones are logged, and the job is
    tried again, until several fail in a row. DamageFound is raised at once. While another job holds the lake
    (``maintain``, say) nothing fails: the calls go on until it ends, and one line says so for each wait.
    """
    with _until_terminated() as stopped:
        failures, is_first, is_waiting = 0, True, False
        while True:
            try:
                run()
                failures, is_first, is_waiting = 0, False, False
            except LakeBusy as error:
                if not is_waiting:
                    log.info("%s: waiting until it ends", error.what)
                is_waiting = True
            except DamageFound:
                raise
            except Exception as error:
                failures, is_waiting = failures + 1, False
                if is_first or failures == _FAILURES_IN_A_ROW:
                    raise
                log.warning("%s; the next run tries again", one_line(error))
            if stopped.wait(_INTERVAL if interval is None else interval):
                return


@contextmanager
def _until_terminated() -> Iterator[threading.Event]:
    """Yields an event that SIGTERM sets while the block runs."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGTERM, before)

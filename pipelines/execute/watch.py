"""``--watch``: a job again and again in one process, so that tables follow logs that grow."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pipelines.command.errors import DamageFound, one_line

log = logging.getLogger(__name__)

_FAILURES_IN_A_ROW = 3


def watch(run: Callable[[], None], interval: float) -> None:
    """Calls ``run`` every ``interval`` seconds, until SIGTERM: a call that is running ends first.

    An error of the first call is raised: the arguments may be wrong. Later ones are logged, and the job is
    tried again, until several fail in a row. DamageFound is raised at once.
    """
    with _until_terminated() as stopped:
        run()
        failures = 0
        while not stopped.wait(interval):
            try:
                run()
                failures = 0
            except DamageFound:
                raise
            except Exception as error:
                failures += 1
                if failures == _FAILURES_IN_A_ROW:
                    raise
                log.warning("%s; the next run tries again", one_line(error))


@contextmanager
def _until_terminated() -> Iterator[threading.Event]:
    """An event that SIGTERM sets while the block runs."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGTERM, before)

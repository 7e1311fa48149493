"""Sets up a process that runs one command and nothing else: how it ends at Ctrl-C and SIGTERM.

Nothing of this happens where the package is imported: the entry points call ``set_up_process`` first.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from importlib.util import find_spec
from itertools import pairwise
from types import FrameType, TracebackType

_ended_by: list[int] = []  # the signal that ends this process, if one does


def is_terminated() -> bool:
    """Returns whether SIGTERM ends this process: then nothing is said of an interruption."""
    return bool(_ended_by)


def set_up_process() -> None:
    """Sets signal handlers and the hook for Ctrl-C, if Python was started for a command of this project.

    spark-submit, Databricks and callers of ``main`` have a process of their own, which is left as it is.
    Exits with 2 and one line where Python lacks the packages.
    """
    is_module = any(
        flag == "-m" and name.partition(".")[0] in ("pipelines", "kafka_log_lake")
        for flag, name in pairwise(sys.orig_argv)
    )
    if not is_module and os.path.basename(sys.argv[0]) != "kafka-log-lake":
        return
    sys.excepthook = _end_quietly_if_interrupted  # until ``exit_code_of`` runs the command: while it imports
    gc.disable()  # until ``run_command`` runs it: modules leave nothing to collect, and looking takes 50 ms
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of NumPy; nothing here multiplies matrices
    signal.signal(signal.SIGTERM, _end_when_terminated)
    atexit.register(_end_by_signal)  # the first that is registered runs last
    if is_module and find_spec("pyarrow") is None:
        print(
            "error: this Python does not have the packages of kafka-log-lake: run `make setup` and use "
            ".venv/bin/python, or install the wheel",
            file=sys.stderr,
        )
        sys.exit(2)


def _end_quietly_if_interrupted(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.exit(130)
    sys.__excepthook__(kind, error, trace)


def _end_when_terminated(number: int, frame: FrameType | None) -> None:
    """Ends the command as an error does, so that it removes its temporary files; then the signal ends it."""
    end_undisturbed()
    if "--watch" not in sys.argv:  # ``watch`` ends with 0
        _ended_by.append(number)
    sys.exit(0)


def end_undisturbed() -> None:
    """Ignores SIGTERM in a process that ends by itself, so that it removes its temporary files."""
    if signal.getsignal(signal.SIGTERM) is _end_when_terminated:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _end_by_signal() -> None:
    for number in _ended_by:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

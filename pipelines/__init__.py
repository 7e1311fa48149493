"""The driver's side, from segment files to tables.

``register(spark, lake)`` makes the functions for SQL, and views of the tables; ``register(spark)`` makes the
functions alone.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from itertools import pairwise


def _end_quietly_if_interrupted(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.exit(130)
    sys.__excepthook__(kind, error, trace)


def _end_when_terminated(number: int, frame: FrameType | None) -> None:
    """Ends the command as an error does, so that it removes its temporary files; then the signal ends it."""
    if "--watch" not in sys.argv:  # ``watch`` ends with 0
        _ended_by.append(number)
    sys.exit(0)


def _end_by_signal() -> None:
    for number in _ended_by:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


_ended_by: list[int] = []  # the signal that ends this process, if one does


def is_terminated() -> bool:
    """Returns whether SIGTERM ends this process: then nothing is said of an interruption."""
    return bool(_ended_by)


# Python looks for the module of a command
_is_module = sys.argv[:1] == ["-m"] and any(
    flag == "-m" and name.partition(".")[0] in ("pipelines", "kafka_log_lake")
    for flag, name in pairwise(sys.orig_argv)
)
if _is_module or [os.path.basename(one) for one in sys.argv[:1]] == ["kafka-log-lake"]:
    sys.excepthook = _end_quietly_if_interrupted  # until ``exit_code_of`` runs the command: while it imports
    gc.disable()  # until ``run_command`` runs it: modules leave nothing to collect, and looking takes 50 ms
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of NumPy; nothing here multiplies matrices
    signal.signal(signal.SIGTERM, _end_when_terminated)
    atexit.register(_end_by_signal)  # the first that is registered runs last
from importlib.util import find_spec  # noqa: E402  # behind the hook, as all that takes time
from types import FrameType, TracebackType  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

if _is_module and find_spec("pyarrow") is None:
    print(
        "error: this Python does not have the packages of kafka-log-lake: run `make setup` and use "
        ".venv/bin/python, or install the wheel",
        file=sys.stderr,
    )
    sys.exit(2)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(
    spark: SparkSession, lake: str | None = None, log: str | None = None, at: str | None = None
) -> None:
    """Creates temporary functions in this session, and temporary views over a lake's tables and views.

    lake: without one the functions alone are created. log: the name of one of several copies, where
    ``--with-copies`` decoded it; None or healed: the lake's own tables, which hold the healed log. at: the id
    of a run or a time, for an earlier state; None for now.
    """
    from pipelines.command.session import check_session

    check_session(spark)
    if lake is None:
        from pipelines.functions.register import register_functions

        register_functions(spark)
        return
    from pipelines.views.register import register as register_views

    register_views(spark, lake, at=at, log=log)

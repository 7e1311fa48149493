"""A run that dies at a chosen point: every point between two things that a run leaves behind.

As a script it is a job that kills itself there with SIGKILL:
``python -m tests.support.dying POINT job arguments...``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from deltalake import DeltaTable

from pipelines.execute.decode import Decoder
from pipelines.lake.commit import Lake
from pipelines.lake.intents import Runs

# point -> what is called there, at which call, and whether death comes before or after it
POINTS: dict[str, tuple[Any, str, int, str]] = {
    "before the stage": (Decoder, "stage", 1, "before"),
    "after the stage": (Decoder, "stage", 1, "after"),
    "before the intent": (Runs, "write", 1, "before"),
    "after the intent": (Runs, "write", 1, "after"),
    "before the ledger": (Lake, "_update_ledger", 1, "before"),
    "after the ledger": (Lake, "_update_ledger", 1, "after"),
    "before the intent goes": (Runs, "remove", 1, "before"),
}
ARROW_POINTS = POINTS | {
    "rows deleted, none added": (DeltaTable, "create_write_transaction", 1, "before"),
    "records added": (DeltaTable, "create_write_transaction", 1, "after"),
    "before batches": (Lake, "_add_files", 2, "before"),
    "before quarantine": (Lake, "_add_files", 3, "before"),
    "after quarantine": (Lake, "_add_files", 3, "after"),
}
SPARK_POINTS = POINTS | {
    "before records": (Lake, "append", 1, "before"),
    "records written": (Lake, "append", 1, "after"),
    "batches added": (Lake, "append", 2, "after"),
    "quarantine added": (Lake, "append", 3, "after"),
}


class DiedError(BaseException):
    """Death within a test's own process: nothing of the job catches it."""


def arrange(point: tuple[Any, str, int, str], die: Callable[[], Any], setattr_: Callable[..., Any]) -> None:
    """Replaces the method of the point by one that dies at its call."""
    owner, name, call, when = point
    original = getattr(owner, name)
    calls = 0

    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            die()
        result = original(*arguments, **options)
        if calls == call and when == "after":
            die()
        return result

    setattr_(owner, name, dying)


def main() -> int:
    from pipelines import decode_batches

    arrange((ARROW_POINTS | SPARK_POINTS)[sys.argv[1]], lambda: os.kill(os.getpid(), signal.SIGKILL), setattr)
    return decode_batches.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())

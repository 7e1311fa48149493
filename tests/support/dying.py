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

from kafka_log_lake.pipelines.decode.decode import Decoder
from kafka_log_lake.pipelines.lake.intents import Intents
from kafka_log_lake.pipelines.lake.path_lake import PathLake

# point -> what is called there, at which call, and whether death comes before or after it
POINTS: dict[str, tuple[Any, str, int, str]] = {
    "before the stage": (Decoder, "_decode", 1, "before"),
    "after the stage": (Decoder, "_decode", 1, "after"),
    "before the intent": (Intents, "write", 1, "before"),
    "after the intent": (Intents, "write", 1, "after"),
    "records added": (PathLake, "replace_rows", 1, "after"),
    "batches added": (PathLake, "replace_rows", 2, "after"),
    "quarantine added": (PathLake, "replace_rows", 3, "after"),
    "transactions added": (PathLake, "replace_computed", 1, "after"),
    "findings added": (PathLake, "replace_computed", 2, "after"),
    "before the ledger": (PathLake, "replace_ledger", 1, "before"),
    "after the ledger": (PathLake, "replace_ledger", 1, "after"),
    "before the intent goes": (Intents, "remove", 1, "before"),
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
    from kafka_log_lake.pipelines import decode_batches

    arrange(POINTS[sys.argv[1]], lambda: os.kill(os.getpid(), signal.SIGKILL), setattr)
    return decode_batches.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())

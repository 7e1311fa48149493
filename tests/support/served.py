"""Jobs in a process of their own, one after the other in one session of Spark.

For what has to be arranged before a process starts: the rights it has, the modules it finds. A job's exit
code and what it prints are those of a separate command.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent.parent


class Jobs:
    """The calling side."""

    def __init__(self, requested: IO[str], reported: IO[str]) -> None:
        self._requested, self._reported = requested, reported

    def run(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs ``python -m module arguments...``."""
        self._requested.write(json.dumps([module, *arguments]) + "\n")
        self._requested.flush()
        code, printed, said = json.loads(self._reported.readline())
        return subprocess.CompletedProcess([module, *arguments], code, printed, said)


@contextmanager
def jobs(command: Sequence[str], **environment: str) -> Iterator[Jobs]:
    """command: a Python that takes ``-m``, in words; environment: variables that it has besides ours."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, "-m", "tests.support.served"],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=pipe,
        stdout=pipe,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Jobs(process.stdin, process.stdout)
        process.stdin.close()
        assert process.wait(60) == 0


def main() -> None:
    from kafka_log_lake.pipelines.cli.settings import Settings
    from kafka_log_lake.pipelines.engine.session import session

    reported = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed is no answer
    with session(Settings(cores=2), only_plans=True):
        for line in sys.stdin:
            module, *arguments = json.loads(line)
            printed, said = io.StringIO(), io.StringIO()
            with redirect_stdout(printed), redirect_stderr(said):
                code = importlib.import_module(module).main(arguments)
            reported.write(json.dumps([code, printed.getvalue(), said.getvalue()]) + "\n")
            reported.flush()


if __name__ == "__main__":
    main()

"""Kills a command at a chosen one of the steps in which it changes files, as SIGKILL does.

As a script: ``python -m tests.support.killed COUNT... -- module arguments...`` runs the command once for each
COUNT in a separate process, which ends before its COUNTth step, and prints how many steps each one took.
Imports are done once, before the processes are forked.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_STEPS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}


def _run(module: str, arguments: list[str], count: int) -> int:
    """Runs the command in a new process; its steps, as far as it came."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        own = os.getpid()

        def step(event: str, values: tuple[Any, ...]) -> None:
            nonlocal count
            is_write = event == "open" and isinstance(values[2], int) and values[2] & _WRITES
            if not (is_write or event in _STEPS) or os.getpid() != own:
                return
            os.write(write, b".")
            count -= 1
            if count == 0:
                os.kill(own, signal.SIGKILL)

        sys.addaudithook(step)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(import_module(module).main(arguments))
    os.close(write)
    steps = 0
    while found := os.read(read, 4096):
        steps += len(found)
    os.waitpid(child, 0)
    return steps


def main() -> None:
    at = sys.argv.index("--")
    module, arguments = sys.argv[at + 1], sys.argv[at + 2 :]
    import_module(module)
    for count in sys.argv[1:at]:
        print(_run(module, arguments, int(count)), flush=True)


if __name__ == "__main__":
    main()

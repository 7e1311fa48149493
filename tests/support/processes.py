"""Reads the processes of this machine from Linux's /proc: their children, their open files, locks."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

PROC = Path("/proc")
A_MOMENT = 0.002  # between two looks at what passes in milliseconds
_LOOKS_A_LISTING = 20  # listing all processes takes longer than many looks at the files of a few
_ENDED = ("Z", "X", "")
_Found = TypeVar("_Found")


def children() -> dict[int, list[int]]:
    """Returns pid -> pids of its children, in ascending order."""
    found: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            state, parent = _state_and_parent(int(entry.name))
            if state:
                found.setdefault(parent, []).append(int(entry.name))
    return {parent: sorted(pids) for parent, pids in found.items()}


def _state_and_parent(pid: int) -> tuple[str, int]:
    """Returns a process's state (``T``: stopped) and its parent's pid; "" and 0 if it has ended."""
    try:
        # pid (name) state parent ...: a name may hold anything, brackets too
        state, parent = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return "", 0
    return state, int(parent)


def descendants(pid: int) -> list[int]:
    """Returns the pids of all processes below this one, parents first."""
    of, found = children(), []
    left = list(of.get(pid, ()))
    while left:
        found.append(left.pop(0))
        left += of.get(found[-1], ())
    return found


def command(pid: int) -> str:
    """Returns the command line of a process; "" if it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_java(pid: int) -> bool:
    return Path(command(pid).split(" ")[0]).name == "java"


def is_executor(pid: int) -> bool:
    return is_java(pid) and "CoarseGrainedExecutorBackend" in command(pid)


def python_workers(pid: int) -> list[int]:
    """Returns the pids of Spark's Python workers below this process, idle ones too."""
    of = children()
    daemons = [
        p
        for p in descendants(pid)
        if re.search(r"-m (pyspark|kafka_log_lake\.udfs\.spark)\.daemon ", command(p))
    ]
    return [child for daemon in daemons for child in of.get(daemon, ()) if child in daemons]


def local_workers(pid: int) -> list[int]:
    """Returns the pids of the worker processes of jobs without Spark below this process."""
    return [p for p in descendants(pid) if "-m kafka_log_lake.udfs.worker" in command(p)]


def open_files(pid: int) -> list[str]:
    """Returns the paths of the files that a process has open."""
    found = []
    for link in _listed(PROC / str(pid) / "fd"):
        try:
            found.append(os.readlink(link))
        except OSError:
            continue
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def has_open(pid: int, folder: Path) -> bool:
    return any(path.startswith(f"{folder}/") for path in open_files(pid))


def is_locked(path: Path) -> bool:
    """Returns whether a process holds a flock on the file; from /proc, as a try would take the lock."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return False
    locks = (PROC / "locks").read_text().splitlines()
    return any("FLOCK" in line and "->" not in line and f":{inode} " in line for line in locks)


def wait_for(look: Callable[[], _Found], alive: Callable[[], bool], every: float = 0.05) -> _Found:
    """Waits until ``look`` returns something true, and returns that; fails after 120 s or if not ``alive()``.

    every: seconds between two looks.
    """
    end = time.monotonic() + 120
    while True:
        was_alive = alive()
        found = look()
        if found:
            return found
        assert was_alive, "the process ended before what was waited for"
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(every)


def stop_a_holder(processes: Callable[[], Sequence[int]], folder: Path, alive: Callable[[], bool]) -> int:
    """Stops one of the processes while it has a file below the folder open; its pid, for the caller to end.

    They run for a moment and are stopped while they are looked at, so a file is seen that is open for
    milliseconds only, however busy the machine is.
    """
    known: Sequence[int] = ()
    looks = 0

    def stopped() -> int:
        nonlocal known, looks
        _stop(known)
        if looks % _LOOKS_A_LISTING == 0:
            known = processes()
            _stop(known)
        looks += 1
        holder = next((p for p in known if has_open(p, folder)), 0)
        send([p for p in known if p != holder], signal.SIGCONT)
        return holder

    return wait_for(stopped, alive, A_MOMENT)


def _stop(pids: Sequence[int]) -> None:
    """Returns when all of them are stopped or have ended: a process takes a signal when it gets its turn."""
    send(pids, signal.SIGSTOP)
    for pid in pids:
        wait_for(lambda pid=pid: _state_and_parent(pid)[0] in ("T", *_ENDED), lambda: True, A_MOMENT)  # type: ignore[misc]


def send(pids: Sequence[int], sent: signal.Signals) -> None:
    """Sends a signal to those processes that still exist."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, sent)


# Root may read and write where the mode forbids it, but for two capabilities, which a process can give up
_AS_ANYBODY = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP: refused to all but root
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def as_anybody(*arguments: str) -> list[str]:
    """Returns a command that runs this Python bound by file permissions, even if the user is root."""
    return [sys.executable, "-c", _AS_ANYBODY, *arguments]

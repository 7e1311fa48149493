"""Python as a worker of Spark on Databricks, on Linux: no HOME, no other names of files, and another user.

Where the tests run as root, that user may read what root may (Python itself may lie in root's home), and
write nothing. ``databricks.py ARGUMENTS`` becomes such a process.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

from tests.support import fuse_mount

_NOBODY = 65534
_VERSION_3 = 0x20080522  # of the structures of capset(2)
_DAC_READ_SEARCH = 2
_SET_KEEP_CAPABILITIES, _AMBIENT, _RAISE = 8, 47, 2


def write_worker(folder: Path) -> str:
    """Writes a program that Spark starts in place of Python for its workers; returns its path."""
    made = folder / "python"
    made.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    made.chmod(0o755)
    return str(made)


def _become_another_user() -> None:
    fuse_mount.prctl(_SET_KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    header, kept = struct.pack("Ii", _VERSION_3, 0), 1 << _DAC_READ_SEARCH
    if ctypes.CDLL(None).capset(header, struct.pack("6I", kept, kept, kept, 0, 0, 0)) != 0:
        raise OSError("capset")
    fuse_mount.prctl(_AMBIENT, _RAISE, _DAC_READ_SEARCH, 0, 0)


if __name__ == "__main__":
    os.environ.pop("HOME", None)
    if os.geteuid() == 0:
        _become_another_user()
    fuse_mount.refuse_other_names()
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])

"""Python as Databricks runs it, on Linux: ``python databricks.py ROLE ARGUMENTS...`` becomes such a process.

No file gets a hard link or another name, as on its FUSE mounts: the kernel refuses these calls in the process
and in all that it starts, deltalake's too. As ``executor`` it has no HOME either, and where the tests run as
root it is another user, who may read what root may (Python itself may lie in root's home), and write nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from pathlib import Path

CLIENT, EXECUTOR = "client", "executor"
_NOBODY = 65534
_DAC_READ_SEARCH = 2
# rename, link, renameat, linkat, renameat2 of Linux, by the machine
_REFUSED = {"x86_64": (82, 86, 264, 265, 316), "aarch64": (38, 37, 276)}
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_SET_KEEP_CAPABILITIES, _SET_SECCOMP, _SET_NO_NEW_PRIVILEGES, _AMBIENT = 8, 22, 38, 47


def command(role: str, *arguments: str) -> list[str]:
    """Returns a command that runs Python in a role; "": as it is."""
    return [sys.executable, *filter(None, [role and __file__, role]), *arguments]


def executors_python(folder: Path) -> Path:
    """Writes a program that Spark starts in place of Python for its workers."""
    made = folder / "python"
    made.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {EXECUTOR} "$@"\n')
    made.chmod(0o755)
    return made


def _call(*arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*map(ctypes.c_ulong, arguments)) != 0:
        raise OSError(ctypes.get_errno(), f"prctl{arguments}")


def _refuse_other_names() -> None:
    """Lets the kernel answer with EOPNOTSUPP, as the mounts do: a program of BPF, see seccomp(2)."""
    numbers = _REFUSED[platform.machine()]
    steps = [(_LOAD, 0, 0, 0)]  # the number of the call
    steps += [(_IF_EQUAL, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EOPNOTSUPP)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    _call(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _call(_SET_SECCOMP, 2, ctypes.addressof(program), 0, 0)


def _become_another_user() -> None:
    _call(_SET_KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    header, kept = struct.pack("Ii", 0x20080522, 0), 1 << _DAC_READ_SEARCH
    if ctypes.CDLL(None).capset(header, struct.pack("6I", kept, kept, kept, 0, 0, 0)) != 0:
        raise OSError("capset")
    _call(_AMBIENT, 2, _DAC_READ_SEARCH, 0, 0)


def main(role: str, *arguments: str) -> None:
    if role == EXECUTOR:
        os.environ.pop("HOME", None)
        if os.geteuid() == 0:
            _become_another_user()
    _refuse_other_names()
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])

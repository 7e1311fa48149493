"""Runs Python where no file gets a hard link or another name, as on FUSE mounts: ``fuse_mount.py ARGUMENTS``.

Linux refuses these calls in the process and in all that it starts, deltalake's and pyarrow's too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

# rename, link, renameat, linkat, renameat2 of Linux, by the machine
_REFUSED = {"x86_64": (82, 86, 264, 265, 316), "aarch64": (38, 37, 276)}
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_SET_SECCOMP, _SET_NO_NEW_PRIVILEGES = 22, 38


def prctl(*arguments: int) -> None:
    """Calls prctl(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*map(ctypes.c_ulong, arguments)) != 0:
        raise OSError(ctypes.get_errno(), f"prctl{arguments}")


def refuse_other_names() -> None:
    """Lets the kernel answer with EOPNOTSUPP, as the mounts do: a program of BPF, see seccomp(2)."""
    numbers = _REFUSED[platform.machine()]
    steps = [(_LOAD, 0, 0, 0)]  # the number of the call
    steps += [(_IF_EQUAL, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EOPNOTSUPP)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    prctl(_SET_SECCOMP, 2, ctypes.addressof(program), 0, 0)


if __name__ == "__main__":
    refuse_other_names()
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])

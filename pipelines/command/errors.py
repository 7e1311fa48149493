"""How a job ends other than well. Each class is an exit code; its message is the one line a person sees."""

from __future__ import annotations

import re


class JobError(Exception):
    """An expected end of a job: one line, no traceback."""

    exit_code = 1


class UserError(JobError):
    """The arguments, a source or the lake are not as they have to be; the message says how to mend it."""

    exit_code = 2


class DamageFound(JobError):
    """Damage was found and ``fail_on_damage`` asked to be told by the exit code."""

    exit_code = 3


class RunFailed(JobError):
    """The run could not be brought to its end and committed nothing it could not stand for."""

    exit_code = 1


def one_line(error: BaseException) -> str:
    """What went wrong, without Java's and Python's stack traces around it.

    Of a Java error its first cause speaks, of an error in a Python worker the line that ends its traceback;
    deltalake tells its causes one below the other, with arrows in red.
    """
    text, java = str(error).strip(), getattr(error, "java_exception", None)
    if java is not None:
        while java.getCause() is not None:
            java = java.getCause()
        text = re.sub(r"^[\w.$]+: ", "", str(java.toString())).strip()
    text = re.sub(r"\s*\n\s*\x1b\[[\d;]*m↳\x1b\[[\d;]*m ", ": ", text)
    head, traceback, tail = text.rpartition("Traceback (most recent call last)")
    if traceback:
        text = next(iter(re.findall(r"^\w[\w.]*(?:: .*)?$", tail, re.MULTILINE)), head)
    line = text.splitlines()[0].rstrip("; ") if text else ""
    is_sparks = java is not None or traceback or line.startswith("[")
    return line if line and is_sparks else f"{type(error).__name__}: {line or 'no message'}"

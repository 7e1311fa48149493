"""How a job ends other than well. Each class is an exit code; its message is the one line a person sees."""

from __future__ import annotations


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

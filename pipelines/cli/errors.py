"""The errors of jobs and commands below ``JobError``, and how an error's text becomes one line for a user.

::

    JobError                     exit code 1   udfs.errors
      RunFailed                            1
      UserError                            2
        CallError (a TypeError)            2
        LakeBusy                           2
      DamageFound                          3
      ChecksFailed                         3
      NotAllRestored                       3
      DamageError (a ValueError)           3   udfs.files: decode_segment(on_damage="raise")
      NotFound                             4
      NotAllSearched                       5
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_log_lake.udfs.errors import EXTRA_OF, install
from kafka_log_lake.udfs.errors import JobError as JobError

_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_MEMORY = re.compile(
    "Unable to allocate|MemoryError|Out of Memory Error|Cannot allocate memory|malloc of size"
    "|failed to map segment|load shared object|can't start new thread"
)
_MISSING = re.compile(r"No module named '(\w+)[.\w]*'")
# The link to a data file through which DuckDB reads it
_LINK = re.compile(r"""(?<=['"])/[^'"]*/kafka-log-lake-\w+/[^'"]+(?=['"])""")


class UserError(JobError):
    """The arguments, a source or the lake are wrong: exit code 2. Correct what the text names."""

    exit_code = 2


class CallError(UserError, TypeError):
    """A call in Python has an argument of a wrong type: exit code 2. Correct the call."""


class LakeBusy(UserError):
    """Another job holds the lock of a lake: exit code 2. Wait until it has ended, then start again.

    what: the text without this advice. owner: the process that holds it, "" if not known.
    """

    def __init__(self, lake: str, owner: str = "") -> None:
        super().__init__(lake, owner)  # what pickle calls the class with
        self.what = f"another run is writing to {lake}" + (f" ({owner})" if owner else "")

    def __str__(self) -> str:
        return f"{self.what}: wait for it to end, then start again"


_DAMAGE = "there is damage, or a file that can't be read: exit code 3, because of --fail-on-damage"


class DamageFound(JobError):
    """Damage was found, and ``--fail-on-damage`` was given: exit code 3. The rest is decoded and committed.

    The table ``quarantine`` has the damaged ranges; a healthy replica may have their records (``recover``).
    """

    exit_code = 3

    def __init__(self, text: str = _DAMAGE) -> None:
        super().__init__(text)


class NotFound(JobError):
    """A search found nothing, and could read everything: exit code 4. Search other logs or conditions."""

    exit_code = 4


class NotAllSearched(JobError):
    """A search found nothing, but some bytes could not be searched: exit code 5.

    The warnings name them; a replica of the log may have them in a readable state.
    """

    exit_code = 5


class ChecksFailed(JobError):
    """The lake is not sound, or checks that ``--fail-on`` names failed: exit code 3. See the report."""

    exit_code = 3


class NotAllRestored(JobError):
    """Something that was asked for is not in the target, or differs there: exit code 3. See the summary."""

    exit_code = 3


class RunFailed(JobError):
    """A run could not be completed: exit code 1. The ledger holds nothing of it: start the job again."""


def with_next_step(reason: str, otherwise: str = "") -> str:
    """Returns the reason of an error and what to do about it.

    One advice is for any full disk, one for any lack of memory, one for any package that is missing.
    otherwise: what follows the reason in any other case.
    """
    if _FULL.search(reason):
        return f"{reason}; free some space, then start the same command again"
    missing = _MISSING.search(reason)
    if missing and missing[1] in EXTRA_OF:
        return f"{missing[1]} is not installed: {install(EXTRA_OF[missing[1]])}"
    if _MEMORY.search(reason):
        return f"{reason}; the memory is not enough: a lower --cores needs less, ulimit -v shows a limit"
    return reason + otherwise


def needs_extra(what: str, error: ImportError, extra: str = "") -> UserError:
    """Returns the UserError for a package that is not installed.

    extra: of the wheel, which brings it; "" for that of ``EXTRA_OF``.
    """
    package = (error.name or "").partition(".")[0]
    return UserError(f"{what} needs {package}: {install(extra or EXTRA_OF[package])}")


def unwritable(place: str, error: BaseException) -> UserError:
    """Returns the UserError for a place that can't be written: an option and its path, or a lake."""
    reason = getattr(error, "strerror", None) or one_line(error)
    reason = re.sub(
        r".* Detail: \[errno \d+\] ", "", reason
    )  # pyarrow names what it did, and the place again
    return UserError(f"{place} can't be written: {with_next_step(reason)}")


@contextmanager
def writing(place: str) -> Iterator[None]:
    """Raises a UserError for what a place does not take; a reader that closed a pipe is no failure."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(place, error) from None


def with_own_paths(text: str) -> str:
    """Returns a text of DuckDB with the paths of data files in the lake, in place of links to them."""
    return _LINK.sub(lambda link: os.path.realpath(link[0]), text)


def is_about_data_file(error: BaseException, line: str) -> bool:
    """Says whether a library could not use a data file of a lake, by the line of its error.

    A full disk is not such an error.
    """
    return ".parquet" in line and not _is_python(error) and not _FULL.search(line)


def _is_python(error: BaseException) -> bool:
    """Says whether Python itself raised an error, and not a library or the system."""
    return type(error).__module__ == "builtins" and not isinstance(error, OSError)


def one_line(error: BaseException) -> str:
    """Returns the message of an error in one line, without the stack traces of Java and Python.

    A Java error gives the root cause's message, an error in a Python worker the last line of its traceback.
    deltalake puts each cause on a separate line, after a red arrow: these are joined by colons. The class is
    named of Python's own exceptions, such as KeyError, whose messages alone say little.
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
    line = with_own_paths(text.splitlines()[0].rstrip("; ")) if text else ""
    is_whole = java is not None or traceback or not _is_python(error)
    return line if line and is_whole else f"{type(error).__name__}: {line or 'no message'}"

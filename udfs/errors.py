"""The root of the errors that callers are meant to catch. ``pipelines.cli.errors`` has those of the jobs."""

from __future__ import annotations


class JobError(Exception):
    """The root of all expected failures: one line of text that says what is wrong and how to go on.

    ``except JobError`` around any call of this package catches them all. A command prints the text, without a
    traceback, and exits with ``exit_code``. This class itself, code 1: the work failed; run it again.
    """

    exit_code = 1

"""The frame around every job: arguments in, exit code out, one line for every expected error.

Exit codes: 0 done, 2 bad arguments or something that cannot be opened, 3 damage found (where asked for),
130 interrupted, 1 anything else. Results go to standard output, progress and errors to standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pipelines.command.errors import JobError, UserError, one_line
from pipelines.command.settings import (
    Settings,
    flag,
    make_settings,
    nearest,
    option,
    read_yaml,
    texts,
    to_yaml,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEBUG = "KAFKA_LAKE_DEBUG"


class Parser(argparse.ArgumentParser):
    """Raises where argparse would print its usage: one line is what a person reads."""

    def __init__(self, description: str) -> None:
        super().__init__(description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")

    def values(self, argv: Sequence[str] | None) -> dict[str, Any]:
        """What was given, by name; an argument that nobody declared is told with its nearest."""
        given, unknown = self.parse_known_args(argv)
        if unknown:
            options = [name for action in self._actions for name in action.option_strings]
            hint = nearest(unknown[0].split("=")[0], options) if unknown[0].startswith("-") else ""
            raise UserError(f"unknown argument {unknown[0]!r}{hint or '; see --help'}")
        return vars(given)


class _LineFormatter(logging.Formatter):
    """The message alone, and its level only where it is a warning or worse."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        return message if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {message}"


def set_up_logging() -> None:
    """Sends the log of ``pipelines`` to standard error, once."""
    logger = logging.getLogger("pipelines")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_LineFormatter())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


def add_setting(parser: argparse.ArgumentParser, name: str) -> None:
    """The option of one field of ``Settings``; what is not given stays unset."""
    field = next(field for field in dataclasses.fields(Settings) if field.name == name)
    parse, help_text = field.metadata["parse"], field.metadata["help"]
    if field.default not in (None, (), False):
        help_text += f" (default {field.default})"
    help_text = help_text.replace("%", "%%")
    if parse is flag:
        action = argparse.BooleanOptionalAction
        parser.add_argument(option(name), action=action, default=argparse.SUPPRESS, help=help_text)
    else:
        parser.add_argument(
            option(name),
            action="append" if parse is texts else "store",
            default=argparse.SUPPRESS,
            metavar=field.metadata["metavar"] or name.rpartition("_")[2].upper(),
            help=help_text,
        )


def parse_arguments(description: str, fields: Iterable[str], argv: Sequence[str] | None) -> Settings | None:
    """Settings of a YAML file and the command line, which wins; None where they were only to be printed."""
    names = tuple(fields)
    parser = Parser(description)
    for name in names:
        add_setting(parser, name)
    parser.add_argument(
        "--config", metavar="FILE.yml", help="settings by name; the command line overrides them"
    )
    parser.add_argument("--print-config", action="store_true", help="print the settings as YAML and stop")
    arguments = parser.values(argv)
    config, print_config = arguments.pop("config"), arguments.pop("print_config")
    settings = make_settings({**(read_yaml(config) if config else {}), **arguments}, names)
    if print_config:
        print(to_yaml(settings, names))
        return None
    return settings


def exit_code_of(job: Callable[[], object]) -> int:
    """Runs a job and turns the way it ends into an exit code and at most one line on standard error."""
    try:
        job()
        sys.stdout.flush()
    except JobError as error:
        print(f"error: {error}" if error.exit_code != 3 else error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; nothing is half done: the next run goes on from here", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has seen enough; keep Python from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        print(f"error: {one_line(error)} (traceback with {DEBUG}=1)", file=sys.stderr)
        return 1
    return 0


def main(
    run: Callable[[SparkSession, Settings], object],
    description: str,
    fields: Iterable[str],
    argv: Sequence[str] | None = None,
) -> int:
    """Parses the arguments, starts or joins Spark, runs the job. Returns the exit code for ``sys.exit``."""
    set_up_logging()

    def job() -> None:
        settings = parse_arguments(description, fields, argv)
        if settings is not None:
            from pipelines.command.session import (
                session,  # Spark takes long to import: not for --help or a typo
            )

            # With the arrow sink the work is the workers', and Java only plans
            with session(settings, only_plans=settings.sink == "arrow") as spark:
                run(spark, settings)

    return exit_code_of(job)

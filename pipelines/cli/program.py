"""Runs ``kafka-log-lake``: every command under one name.

``kafka-log-lake <name>`` passes its arguments as they are to the ``main`` of the command's module,
which parses them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

import kafka_log_lake
from kafka_log_lake.pipelines.cli.commands import COMMANDS
from kafka_log_lake.pipelines.cli.declaration import Command
from kafka_log_lake.pipelines.cli.errors import UserError, needs_extra
from kafka_log_lake.pipelines.cli.options import exit_code_of, parser_of, program_parser
from kafka_log_lake.pipelines.cli.values import nearest
from kafka_log_lake.udfs.errors import EXTRA_OF


def _named(word: str) -> Command:
    """Returns the command with a name, or whose module has it. Raises a UserError for an unknown one."""
    names = {command.name: command for command in COMMANDS}
    commands = names | {command.module: command for command in COMMANDS}
    if word not in commands:
        raise UserError(f"no such command: {word}{nearest(word, names) or '; see --help'}")
    return commands[word]


def _main_of(command: Command) -> Callable[[Sequence[str] | None], int]:
    """Imports the ``main`` of a command. Raises a UserError if packages that it needs are not installed."""
    try:
        main: Callable[[Sequence[str] | None], int] = import_module(
            f"kafka_log_lake.pipelines.{command.code}"
        ).main
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA_OF:
            raise
        raise needs_extra(command.name, error, command.extra) from None
    return main


def main(argv: Sequence[str] | None = None, command: str = "") -> int:
    """Runs a command and returns its exit code. Wrong arguments give one line on standard error.

    argv: None for those of this process. command: the name of the command, where argv does not begin with it.
    """
    words = [*([command] if command else []), *(sys.argv[1:] if argv is None else argv)]
    run: Callable[[Sequence[str] | None], int] | None = None

    def choose() -> None:
        nonlocal run
        if "_ARGCOMPLETE" in os.environ:  # a shell asks for what may follow
            import argcomplete

            argcomplete.autocomplete(program_parser(COMMANDS))
        if words[0:1] == ["help"] and len(words) > 1:
            words[:] = [words[1], "--help"]
        if not words or words[0] in ("-h", "--help", "help"):
            print(program_parser().format_help(), end="")
        elif words[0] == "--version":
            print(f"kafka-log-lake {kafka_log_lake.__version__}")
        else:
            named = _named(words[0])
            if not {"-h", "--help", "--help-all"}.isdisjoint(words):  # prints it and exits, without its extra
                parser_of(named, "--help-all" in words).parse_known_args(words[1:])
            run = _main_of(named)

    code = exit_code_of(choose)
    if run is None:
        return code
    if argv is None:  # the command is the process, as under python -m
        sys.argv[1:] = words[1:]
    return run(None if argv is None else words[1:])

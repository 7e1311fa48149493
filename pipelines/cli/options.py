"""Runs a command: parses its arguments, prints an expected error as one line, returns the exit code.

Exit codes: 0 done; 1 failed; 2 bad arguments, or a source or lake that cannot be opened; 3 damage found
(only with ``--fail-on-damage``) or a check failed (only with ``--fail-on``); 130 interrupted. Results go to
standard output, progress and errors to standard error. 4, 5: of ``find``, see ``errors``.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from kafka_log_lake.pipelines.cli.commands import COMMANDS
from kafka_log_lake.pipelines.cli.commands import GROUPS as COMMAND_GROUPS
from kafka_log_lake.pipelines.cli.declaration import Argument, Command
from kafka_log_lake.pipelines.cli.errors import (
    JobError,
    UserError,
    is_about_data_file,
    one_line,
    with_next_step,
)
from kafka_log_lake.pipelines.cli.process import is_terminated
from kafka_log_lake.pipelines.cli.screens import screen_text
from kafka_log_lake.pipelines.cli.setting_names import (
    ALIASES,
    FIELDS,
    GROUPS,
    RARE,
    SETTING_NAMES,
    help_of,
    make_settings,
    metavar_of,
    shown,
)
from kafka_log_lake.pipelines.cli.settings import Running
from kafka_log_lake.pipelines.cli.status import say
from kafka_log_lake.pipelines.cli.streams import drop_output, set_up_streams
from kafka_log_lake.pipelines.cli.terminal import COMMAND, invocation, printable
from kafka_log_lake.pipelines.cli.values import flag, key_files, nearest, option, texts
from kafka_log_lake.udfs.storage.regular_file import read_regular

DEBUG = "KAFKA_LAKE_DEBUG"
_MOST_SETTINGS = 1 << 20  # bytes of a file of settings


class _Help(argparse.HelpFormatter):
    """Wraps all but the epilog, whose lines are to be pasted."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Raises a UserError where argparse would print its usage and exit."""

    def __init__(self, screen: str = "", **texts_of: Any) -> None:
        super().__init__(**texts_of, allow_abbrev=False, formatter_class=_Help)
        self._groups: dict[str, argparse._ArgumentGroup] = {}
        self._screen = screen

    def format_help(self) -> str:
        return f"{self._screen}\n" if self._screen else super().format_help()

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Returns the group of options under a title, which it makes at the first call."""
        if title not in self._groups:
            self._groups[title] = self.add_argument_group(title)
        return self._groups[title]

    def error(self, message: str) -> NoReturn:
        hint = ", after = if it begins with -" if message.endswith("expected one argument") else ""
        raise UserError(f"{message}{hint}; see --help")

    def values(self, argv: Sequence[str] | None) -> dict[str, Any]:
        """Parses arguments, and returns the given values by name.

        Raises a UserError for an unknown argument, with the most similar option. Options that are not given
        have no value here.
        """
        given, unknown = self.parse_known_args(argv)
        if unknown:
            options = [name for action in self._actions for name in action.option_strings]
            hint = nearest(unknown[0].split("=")[0], options) if unknown[0].startswith("-") else ""
            rest = unknown[0].replace("--not", "-", 1) if unknown[0].startswith("--not") else ""
            if rest == "-" or (rest[:2] == "--" and (rest in options or "--not-" not in hint)):
                raise UserError("--not goes before a condition of find, as in --not --key user-17")
            if {"statement", "lake"} <= vars(given).keys():
                hint = "put it in quotes, or the shell splits it and takes * for names of files"
                raise UserError(f"the statement goes on with {unknown[0]!r}: {hint}")
            if not unknown[0].startswith("-"):  # a place, as scan takes it
                needed = [
                    name for name in ("--source", "--lake") if name in options and name[2:] not in given
                ]
                hint = f": {needed[0]} goes before its PATH; see --help" if needed else ""
            raise UserError(f"unknown argument {unknown[0]!r}{hint or '; see --help'}")
        return vars(given)


class _StandardError(logging.Handler):
    """Writes to the current ``sys.stderr``, which a notebook may have replaced: the message of a record.

    A warning or worse begins with its level.
    """

    def emit(self, record: logging.LogRecord) -> None:
        message = printable(record.getMessage())
        say(message if record.levelno < logging.WARNING else f"{record.levelname.lower()}: {message}")


def set_up_logging() -> None:
    """Sends log messages of this project to standard error. A second call changes nothing."""
    logger = logging.getLogger("kafka_log_lake")
    if not logger.handlers:
        logger.addHandler(_StandardError())
        logger.setLevel(logging.INFO)
        logger.propagate = False


def add_setting(parser: Parser, name: str, shows_rare: bool, creates_lake: bool) -> None:
    """Adds the option of a setting. The parsed values hold only options that were given.

    shows_rare: whether ``--help`` shows those of RARE. creates_lake: whether the command does, where none is.
    """
    field = FIELDS[name]
    parse, help_text = field.metadata["parse"], help_of(field).replace("%", "%%")
    if name == "lake" and creates_lake:
        help_text += "; created if missing"
    if name in RARE and not shows_rare:
        help_text = argparse.SUPPRESS
    how: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
    if parse is not flag:
        how = {"action": "append" if parse in (texts, key_files) else "store", "metavar": metavar_of(field)}
    names = [option(alias) for alias in (*ALIASES.get(name, ()), name)]
    parser.group(GROUPS[name]).add_argument(
        *names, dest=name, default=argparse.SUPPRESS, help=help_text, **how
    )


def add_argument(parser: argparse.ArgumentParser, argument: Argument) -> None:
    """Adds an argument that is not a setting."""
    how: dict[str, Any] = {"help": argument.help}
    if argument.choices:
        how |= {"choices": argument.choices, "default": argument.choices[0]}
    elif argument.is_switch:
        how |= {"action": "store_true"}
    elif argument.metavar:
        how |= {"metavar": argument.metavar, "default": argument.default}
        how["action"] = "append" if argument.many else "store"
        how["help"] += f" (default {argument.default})" if argument.default else ""
    else:
        many = ("*" if argument.is_optional else "+") if argument.many else None
        how |= {"nargs": many, "metavar": argument.name.upper()}
    names = argument.options if argument.is_option else [argument.name]
    if argument.is_option:
        how["dest"] = argument.name
    parser.add_argument(*names, **how)


def with_not(argv: Sequence[str]) -> list[str]:
    """Returns arguments in which ``--not --key X`` is ``--not-key X``."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] == "--not" and word.startswith("--"):
            joined[-1] = f"--not-{word[2:]}"
        else:
            joined.append(word)
    return joined


def _in_list(command: Command, width: int, below: str) -> str:
    begin = f"  {command.name:{width}}  "
    return textwrap.fill(command.help, 80, initial_indent=begin, subsequent_indent=below)


def program_parser(complete: Sequence[Command] = ()) -> argparse.ArgumentParser:
    """Builds the parser of ``kafka-log-lake`` itself, for its help.

    complete: the commands to add, for a shell's completion.
    """
    width = max(len(command.name) for command in COMMANDS)
    below = " " * (width + 4)
    commands = "\n".join(
        "\n".join([f"{group}:", *(_in_list(name, width, below) for name in of_group)])
        for group, of_group in COMMAND_GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        usage=f"{COMMAND} COMMAND [OPTIONS]",
        description="Kafka log segments -> Delta tables, without a broker.",
        epilog=f"{commands}\n\n{COMMAND} COMMAND --help has the options of each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    if complete:
        added = parser.add_subparsers(parser_class=Parser)
        for command in complete:
            parser_of(command, below=added)
    return parser


def parser_of(command: Command, shows_rare: bool = True, below: Any = None) -> Parser:
    """Builds the parser of a command.

    shows_rare: whether its help has the options for tuning. below: subparsers to which it is added.
    """
    names = f"The same command: python -m pipelines.{command.module}"
    rare = any(name in RARE for name in command.settings)
    more = ". --help-all also shows the options for tuning." if rare and not shows_rare else ""
    example = f"Example:\n  {invocation()} {command.name} {command.example}\n\n" if command.example else ""
    places = [
        argument.name.upper() + "..." * argument.many
        for argument in command.arguments
        if not argument.is_option
    ]
    needed = "--source PATH --lake LAKE" if command.is_configurable else "--lake LAKE"
    usage = " ".join([COMMAND, command.name, needed, *places, "[OPTIONS]"])
    if command.screen:
        usage = f"{COMMAND} {command.name} {command.screen.usage}"
    texts_of = {
        "prog": f"{COMMAND} {command.name}",
        "usage": usage,
        "description": command.help,
        "epilog": f"{example}{textwrap.fill(names + more, 80)}",
        "screen": ""
        if shows_rare or command.screen is None
        else screen_text(command, command.screen, invocation()),
    }
    parser = below.add_parser(command.name, **texts_of) if below else Parser(**texts_of)
    for argument in command.arguments:
        add_argument(parser, argument)
    for name in command.settings:
        add_setting(parser, name, shows_rare, command.is_configurable)
    if command.is_configurable:
        group = parser.group("Settings from a file")
        config_help = "YAML file of settings; the command line overrides them"
        group.add_argument("--config", metavar="FILE.yml", help=config_help)
        group.add_argument("--print-config", action="store_true", help="print the settings as YAML and stop")
    if rare:
        parser.add_argument("--help-all", action="help", help="show all options and exit")
    return parser


def parse_arguments(command: Command, argv: Sequence[str] | None) -> tuple[Any, dict[str, Any]] | None:
    """Parses a command's arguments: returns its settings, and the values of its other arguments by name.

    Settings come from the YAML file of ``--config`` and from the command line, which overrides it. None after
    ``--print-config``, which prints them. argv: None for those of the process. Raises a UserError.
    """
    words = with_not(sys.argv[1:] if argv is None else argv)
    values = parser_of(command, "--help-all" in words).values(words)
    others = {argument.name: values.pop(argument.name) for argument in command.arguments}
    for argument in command.arguments:
        if argument.is_place and "" in (others[argument.name], *(others[argument.name] or ())):
            raise UserError(
                f"{option(argument.name) if argument.is_option else argument.name.upper()} is empty"
            )
        if argument.parse is not None and others[argument.name] is not None:
            try:
                others[argument.name] = argument.parse(others[argument.name])
            except ValueError as error:
                raise UserError(f"{option(argument.name)} {error}") from None
    config, print_config = values.pop("config", None), values.pop("print_config", False)
    given = {**({} if config is None else read_yaml(config)), **values}
    settings = make_settings(given, command.settings, command.kind)
    if print_config:
        print(to_yaml(settings, command.settings))
        return None
    return settings, others


def exit_code_of(job: Callable[[], object], next_step: str = "") -> int:
    """Runs a job and returns its exit code. Prints at most one line on standard error.

    next_step: the end of the line for Ctrl-C; what is done until then the KeyboardInterrupt says.
    """
    set_up_streams()
    try:
        job()
        sys.stdout.flush()
    except JobError as error:
        message = printable(str(error))
        is_failure = error.exit_code in (UserError.exit_code, JobError.exit_code)
        print(f"error: {message}" if is_failure else message, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as stopped:
        if not is_terminated():
            print(f"interrupted{': ' * bool(stopped.args)}{stopped}{next_step}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        drop_output()  # its reader closed it (``| head``)
    except Exception as error:
        if str(error) == "Query interrupted":  # what DuckDB makes of a signal in the thread that gets it
            if not is_terminated():
                print(f"interrupted{next_step}", file=sys.stderr)
            return 130
        if os.environ.get(DEBUG):
            traceback.print_exc()
        line = printable(one_line(error))
        if is_about_data_file(error, line):
            step = "restore the file, or decode into a new --lake"
            print(f"error: a data file can't be used: {line}; {step}", file=sys.stderr)
            return UserError.exit_code
        print(f"error: {with_next_step(line, f' (traceback with {DEBUG}=1)')}", file=sys.stderr)
        return 1
    return 0


def read_yaml(path: str, named_by: str = "--config") -> dict[str, object]:
    """Returns the mapping in a settings file; {} for an empty file. Raises a UserError.

    named_by: the option, for messages.
    """
    if not path:
        raise UserError(f"{named_by} is empty")
    import yaml  # takes 0.01 s, and few commands are given a file

    from kafka_log_lake.pipelines.cli.unique_names import UniqueNames

    try:
        loaded = UniqueNames(read_regular(path, _MOST_SETTINGS).decode()).get_single_data()
    except OSError as error:
        raise UserError(f"{named_by}: cannot read {path}: {error.strerror or error}") from None
    except RecursionError:
        raise UserError(f"{named_by}: {path} is nested too deep") from None
    except (yaml.YAMLError, ValueError) as error:  # of dates and numbers, and what is not UTF-8
        raise UserError(f"{named_by}: {path} is not valid YAML: {' '.join(str(error).split())}") from None
    if loaded is None:
        return {}
    if isinstance(loaded, list):
        raise UserError(f"{named_by}: {path} is a list: write `name: value` lines, without the dashes")
    if not isinstance(loaded, dict):
        raise UserError(f"{named_by}: {path} must consist of `name: value` lines")
    return loaded


def to_yaml(settings: Running, names: Iterable[str] = SETTING_NAMES) -> str:
    """Returns the text of a file for ``--config`` with these settings, each below its help text."""
    import yaml

    lines = []
    for name in names:
        value = getattr(settings, name)
        plain = list(value) if isinstance(value, tuple) else shown(FIELDS[name], value)
        lines.append(f"# {FIELDS[name].metadata['help']}")
        lines.append(yaml.safe_dump({name: plain}, allow_unicode=True, width=10_000).rstrip())
    return "\n".join(lines)

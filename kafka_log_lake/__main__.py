"""``kafka-log-lake``: every command under one name, with help and completion.

The options are those of ``python -m pipelines.<module>``, from the same declarations, and the given values
are passed to the same ``main``.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

import kafka_log_lake
from pipelines.command.commands import COMMANDS, Argument, Command
from pipelines.command.errors import UserError
from pipelines.command.options import CONFIG_HELP, PRINT_CONFIG_HELP, exit_code_of, screen_of, with_not
from pipelines.command.settings import Settings, help_of, metavar_of, option
from pipelines.command.values import flag, texts

app = typer.Typer(
    name="kafka-log-lake",
    no_args_is_help=True,
)
# The packages of kafka-log-lake[spark] and kafka-log-lake[report]
_OF_EXTRAS = (
    "pyspark",
    "py4j",
    "delta",
    "deltalake",
    "duckdb",
    "sqlglot",
    "jinja2",
    "markupsafe",
    "vl_convert",
)
_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}


def _print_version(asked: bool) -> None:
    if asked:
        print(f"kafka-log-lake {kafka_log_lake.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="print the version and stop", callback=_print_version, is_eager=True
    ),
) -> None:
    """Kafka log segments -> Delta tables, on Spark, without a broker."""


def _parameter(name: str, annotation: Any, declared: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=annotation)


def _of_argument(argument: Argument) -> inspect.Parameter:
    if argument.choices:
        help_text = f"{argument.help}: {', '.join(argument.choices)}"
        return _parameter(
            argument.name,
            str | None,
            typer.Option(None, option(argument.name), help=help_text, autocompletion=_choices(argument)),
        )
    if argument.is_switch:
        declared = typer.Option(False, option(argument.name), help=argument.help, hidden=argument.is_hidden)
        return _parameter(argument.name, bool, declared)
    if argument.metavar:
        default = f" (default {argument.default})" if argument.default else ""
        declared = typer.Option(
            None,
            option(argument.name),
            help=argument.help + default,
            metavar=argument.metavar,
            hidden=argument.is_hidden,
        )
        return _parameter(argument.name, list[str] | None if argument.many else str | None, declared)
    kind = list[str] if argument.many else str
    return _parameter(
        argument.name,
        kind,
        typer.Argument(..., help=argument.help, metavar=argument.name.upper(), show_default=False),
    )


def _choices(argument: Argument) -> Any:
    def complete(incomplete: str) -> list[str]:
        return [choice for choice in argument.choices if choice.startswith(incomplete)]

    return complete


def _of_setting(name: str) -> inspect.Parameter:
    field = _FIELDS[name]
    parse, help_text = field.metadata["parse"], help_of(field)
    if parse is flag:
        both = f"{option(name)}/--no-{name.replace('_', '-')}"
        return _parameter(name, bool | None, typer.Option(None, both, help=help_text))
    kind = list[str] if parse is texts else str
    declared = typer.Option(None, option(name), help=help_text, metavar=metavar_of(field))
    return _parameter(name, kind | None, declared)


def _parameters(command: Command) -> list[inspect.Parameter]:
    parameters = [*map(_of_argument, command.arguments), *map(_of_setting, command.settings)]
    if command.is_configurable:
        config = typer.Option(None, "--config", help=CONFIG_HELP, metavar="FILE.yml")
        printed = typer.Option(False, "--print-config", help=PRINT_CONFIG_HELP)
        parameters += [_parameter("config", str | None, config), _parameter("print_config", bool, printed)]
    return parameters


def _argv(command: Command, given: dict[str, Any]) -> list[str]:
    """The given values as arguments of ``python -m pipelines.<module>``."""
    given = {name: value for name, value in given.items() if value != []}
    positional = [argument.name for argument in command.arguments if not argument.is_option]
    switches = {argument.name for argument in command.arguments if argument.is_switch} | {"print_config"}
    argv: list[str] = []
    for name, value in given.items():
        if name in positional or value is None or (name in switches and not value):
            continue
        if isinstance(value, bool):
            argv.append(option(name) if value else f"--no-{name.replace('_', '-')}")
        else:
            argv += [f"{option(name)}={one}" for one in (value if isinstance(value, list) else [value])]
    for name in positional:
        argv += ["--", *(given[name] if isinstance(given[name], list) else [given[name]])]
    return argv


def _main_of(command: Command) -> Callable[[list[str]], int]:
    """The command's ``main``. Raises a UserError if the packages that it needs are not installed."""
    try:
        found: Callable[[list[str]], int] = import_module(f"pipelines.{command.module}").main
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _OF_EXTRAS:
            raise
        needs = "Spark" if command.extra == "spark" else "more packages"
        wheel = f"dist/kafka_log_lake-{kafka_log_lake.__version__}-py3-none-any.whl[{command.extra}]"
        raise UserError(
            f"{command.name} needs {needs}: install the wheel with its extra, pip install '{wheel}'"
        ) from None
    return found


def _add(command: Command) -> None:
    def run(**given: Any) -> None:
        raise typer.Exit(_main_of(command)(_argv(command, given)))

    parameters = _parameters(command)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    app.command(command.name, help=command.help, cls=_with_screen(command))(run)


def _with_screen(command: Command) -> type[TyperCommand]:
    """A command whose ``--help`` is the text that is declared for it, if there is one."""

    class WithScreen(TyperCommand):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            if not command.screen:
                super().format_help(ctx, formatter)
                return
            print(screen_of(command))

    return WithScreen


for _command in COMMANDS:
    _add(_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. Wrong arguments give one line on standard error."""
    code = 0

    def job() -> None:
        nonlocal code
        try:
            code = app(args=with_not(sys.argv[1:] if argv is None else argv), standalone_mode=False) or 0
        except Exception as error:
            message = getattr(error, "format_message", None)  # of every error of wrong arguments
            if message is None:
                raise
            raise UserError(f"{str(message()).rstrip('.')}; see --help") from None

    return exit_code_of(job) or code


if __name__ == "__main__":
    sys.exit(main())

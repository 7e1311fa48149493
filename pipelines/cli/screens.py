"""Writes the first screen of ``--help`` of a command with many options, from their declarations."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from kafka_log_lake.pipelines.cli.declaration import Command, Screen
from kafka_log_lake.pipelines.cli.setting_names import ALIASES, FIELDS, metavar_of
from kafka_log_lake.pipelines.cli.terminal import COMMAND
from kafka_log_lake.pipelines.cli.values import flag, option

_WIDTH = 80
_GAP = "   "


def screen_text(command: Command, screen: Screen, invoked: str) -> str:
    """Returns the text of ``--help``. invoked: how the program is called here."""
    lines = [f"Usage: {COMMAND} {command.name} {screen.usage}", ""]
    lines += [*textwrap.wrap(screen.about, _WIDTH), ""]
    width = max(len(label) for label, *_ in screen.rows) + 1
    for label, *items in screen.rows:
        indent = label.ljust(width)
        for line in _packed([_item(command, item) for item in items], _WIDTH - width):
            lines.append(f"{indent}{line}")
            indent = " " * width
    lines += ["Examples:", *(f"  {invoked} {command.name} {example}" for example in screen.examples)]
    return "\n".join([*lines, f"Exit code: {screen.exit_codes}", f"More: {screen.page}"])


def _packed(items: list[str], width: int) -> Iterator[str]:
    """Yields lines of items next to each other; one that is longer than a line is wrapped by itself."""
    line = ""
    for item in items:
        if line and len(line) + len(_GAP) + len(item) > width:
            yield line
            line = ""
        *whole, rest = textwrap.wrap(item, width, subsequent_indent="  ", break_on_hyphens=False)
        yield from whole
        line = f"{line}{_GAP}{rest}" if line else rest
    yield line


def _item(command: Command, item: str) -> str:
    """Returns an item of a row as it is shown. Raises a KeyError for a name that the command lacks."""
    name, colon, text = item.partition(": ")
    return f"{_option(command, name)}{colon}{text}"


def _option(command: Command, name: str) -> str:
    """Returns an option with what it takes; words with a dash before or with a capital stay as they are."""
    if name.startswith("-") or not name.islower():
        return name
    argument = {argument_.name: argument_ for argument_ in command.arguments}.get(name)
    if argument is not None:
        taken = "|".join(argument.choices) or argument.metavar
        return f"{argument.options[0]} {taken}" if taken else argument.options[0]
    field = {setting: FIELDS[setting] for setting in command.settings}[name]
    shown = option(ALIASES.get(name, (name,))[0])
    return shown if field.metadata["parse"] is flag else f"{shown} {metavar_of(field)}"

"""Writes the options of the jobs, for the site, from their declarations."""

from __future__ import annotations

from html import escape

from kafka_log_lake.pipelines.cli.commands import COMMANDS
from kafka_log_lake.pipelines.cli.setting_names import ALIASES, FIELDS, GROUPS, metavar_of, shown
from kafka_log_lake.pipelines.cli.values import flag, option

_MANY = 4  # commands that take an option: of more the page names none


def arguments(command: str) -> str:
    """Returns the options that a command has besides those of the jobs, as a table."""
    (declared,) = (one for one in COMMANDS if one.name == command)
    lines = ["| option | |", "|---|---|"]
    for one in declared.arguments:
        if not one.is_option or one.name.startswith("not_"):
            continue
        takes = "" if one.is_switch else f" {'|'.join(one.choices) or one.metavar or one.name.upper()}"
        options = ", ".join(f"`{name}{takes}`".replace("|", "\\|") for name in one.options)
        default = f" (default {one.default})" if one.default else ""
        lines.append(f"| {options} | {escape(one.help, quote=False)}{default} |")
    return "\n".join(lines)


def settings() -> str:
    """Returns the options of the jobs as tables, one a group of ``--help-all``."""
    takers = {command.name: set(command.settings) for command in COMMANDS}
    lines: list[str] = []
    for group in dict.fromkeys(GROUPS.values()):
        lines += ["", f"**{group}**", "", "| option | default | of | |", "|---|---|---|---|"]
        for name in (name for name, of in GROUPS.items() if of == group):
            field = FIELDS[name]
            takes = "" if field.metadata["parse"] is flag else f" {metavar_of(field)}"
            options = [f"`{option(one)}{takes}`" for one in (name, *ALIASES.get(name, ()))]
            default = "" if field.default in (None, (), False) else f"`{shown(field, field.default)}`"
            of = [f"`{command}`" for command in takers if name in takers[command]]
            listed = ", ".join(of) if len(of) <= _MANY else "many"
            said = escape(field.metadata["help"], quote=False)
            lines.append(f"| {', '.join(options)} | {default} | {listed} | {said} |")
    return "\n".join(lines)

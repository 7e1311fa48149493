"""What every setting is made of: its default, its rule, its help text; and how it is checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipelines.command.errors import UserError


def setting(default: Any, parse: Callable[[object], Any], help_text: str, metavar: str | None = None) -> Any:
    """A setting. parse: returns the checked value, or raises a ValueError with the rule."""
    metadata = {"parse": parse, "help": help_text, "metavar": metavar}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Options that are checked when they are made: a wrong value raises a UserError of one line."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            try:
                parsed = field.metadata["parse"](value)
            except ValueError as error:
                raise UserError(f"{option(field.name)} {error}") from None
            object.__setattr__(self, field.name, parsed)


def option(name: str) -> str:
    """``one_copy`` as the command line writes it: ``--one-copy``."""
    return "--" + name.replace("_", "-")

"""The classes that declare a command and its arguments; ``commands`` has all declarations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka_log_lake.pipelines.cli.settings import Running, Settings
from kafka_log_lake.pipelines.cli.values import option

_JOBS = ("decode_batches", "ingest_raw")  # modules themselves; of the others the code lies in a room
SORTS = ("bytes", "name", "records", "segments", "partitions", "damage", "last")  # of scan --sort


@dataclass(frozen=True)
class Argument:
    """An argument that is not a setting: an option if it has choices or a metavar, else positional.

    is_switch: an option without a value. many: whether it may be given several times. default: an option's
    value where it is not given; of choices it is the first.
    is_optional: whether a positional one may be missing. parse: gives the checked value of a text, or raises
    a ValueError with the rule. alias: a better name of an option, which is shown; the first one stays.
    """

    name: str
    help: str
    many: bool = False
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    default: str | None = None
    is_switch: bool = False
    is_optional: bool = False
    parse: Callable[[object], Any] | None = None
    alias: str = ""

    @property
    def options(self) -> list[str]:
        """Returns the names of an option on the command line, the one to show first."""
        return [option(name) for name in (self.alias, self.name) if name]

    @property
    def is_option(self) -> bool:
        return bool(self.choices or self.metavar or self.is_switch)

    @property
    def is_place(self) -> bool:
        """Says whether the argument names a file or a folder, or what the command works on.

        "" is none of these.
        """
        return not self.is_option or self.metavar in ("FILE", "FILE.yml", "FOLDER", "DIR")


@dataclass(frozen=True)
class Screen:
    """What ``--help`` shows of a command with many options.

    usage: what follows its name. about: what it does. rows: a label and items. An item names an argument
    or a setting, which is shown as an option with what it takes, or words with a capital; a text may follow
    after a colon. examples: arguments of calls. page: of the documentation.
    """

    usage: str
    about: str
    rows: tuple[tuple[str, ...], ...]
    examples: tuple[str, ...]
    exit_codes: str
    page: str = "docs/commands.md"


@dataclass(frozen=True)
class Command:
    """A command of the project.

    name: the word after ``kafka-log-lake``. module: a module or room of ``pipelines``, which ``python -m
    pipelines.<module>`` runs. settings: names of the fields of its kind of settings that it takes.
    is_configurable: whether ``--config`` may name a file of them. continues: whether it goes on where an
    interrupted run of it stopped. extra: the extra of the wheel that brings the packages it needs. screen:
    what ``--help`` shows, where it is not the list of all options. example: the arguments of a call, shown
    where there is no screen.
    """

    name: str
    module: str
    help: str
    settings: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()
    is_configurable: bool = False
    continues: bool = False
    extra: str = "spark"
    screen: Screen | None = None
    kind: type[Running] = Settings
    example: str = ""

    @property
    def code(self) -> str:
        """Returns the module with ``main(argv)``, below ``pipelines``."""
        return self.module if self.module in _JOBS else f"{self.module}.command"

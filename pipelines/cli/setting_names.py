"""Gives the names of settings: their groups and order in the help, and settings built by their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, overload

from kafka_log_lake.pipelines.cli.settings import (
    CostSettings,
    Decoding,
    LakeSettings,
    Monitoring,
    Reading,
    Running,
    Selection,
    Settings,
    Typing,
    Watching,
    Writing,
)
from kafka_log_lake.pipelines.cli.values import byte_count, byte_text, check_names

Kind = TypeVar("Kind", bound=Running)

# What a command line shows together, and in which order
GROUPS = {
    name: str(group.__doc__).rstrip(".")
    for group in (
        *(Reading, Selection, Decoding, LakeSettings, Typing, Writing, Watching, Monitoring),
        *(CostSettings, Running),
    )
    for name in group.__annotations__
}
# Better names of options, which are shown first
ALIASES = {"topic": ("as_topic",)}
# What only --help-all shows
RARE = {
    *("slice_bytes", "window_bytes", "max_files_per_run", "max_bytes_per_run", "driver_memory"),
    *("max_batch_uncompressed", "quarantine_content_bytes"),
    *("parquet_compression", "parquet_compression_level"),
}
FIELDS = {field.name: field for kind in (Settings, CostSettings) for field in dataclasses.fields(kind)}
SETTING_NAMES, COST_NAMES = (
    tuple(name for name in GROUPS if name in {field.name for field in dataclasses.fields(kind)})
    for kind in (Settings, CostSettings)
)


def help_of(field: dataclasses.Field[object]) -> str:
    """Returns what ``--help`` says of a setting, with its default."""
    text: str = field.metadata["help"]
    return text if field.default in (None, (), False) else f"{text} (default {shown(field, field.default)})"


def shown(field: dataclasses.Field[Any], value: Any) -> Any:
    """Returns the value of a setting as a person writes it: bytes with a unit, such as ``64MiB``."""
    is_size = field.metadata["parse"] is byte_count and value is not None
    return byte_text(value) if is_size else value


def metavar_of(field: dataclasses.Field[object]) -> str:
    """Returns the placeholder of a setting's value in ``--help``."""
    return field.metadata["metavar"] or field.name.rpartition("_")[2].upper()


@overload
def make_settings(values: Mapping[str, object]) -> Settings: ...
@overload
def make_settings(values: Mapping[str, object], allowed: Iterable[str], kind: type[Kind]) -> Kind: ...
def make_settings(
    values: Mapping[str, object], allowed: Iterable[str] = SETTING_NAMES, kind: type[Any] = Settings
) -> object:
    """Builds settings from names and values, of a notebook or a YAML file.

    allowed: the names that may be given. kind: the class to build. Raises a UserError for an unknown name or
    a wrong value.
    """
    check_names(values, tuple(allowed))
    return kind(**values)

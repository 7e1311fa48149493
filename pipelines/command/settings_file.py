"""Settings as a YAML file, which ``--config`` names and ``--print-config`` prints."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelines.command.errors import UserError
from pipelines.command.settings import FIELDS, SETTING_NAMES, Running, shown


def read_yaml(path: str, named_by: str = "--config") -> dict[str, Any]:
    """The mapping in a settings file; {} for an empty file. named_by: the option, for messages."""
    import yaml  # takes 0.01 s, and few commands are given a file

    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{named_by}: cannot read {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{named_by}: {path} is not valid YAML: {' '.join(str(error).split())}") from None
    if loaded is None:
        return {}
    if isinstance(loaded, list):
        raise UserError(f"{named_by}: {path} is a list: write `name: value` lines, without the dashes")
    if not isinstance(loaded, dict):
        raise UserError(f"{named_by}: {path} must consist of `name: value` lines")
    return loaded


def to_yaml(settings: Running, names: Iterable[str] = SETTING_NAMES) -> str:
    """The text of a file for ``--config`` with these settings, each below its help text."""
    import yaml

    lines = []
    for name in names:
        value = getattr(settings, name)
        plain = list(value) if isinstance(value, tuple) else shown(FIELDS[name], value)
        lines.append(f"# {FIELDS[name].metadata['help']}")
        lines.append(yaml.safe_dump({name: plain}, allow_unicode=True, width=10_000).rstrip())
    return "\n".join(lines)

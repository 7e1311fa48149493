"""Kafka log segments -> Delta tables, without a broker: what users import.

``decode_folder``, ``decode_segment``, ``find``, ``read_segment`` and ``scan`` need no Spark; ``connect``
opens a lake in DuckDB. It and the others need the wheel's extra:
``pip install 'dist/kafka_log_lake-0.1.0-py3-none-any.whl[spark]'``::

    from kafka_log_lake import decode_segment
    for batch in decode_segment("00000000000000000000.log"):
        print(batch.num_rows)

A name is loaded at its first use, so that importing this package is fast.
"""

from __future__ import annotations

import pipelines  # noqa: F401  # first: says so where the packages are missing, and ends quietly at Ctrl-C

# isort: split
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines import register
    from pipelines.command.session import get_session
    from pipelines.command.settings import CostSettings, Settings
    from pipelines.decode_batches import decode_segments
    from pipelines.decode_batches import run as decode
    from pipelines.decode_frame import decode_frame
    from pipelines.find import find
    from pipelines.folders import decode_folder, read_segment
    from pipelines.ingest_raw import run as ingest
    from pipelines.scan import scan
    from pipelines.sql.database import connect
    from udfs.files import DamageError, DamageWarning, decode_segment

__version__ = "0.1.0"  # the wheel's version too

__all__ = [
    "CostSettings",
    "DamageError",
    "DamageWarning",
    "Settings",
    "connect",
    "decode",
    "decode_folder",
    "decode_frame",
    "decode_segment",
    "decode_segments",
    "find",
    "get_session",
    "ingest",
    "read_segment",
    "register",
    "scan",
]

# name -> (module, attribute)
_EXPORTS = {
    "CostSettings": ("pipelines.command.settings", "CostSettings"),
    "DamageError": ("udfs.files", "DamageError"),
    "DamageWarning": ("udfs.files", "DamageWarning"),
    "Settings": ("pipelines.command.settings", "Settings"),
    "connect": ("pipelines.sql.database", "connect"),
    "decode": ("pipelines.decode_batches", "run"),
    "decode_folder": ("pipelines.folders", "decode_folder"),
    "decode_frame": ("pipelines.decode_frame", "decode_frame"),
    "decode_segment": ("udfs.files", "decode_segment"),
    "decode_segments": ("pipelines.decode_batches", "decode_segments"),
    "find": ("pipelines.find", "find"),
    "get_session": ("pipelines.command.session", "get_session"),
    "ingest": ("pipelines.ingest_raw", "run"),
    "read_segment": ("pipelines.folders", "read_segment"),
    "register": ("pipelines", "register"),
    "scan": ("pipelines.scan", "scan"),
}


def __dir__() -> list[str]:
    """The names that Tab completes: those that are not loaded yet too."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        module, attribute = _EXPORTS[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

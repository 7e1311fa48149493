"""Kafka log segments -> Delta tables, without a broker: what users import.

``decode_folder``, ``decode_segment``, ``find``, ``read_segment`` and ``scan`` need no Spark; ``connect``
opens a lake in DuckDB. It and the others need the wheel's extra:
``pip install 'dist/kafka_log_lake-0.2.0-py3-none-any.whl[spark]'``::

    from kafka_log_lake import decode_segment
    for batch in decode_segment("00000000000000000000.log"):
        print(batch.num_rows)

All expected failures are a ``JobError``; its subclass ``UserError`` means wrong arguments, sources or lakes.
A name is loaded at its first use, so that importing this package is fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing ``typing`` takes time, in which Ctrl-C would not be quiet
if TYPE_CHECKING:
    from typing import Any

    from kafka_log_lake.pipelines.cli.errors import UserError
    from kafka_log_lake.pipelines.cli.settings import CostSettings, Settings
    from kafka_log_lake.pipelines.dataframes.folders import decode_folder, read_segment
    from kafka_log_lake.pipelines.dataframes.frame import decode_frame
    from kafka_log_lake.pipelines.dataframes.register import register
    from kafka_log_lake.pipelines.decode.summary import Summary
    from kafka_log_lake.pipelines.decode_batches import decode_segments
    from kafka_log_lake.pipelines.decode_batches import run as decode
    from kafka_log_lake.pipelines.engine.session import get_session
    from kafka_log_lake.pipelines.find.command import find
    from kafka_log_lake.pipelines.ingest_raw import run as ingest
    from kafka_log_lake.pipelines.scan.command import scan
    from kafka_log_lake.pipelines.scan.findings import Findings
    from kafka_log_lake.pipelines.sql.database import connect
    from kafka_log_lake.udfs.errors import JobError
    from kafka_log_lake.udfs.files import DamageError, DamageWarning, decode_segment

__version__ = "0.2.0"  # the wheel's version too

__all__ = [
    "CostSettings",
    "DamageError",
    "DamageWarning",
    "Findings",
    "JobError",
    "Settings",
    "Summary",
    "UserError",
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
    "CostSettings": ("kafka_log_lake.pipelines.cli.settings", "CostSettings"),
    "DamageError": ("kafka_log_lake.udfs.files", "DamageError"),
    "DamageWarning": ("kafka_log_lake.udfs.files", "DamageWarning"),
    "Findings": ("kafka_log_lake.pipelines.scan.findings", "Findings"),
    "JobError": ("kafka_log_lake.udfs.errors", "JobError"),
    "Settings": ("kafka_log_lake.pipelines.cli.settings", "Settings"),
    "Summary": ("kafka_log_lake.pipelines.decode.summary", "Summary"),
    "UserError": ("kafka_log_lake.pipelines.cli.errors", "UserError"),
    "connect": ("kafka_log_lake.pipelines.sql.database", "connect"),
    "decode": ("kafka_log_lake.pipelines.decode_batches", "run"),
    "decode_folder": ("kafka_log_lake.pipelines.dataframes.folders", "decode_folder"),
    "decode_frame": ("kafka_log_lake.pipelines.dataframes.frame", "decode_frame"),
    "decode_segment": ("kafka_log_lake.udfs.files", "decode_segment"),
    "decode_segments": ("kafka_log_lake.pipelines.decode_batches", "decode_segments"),
    "find": ("kafka_log_lake.pipelines.find.command", "find"),
    "get_session": ("kafka_log_lake.pipelines.engine.session", "get_session"),
    "ingest": ("kafka_log_lake.pipelines.ingest_raw", "run"),
    "read_segment": ("kafka_log_lake.pipelines.dataframes.folders", "read_segment"),
    "register": ("kafka_log_lake.pipelines.dataframes.register", "register"),
    "scan": ("kafka_log_lake.pipelines.scan.command", "scan"),
}


def __dir__() -> list[str]:
    """Returns the names that Tab completes, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _EXPORTS:
        module, attribute = _EXPORTS[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

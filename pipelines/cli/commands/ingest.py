"""Declares the command ``ingest``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.commands.decode import DECODE
from kafka_log_lake.pipelines.cli.declaration import Command
from kafka_log_lake.pipelines.cli.settings import Decoding, Typing, Watching

_ONLY_FOR_DECODING = {
    *("include_swap", "with_indexes", "with_copies"),
    *(name for kind in (Decoding, Watching, Typing) for name in kind.__annotations__),
}
INGEST = Command(
    "ingest",
    "ingest_raw",
    "Land the bytes of Kafka log segments in a Delta table.",
    tuple(name for name in DECODE.settings if name not in _ONLY_FOR_DECODING),
    is_configurable=True,
    continues=True,
)

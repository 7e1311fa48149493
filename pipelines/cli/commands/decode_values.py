"""Declares the command ``decode-values``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.declaration import Command
from kafka_log_lake.pipelines.cli.settings import Typing

_OF_TYPES = tuple(name for name in Typing.__annotations__ if name != "typed")
DECODE_VALUES = Command(
    "decode-values",
    "decode_values",
    "Decode keys and values by the schema registry in the lake: a typed table for each topic. Needs no Java.",
    ("lake", "topics", "exclude_topics", *_OF_TYPES, "cores", "json"),
    continues=True,
)

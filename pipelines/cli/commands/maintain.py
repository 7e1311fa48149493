"""Declares the command ``maintain``: its settings, its arguments and its help."""

from __future__ import annotations

from functools import partial

from kafka_log_lake.pipelines.cli.declaration import Argument, Command
from kafka_log_lake.pipelines.cli.settings import LakeSettings
from kafka_log_lake.pipelines.cli.values import from_0

_age = partial(Argument, parse=from_0(878_401, "takes a whole number from 0 to 878,400"))
MAINTAIN = Command(
    "maintain",
    "maintain",
    "Compact the tables of a lake: merge small files, delete files and old rows that are not needed.",
    ("lake", "cores", "driver_memory", "json"),
    (
        _age(
            "vacuum_hours",
            "delete files that no version of the last hours needs; a reader that began earlier may fail",
            metavar="HOURS",
            default="168",
        ),
        _age(
            "keep_days",
            "drop the rows of segments whose file is gone and whose newest record is older",
            metavar="DAYS",
        ),
    ),
    continues=True,
    kind=LakeSettings,
)

"""Jobs in the process of a test, as a command runs them on one machine.

What needs no Spark runs in worker processes, which stay for the tests that follow. What needs it takes the
session of the test, if there is one. ``decode_batches.run(spark, ...)`` gives that session all tasks, as a
notebook does.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines import decode_batches, ingest_raw
from pipelines.command.on_demand import SparkOnDemand
from pipelines.command.processes import Processes
from pipelines.command.settings import Settings
from pipelines.execute.summary import Summary
from pipelines.source.listing import Listing

_PROCESSES = Processes(2)


class _OnDemand(SparkOnDemand):
    is_plain = True
    processes = _PROCESSES


def decode(spark: SparkSession | None, settings: Settings, listing: Listing | None = None) -> Summary:
    return decode_batches.decode_into(_OnDemand(settings, given=spark), settings, listing)


def ingest(spark: SparkSession | None, settings: Settings) -> Summary:
    return ingest_raw._run(_OnDemand(settings, given=spark), settings)


def end_processes() -> None:
    """Ends the worker processes; the next job starts others."""
    _PROCESSES.close()

"""Jobs in the process of a test, as a command runs them on one machine.

What needs no Spark runs in worker processes. What needs it takes the session of the test, if there is one.
``decode_batches.run(spark, ...)`` gives that session all tasks, as a notebook does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from kafka_log_lake.pipelines import ingest_raw
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.decode_into import decode_into
from kafka_log_lake.pipelines.decode.summary import Summary
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.listing.listing import Listing

# Lines of ``pipelines.cli.status``: the name of a phase, then its seconds or how much is done
_PROGRESS = re.compile(r"(?!error|warning|interrupted)[\w ]+: \d")


class _OnDemand(SparkOnDemand):
    is_plain = True


@contextmanager
def _on_demand(spark: SparkSession | None, settings: Settings) -> Iterator[SparkOnDemand]:
    one = _OnDemand(settings, given=spark)
    try:
        yield one
    finally:
        one.processes.close()


def decode(spark: SparkSession | None, settings: Settings, listing: Listing | None = None) -> Summary:
    with _on_demand(spark, settings) as one:
        return decode_into(one, settings, listing)


def ingest(spark: SparkSession | None, settings: Settings) -> Summary:
    with _on_demand(spark, settings) as one:
        return ingest_raw._run(one, settings)


def without_progress(said: str) -> list[str]:
    """Returns the lines of standard error that a busy machine has too: those that tell no progress."""
    return [line for line in said.splitlines() if not _PROGRESS.match(line)]


def error_line(said: str) -> str:
    """Returns the one line of standard error that tells the error, among lines of progress."""
    (line,) = without_progress(said)
    assert line.startswith("error: ")
    return line

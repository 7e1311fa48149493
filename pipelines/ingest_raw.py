"""Lands the bytes of segments in ``raw_segments``, so that they can be decoded after the broker deletes them.

Listing, plan and commits are those of ``decode_batches``; in place of the ledger, the plan compares the
listing with the landed bytes. Only new bytes are landed: a file that grew is landed from the end of its last
whole batch on, the chunks of a rewritten file are replaced.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # under spark-submit sys.path begins with this folder; the imports need its parent
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from kafka_log_lake.pipelines.cli.process import set_up_process

    set_up_process()

from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.commands.ingest import INGEST
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode import job
from kafka_log_lake.pipelines.decode.decode import Decoded
from kafka_log_lake.pipelines.decode.land import Lander
from kafka_log_lake.pipelines.decode.metrics import Metrics
from kafka_log_lake.pipelines.decode.print_summary import print_summary
from kafka_log_lake.pipelines.decode.summary import Summary, TopicTotals
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand, spark_on_demand
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.lake.published import INGEST_APP
from kafka_log_lake.pipelines.plan.landed import Landed


def run(spark: SparkSession, settings: Settings) -> Summary:
    """Lands new bytes of the sources in the table ``raw_segments`` of a lake, undecoded.

    Parameters
    ----------
    spark: the session; it is used where a step needs Spark.
    settings: which sources and lake; ``source`` and ``lake`` are needed.

    Returns
    -------
    Summary: the counts of this run, such as ``bytes`` and ``chunks`` landed. A second call lands only what is
    new.

    Raises
    ------
    UserError: a setting, a source or the lake is wrong (``LakeBusy``: another job writes to it).
    JobError: the run failed; nothing of it is in the lake's published state.
    """
    with spark_on_demand(settings, given=spark) as on_demand:
        return _run(on_demand, settings)


def _run(on_demand: SparkOnDemand, settings: Settings) -> Summary:
    return job.run(on_demand, settings, job.JobKind(INGEST_APP, _known, Lander, _count, chunks=0))


def _count(summary: Summary, landed: Decoded, lake: LakeWriter) -> None:
    """Adds the results of one bounded run to the summary."""
    for verdict in landed.changes:
        segment = verdict.segment
        summary.add(segment.topic, segment.partition, TopicTotals(bytes=segment.planned_bytes))
    chunks = lake.chunks_of_run(summary.run_id)
    summary.chunks = chunks.num_rows
    summary.unreadable_chunks = [
        (row["segment"], row["chunk_position"])
        for row in chunks.filter(chunks.column("crc32c").is_null()).to_pylist()
    ]


def _known(lake: LakeWriter) -> pa.Table:
    """Returns how far each file was landed by earlier runs, in columns of the ledger."""
    return Landed(lake.read).known()


def _job(on_demand: SparkOnDemand, settings: Settings) -> None:
    metrics = Metrics(settings.metrics)
    with metrics.counting_failures():
        summary = _run(on_demand, settings)
    metrics.done(summary)
    print_summary(summary, settings.json)


main = partial(run_command, INGEST, _job)

if __name__ == "__main__":
    sys.exit(main())

"""Decodes segments into the tables of a lake, inside of another job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kafka_log_lake.pipelines.cli.settings import CATALOG, Settings
from kafka_log_lake.pipelines.decode import job
from kafka_log_lake.pipelines.decode.decode import Decoded, Decoder
from kafka_log_lake.pipelines.decode.summary import Summary, TopicTotals
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.lake.address import open_lake
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.lake.published import DECODE_APP
from kafka_log_lake.pipelines.listing.hadoop import job_scheme
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.plan.landed import Landed
from kafka_log_lake.pipelines.plan.runs import Plan


def decode_into(
    on_demand: SparkOnDemand,
    settings: Settings,
    listing: Listing | None = None,
    is_due: Callable[[Plan], bool] = lambda plan: True,
    drops_missing: bool = False,
) -> Summary:
    """Does what ``run`` does inside of another job, and returns its Summary.

    listing: the segments; None: those that the sources hold. is_due: whether a plan is to be carried out now.
    drops_missing: whether rows of every segment go that the sources do not have any more.
    """
    if settings.from_raw and settings.sink != CATALOG:
        open_lake(settings.require_lake(), job_scheme(on_demand))
    return job.run(
        on_demand,
        settings,
        job.JobKind(
            app_id=DECODE_APP,
            known=lambda lake: lake.ledger(),
            runner=Decoder,
            count=_count,
            landed=partial(_landed, settings) if settings.from_raw else None,
            finds_missing=True,
            is_due=is_due,
            drops_missing=drops_missing,
            listing=listing,
        ),
    )


def _landed(settings: Settings, lake: LakeWriter) -> tuple[Listing, job.CheckFiles]:
    """Returns the landed segments of a lake, and the check of their fingerprints."""
    landed = Landed(lake.read)
    topic_filter = TopicFilter(settings.topics, settings.exclude_topics)
    return landed.listing(topic_filter, null_topic=settings.sink == "arrow"), landed.check


def _count(summary: Summary, decoded: Decoded, lake: LakeWriter) -> None:
    """Adds the results of one bounded run to the summary."""
    for verdict in decoded.changes:
        totals, segment = verdict.totals, verdict.segment
        counts = TopicTotals(
            batches=totals.batches,
            records=totals.records,
            bytes=segment.planned_bytes,
            damaged=totals.damaged,
        )
        summary.add(segment.topic, segment.partition, counts)
        if totals.damaged:
            summary.damaged_segments[segment.segment] = totals.damaged
        summary.in_part += verdict.row is not None and verdict.row.left_out > 0
        if totals.offset_regressions:
            summary.regressing.add(segment.segment)
        summary.damaged_bytes += totals.quarantined_bytes
        if totals.unreadable_bytes:
            summary.unreadable[segment.segment] = totals.unreadable_bytes
    summary.uncertain |= set(decoded.outcome.uncertain)
    summary.unknown_outcomes += decoded.outcome.unknown

"""``kafka-log-lake scan PATH``: shows what a log directory holds. Needs no Java and no lake, writes nothing.

Uses the listing and the decoder of ``decode_batches``, in worker processes on all cores.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from functools import partial

from kafka_log_lake.pipelines.cli.commands.scan import SCAN
from kafka_log_lake.pipelines.cli.declaration import SORTS
from kafka_log_lake.pipelines.cli.errors import DamageFound, UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.status import phase
from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.listing.identity import clusters_of
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter, no_segments_error
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.uris import is_named, parse_source
from kafka_log_lake.pipelines.load_check.check import check_loading
from kafka_log_lake.pipelines.plan.listed import list_sources, listed_segments
from kafka_log_lake.pipelines.plan.slices import make_slices
from kafka_log_lake.pipelines.scan import report
from kafka_log_lake.pipelines.scan.coordinators import add_endings
from kafka_log_lake.pipelines.scan.findings import Findings, collect
from kafka_log_lake.pipelines.scan.payload_kinds import SchemaSegments, kinds_of_topic
from kafka_log_lake.pipelines.scan.report_json import to_json
from kafka_log_lake.pipelines.tasks.scan_segments import scan_segments, scan_workers
from kafka_log_lake.pipelines.tasks.slice_scan import scan_slice
from kafka_log_lake.udfs.decoder.compile_kernels import ensure_compiled
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormats
from kafka_log_lake.udfs.values.typed.records import schema_segments
from kafka_log_lake.udfs.values.typed.sample import segments_by_topic

log = logging.getLogger(__name__)


def scan(settings: Settings | str | os.PathLike[str]) -> Findings:
    """Reads all segments of a path and returns what they hold, log by log. Writes nothing, needs no Spark.

    Parameters
    ----------
    settings: a path (log directory, partition folder, ``.log`` file or glob), or ``Settings`` with
        ``source``.

    Returns
    -------
    Findings: counts, damage with the offsets it may cost, open transactions; ``seconds`` is the time it took,
        without that of the first command, which compiles the decoder.

    Raises
    ------
    UserError: there is no segment.
    """
    ensure_compiled()
    began = time.monotonic()
    if not isinstance(settings, Settings):
        settings = Settings(source=(os.fspath(settings),))
    listing = list_sources(settings)
    segments = [segment for segment, wanted in listed_segments(listing) if wanted]
    if not segments and not listing.unreadable:
        raise no_segments_error(settings.source, listing)
    total, done = sum(segment.length for segment in segments), 0

    def add(size: int) -> None:
        nonlocal done
        done += size

    schemas = SchemaSegments(tuple(schema_segments(listing.segments)), _formats(settings))
    scan_one = partial(scan_slice, max_batch_uncompressed=settings.max_batch_uncompressed)
    numbers = (settings.processes, settings.slice_bytes)
    progress = phase("scanning", lambda: f"{100 * done // max(1, total)}% of {size_text(total)}")
    with progress, scan_workers(make_slices(segments, settings.slice_bytes), settings.processes) as run:
        findings = collect(settings.source, listing, scan_segments(segments, *numbers, add, scan_one, run))
        uris = segments_by_topic(listing.segments)
        topics = sorted({log.topic for log in findings.logs})
        kinds = run(partial(kinds_of_topic, schemas=schemas), [(topic, uris[topic]) for topic in topics])
        findings.looks = dict(zip(topics, kinds, strict=True))
    if settings.topic is not None and settings.partition is not None:
        findings.named = settings.topic, settings.partition
    _add_placements(findings, listing, settings)
    add_endings(findings, listing)
    _add_unloadable(findings, listing)
    findings.seconds = time.monotonic() - began
    return findings


def _formats(settings: Settings) -> TopicFormats:
    if settings.formats is None:
        return TopicFormats()
    from kafka_log_lake.pipelines.typed.sources import read_formats  # few scans need it

    return read_formats(settings.formats)


def _add_unloadable(findings: Findings, listing: Listing) -> None:
    """Adds what stops the newest release, and faults of older ones: they need not know its newer records."""
    check = check_loading(listing)
    findings.warnings += check.warnings
    findings.unloadable = [entry for entry in check.unloadable if entry.stop.issue or entry.stop.is_of_newest]


def _add_placements(findings: Findings, listing: Listing, settings: Settings) -> None:
    """Adds what metadata logs on the disks say of leaders and replicas, and the clusters of the disks."""
    log_dirs = listing.witnesses.log_dirs
    findings.clusters = clusters_of(log_dirs)
    if any(os.path.isdir(os.path.join(log_dir, f"{METADATA_TOPIC}-0")) for log_dir in log_dirs):
        from kafka_log_lake.pipelines.recover.listed_disks import (
            placements_of,  # decoders, which few scans need
        )

        is_meant = TopicFilter(settings.topics, settings.exclude_topics)
        with phase("reading the metadata log"):
            findings.placements = placements_of(listing, is_meant, findings.warnings)


def _compared(settings: Settings) -> list[dict[str, object]]:
    """Returns rows of ``replica_report`` for named disks. Raises a UserError for disks of two clusters."""
    from kafka_log_lake.pipelines.recover.compare import compare  # few scans need it
    from kafka_log_lake.pipelines.recover.rows import replica_rows
    from kafka_log_lake.pipelines.recover.sources import find_copies

    topics = TopicFilter(settings.topics, settings.exclude_topics)
    inventory = find_copies(settings.source, topics, settings.include_deleted)
    return [row for comparison in compare(inventory, settings) for row in replica_rows(comparison)]


def run(
    settings: Settings,
    path: Sequence[str] = (),
    sort: str = SORTS[0],
    price_per_gb_month: float | None = None,
) -> None:
    """Scans and prints the findings. Raises DamageFound if there is damage and ``fail_on_damage`` is set.

    sort: one of SORTS, the order of topics. price_per_gb_month: of 10^9 bytes in a tier; None: not known.
    """
    sources = (*path, *settings.source)
    if not (sources or settings.tier):
        raise UserError("PATH is missing: name a log directory, partition folder, .log file or glob")
    places = tuple(parse_source(source).path for source in sources)
    findings = scan(dataclasses.replace(settings, source=places))
    findings.sort, findings.price_per_gb_month = sort, price_per_gb_month
    if is_named(sources):
        findings.sources = sources
        findings.replicas = _compared(dataclasses.replace(settings, source=sources))
    for text in findings.warnings:
        log.warning("%s", text)
    if settings.json:
        print(json.dumps(to_json(findings)))
    elif sys.stdout.isatty():
        report.print_rich(findings)
    else:
        for line in report.to_text(findings):
            print(line)
    if settings.fail_on_damage and findings.is_damaged:
        raise DamageFound


main = partial(run_command, SCAN, run, with_spark=False)

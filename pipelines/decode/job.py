"""Runs the steps that decoding and landing share, from sources to committed tables.

The sources are listed, the listing is compared with the ledger or with the landed bytes, and bounded runs
follow each other until every planned segment is done. ``JobKind`` holds what differs between the two jobs.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import CATALOG, Settings
from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_lines, first_names
from kafka_log_lake.pipelines.decode.clusters import check_cluster
from kafka_log_lake.pipelines.decode.decode import Decoded, Runner
from kafka_log_lake.pipelines.decode.indexes import write_indexes
from kafka_log_lake.pipelines.decode.lineage import Lineage
from kafka_log_lake.pipelines.decode.log_starts import store_log_starts
from kafka_log_lake.pipelines.decode.missing_offsets import (
    find_missing,
    ledger_of_logs,
    tails_of,
)
from kafka_log_lake.pipelines.decode.progress import Pace, Progress
from kafka_log_lake.pipelines.decode.reader import open_reader
from kafka_log_lake.pipelines.decode.summary import Summary, counted
from kafka_log_lake.pipelines.decode.tier_report import store_tier
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.lake.address import lake_address
from kafka_log_lake.pipelines.lake.catalog_lake import CatalogIntents, CatalogLake
from kafka_log_lake.pipelines.lake.catalog_schema import CatalogSchema
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.lake.create import check_place, create_tables
from kafka_log_lake.pipelines.lake.intents import Intent, Intents
from kafka_log_lake.pipelines.lake.path_lake import PathLake
from kafka_log_lake.pipelines.lake.published import DECODE_APP
from kafka_log_lake.pipelines.lake.upkeep import drop
from kafka_log_lake.pipelines.listing import hadoop
from kafka_log_lake.pipelines.listing.identity import check_one_cluster
from kafka_log_lake.pipelines.listing.list_segments import no_segments_error
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.naming import NO_TABLE_HOLDS, UNREADABLE
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.pipelines.plan import file_checks, ledger
from kafka_log_lake.pipelines.plan.listed import list_sources
from kafka_log_lake.pipelines.plan.runs import Plan, Rules, make_plan
from kafka_log_lake.pipelines.tasks.slice_rows import (
    stage_options,
)
from kafka_log_lake.pipelines.views.permanent import PermanentViews, register_in_catalog
from kafka_log_lake.udfs.format.patterns import compiled
from kafka_log_lake.udfs.format.report_tables import RUNS
from kafka_log_lake.udfs.spark.protocol import StageOptions
from kafka_log_lake.udfs.storage.fingerprint import FileMatch
from kafka_log_lake.udfs.storage.store import canonical_uri
from kafka_log_lake.udfs.values.schemas.registry import SCHEMAS_TOPIC

log = logging.getLogger(__name__)

# Table of fingerprint.TO_CHECK_SCHEMA -> the result of each row
CheckFiles = Callable[[pa.Table], list[FileMatch]]


@dataclass(frozen=True)
class JobKind:
    """What differs between the jobs that share these steps: decoding and landing.

    app_id: of its Delta transactions.
    known: gives the segments that earlier runs decoded or landed, in columns of the ledger.
    runner: executes the bounded runs.
    count: adds the results of a bounded run to the summary.
    landed: lists landed bytes and gives the check of their fingerprints; None if files are decoded.
    listing: the files; None: those that the sources hold.
    finds_missing: whether the offsets that no segment has are looked for.
    is_due: whether what is planned is done now; else the lake stays as it is, and a later job plans it again.
    chunks: of the summary before anything is landed; None if the job decodes.
    drops_missing: whether the lake keeps nothing that the sources do not have (``plan.runs.Rules``).
    """

    app_id: str
    known: Callable[[LakeWriter], pa.Table]
    runner: type[Runner]
    count: Callable[[Summary, Decoded, LakeWriter], None]
    landed: Callable[[LakeWriter], tuple[Listing, CheckFiles]] | None = None
    listing: Listing | None = None
    finds_missing: bool = False
    is_due: Callable[[Plan], bool] = lambda plan: True
    chunks: int | None = None
    drops_missing: bool = False


def run(on_demand: SparkOnDemand, settings: Settings, work: JobKind) -> Summary:
    """Executes a job on the new and changed segments of its sources. Raises a JobError if it fails."""
    began = time.monotonic()
    began_us = time.time_ns() // 1000
    address, lineage = _address(on_demand, settings), Lineage(settings.lineage)
    run_id = uuid.uuid4().hex
    progress = Progress(functools.partial(on_demand.described, f"kafka-log-lake run {run_id}"))
    listing = work.listing
    catalog = CatalogSchema(on_demand, address) if settings.sink == CATALOG else None
    with progress.phase("opening the lake"):
        opened = check_place(address) if catalog is None else None
        is_there = opened is not None or (catalog is not None and catalog.has_lake())
    if listing is None and work.landed is None and not is_there:
        # Before the lake is created: wrong sources must leave no empty lake
        listing = _list(on_demand, settings, progress)
        if not (listing.has_wanted or listing.unreadable):
            raise no_segments_error(settings.source, listing)
    with _open_for_writing(
        on_demand, address, settings, work.app_id, catalog, opened, progress, run_id
    ) as lake:
        check: CheckFiles = functools.partial(file_checks.check, on_demand)
        if work.landed is not None:
            listing, check = work.landed(lake)
        elif listing is None:
            # under the lock: another job may just have ended
            listing = _list(on_demand, settings, progress, may_be_empty=work.drops_missing)
        summary = Summary(run_id=run_id, lake=lake.address, chunks=work.chunks)
        with progress.phase("opening the lake"):
            summary.cluster_id = lake.cluster_id = check_cluster(listing, lake)

        def note_run() -> None:
            _note_time(summary, progress, began)
            with progress.phase("noting the run"):
                if summary.segments or (summary.unread and summary.unread != _unread_before(lake)):
                    lake.add_rows(RUNS, summary.to_row(began_us))
            _note_time(summary, progress, began)

        options = stage_options(settings, lake.address, summary.run_id, began_us)
        with progress.phase("planning"):
            rules = replace(_rules(on_demand, settings, listing, check), drops_missing=work.drops_missing)
            plan = make_plan(listing, work.known(lake), rules)
        if not (work.drops_missing or plan.found or plan.left_out.num_rows or listing.unreadable):
            if settings.from_raw:
                raise UserError("nothing was landed in the lake: run ingest first, or decode files")
            raise no_segments_error(settings.source, listing)
        if work.is_due(plan):
            events = lineage.run(settings.source, summary) if plan.has_changes else nullcontext()
            with events:
                if not _run_all(on_demand, settings, work, lake, listing, plan, options, summary, progress):
                    note_run()
                    raise KeyboardInterrupt(
                        f"{summary.segments:,} of {plan.planned:,} segments are in the lake"
                    )
        if catalog is not None:
            with progress.phase("creating views"):
                _views(catalog).create(catalog.described, catalog.names)
        note_run()
    return summary


def _views(catalog: CatalogSchema) -> PermanentViews:
    return PermanentViews(catalog.spark, catalog.quoted, catalog.begin, catalog.names, catalog.ending)


def _note_time(summary: Summary, progress: Progress, began: float) -> None:
    """Sets how long the run took until now, and its phases, which are all of that."""
    summary.seconds, summary.phases = time.monotonic() - began, dict(progress.seconds)
    summary.phases["other"] = max(0.0, summary.seconds - sum(summary.phases.values()))


def _address(on_demand: SparkOnDemand, settings: Settings) -> str:
    """Returns the address of the lake, or its schema's name. Raises a UserError if no job may write there."""
    lake = settings.require_lake()
    if settings.sink != CATALOG:
        address = lake_address(lake, hadoop.job_scheme(on_demand))
        refuse_lake_in_source(address, settings.source)
        return address
    if on_demand.is_plain:
        raise UserError(
            "--sink catalog needs a catalog that outlives this process: use a session of Databricks, or "
            "spark-submit with a metastore"
        )
    return lake


def refuse_lake_in_source(address: str, sources: Sequence[str]) -> None:
    """Raises a UserError for a lake below a source: each run would search it for segments."""
    for source in sources:
        path = local_path(source)
        if path is not None and "://" not in address and os.path.isdir(path):
            folder = os.path.realpath(path)
            if os.path.commonpath([folder, os.path.realpath(address)]) == folder:
                raise UserError(f"--lake {address} lies in --source {source}: choose a folder outside it")
        if path is None and f"{address}/".startswith(f"{canonical_uri(source).rstrip('/')}/"):
            raise UserError(f"--lake {address} lies in --source {source}: choose a folder outside it")


@contextmanager
def _open_for_writing(
    on_demand: SparkOnDemand,
    address: str,
    settings: Settings,
    app_id: str,
    catalog: CatalogSchema | None,
    opened: DeltaTable | None,
    progress: Progress,
    run_id: str,
) -> Iterator[LakeWriter]:
    """Opens a lake: locks it, creates missing tables, finishes runs that were killed.

    catalog: the schema of a lake in a catalog, else None. opened: the ledger of a complete lake by its path.
    """
    intents = Intents(address) if catalog is None else CatalogIntents(catalog)
    with intents.lock():
        with progress.phase("opening the lake"):
            lake: LakeWriter
            if catalog is not None:
                if not catalog.has_lake():
                    catalog.create_lake()
                elif not _views(catalog).are_of_this_release(catalog.described):
                    _views(catalog).add_columns()
                lake = CatalogLake(on_demand, address, intents, app_id)
            else:
                create_tables(address, is_complete=opened is not None)
                lake = PathLake(on_demand, address, intents, app_id, opened)
            lake.recover()
            if app_id == DECODE_APP:
                lake.fill_findings(run_id)
            if catalog is None and settings.catalog_schema:
                register_in_catalog(on_demand.spark, address, settings.catalog_schema)
        yield lake


def _run_all(
    on_demand: SparkOnDemand,
    settings: Settings,
    work: JobKind,
    lake: LakeWriter,
    listing: Listing,
    plan: Plan,
    options: StageOptions,
    summary: Summary,
    progress: Progress,
) -> bool:
    """Executes the bounded runs of a plan, and adds their results to the summary.

    Returns False where Ctrl-C stopped it: what was decoded until then is committed, the rest is as it was.
    """
    warnings = Counter([*_warnings(listing, settings), *listing.checkpoints.warnings])
    if plan.planned:
        warnings.update(plan.warnings)
    unreadable, changed = {**listing.unreadable, **plan.unreadable}, dict[str, str]()
    progress.planned, progress.planned_bytes = plan.planned, plan.new_bytes
    with progress.phase("noting log starts"):
        _note_left_out(lake, plan, options, settings.max_files_per_run)
        if work.landed is None:  # landed bytes: their ingest stored them
            store_log_starts(lake, listing, options)
    pace = Pace(settings.max_bytes_per_run)
    for segments in plan.runs(settings.max_files_per_run, lambda: pace.limit):
        began = time.monotonic()
        if settings.from_raw:
            segments = lake.located(segments)
        with open_reader(on_demand, settings, segments, lake, progress) as reader:
            runner = work.runner(lake, reader, settings.sink, options, progress, plan.obsolete)
            decoded = runner.run(segments)
        work.count(summary, decoded, lake)
        pace.took(sum(s.planned_bytes for s in segments), time.monotonic() - began)
        if decoded.was_stopped:
            return False
        changed |= decoded.changed
        unreadable |= decoded.unreadable
    rest = plan.obsolete.rest()  # no run replaces it
    with progress.phase("committing"):
        drop(lake, rest, options.run_id)
    plan.obsolete.done([], [], rest)
    warnings.update(_left_segments("changed while it was read, left for the next run", changed))
    warnings.update(plan.obsolete.warnings())
    warnings.update(_left_segments("can't be read", unreadable))
    _note_plan(summary, settings, listing, plan, unreadable)
    if work.finds_missing:
        with progress.phase("finding missing offsets"):
            rows = ledger_of_logs(lake, plan)
            summary.missing = find_missing(lake, listing, rows, options)
            summary.tails = tails_of(rows)
    if listing.tier_report is not None:
        with progress.phase("comparing the tier"):
            store_tier(lake, listing)
    if settings.with_indexes:
        with progress.phase("indexes"):
            write_indexes(lake, listing.segments, summary.run_id)
    summary.warnings = counted(warnings) + summary.own_warnings()
    return True


def _note_plan(
    summary: Summary, settings: Settings, listing: Listing, plan: Plan, unreadable: Mapping[str, str]
) -> None:
    """Adds to the summary what the listing and the ledger say of segments that the run did not decode.

    unreadable: URI -> why, of all that can't be read.
    """
    summary.unread = sorted(unreadable)
    summary.known_damage = plan.known_counts("damaged")
    summary.regressing |= plan.known_counts("offset_regressions").keys()
    in_part, summary.undecoded = plan.known_in_part()
    summary.in_part += in_part
    summary.has_schemas = settings.sink != CATALOG and listing.has_topic(SCHEMAS_TOPIC)
    summary.touched = 0 if settings.verify_content or settings.from_raw else plan.touched
    summary.unchanged, summary.skipped = plan.unchanged, dict(sorted(listing.skipped.items()))
    summary.swap_files = listing.swap_files
    files = len(unreadable.keys() - listing.unreadable.keys())
    if files:
        summary.skipped[UNREADABLE] = summary.skipped.get(UNREADABLE, 0) + files


def _left_segments(what: str, segments: Mapping[str, str]) -> list[str]:
    """Returns warnings about segments that a run left. segments: URI -> why."""
    return first_lines([f"{name} {what}: {why}" for name, why in sorted(segments.items())], what)


def _unread_before(lake: LakeWriter) -> list[str]:
    """Returns the files and folders that the last run could not read."""
    runs = lake.read(RUNS, ["began_at", "unreadable"]).sort_by("began_at") if lake.has(RUNS) else None
    last = runs.column("unreadable").to_pylist()[-1:] if runs else []
    return next(iter(last), None) or []


def _note_left_out(lake: LakeWriter, plan: Plan, options: StageOptions, max_files: int) -> None:
    """Writes the ledger rows of segments that are left out: a log has no gap where they are."""
    rows = plan.new_left_out(options.run_id, options.began_us)
    while some := list(itertools.islice(rows, max_files)):
        lake.commit(Intent(lake.app_id, lake.next_version(), options.run_id, put=some, only_new=True))


def plan_afresh(on_demand: SparkOnDemand, settings: Settings) -> Plan:
    """Makes the plan of a job without a ledger, to which all segments are new."""
    listing = _list(on_demand, settings, Progress())
    nothing = ledger.to_arrow([]).cast(ledger.SCHEMA)
    check = functools.partial(file_checks.check, on_demand)
    return make_plan(listing, nothing, _rules(on_demand, settings, listing, check))


def _list(
    on_demand: SparkOnDemand, settings: Settings, progress: Progress, may_be_empty: bool = False
) -> Listing:
    """Lists ``--source``. Raises a UserError if a source can't be opened."""
    if not (settings.source or settings.tier):
        raise UserError("--source is missing: name a log directory, partition folder, .log file or glob")
    with progress.phase("listing"):
        null_topic = settings.sink == "arrow"
        listing = list_sources(
            settings,
            on_demand=on_demand,
            null_topic=null_topic,
            include_deleted=None,
            may_be_empty=may_be_empty,
        )
        check_one_cluster(listing.log_dirs)
        return listing


def _warnings(listing: Listing, settings: Settings) -> list[str]:
    """Returns warnings about files that no table can hold, and a ``--redecode`` that matches none."""
    warnings = [
        f"{counted_noun(listing.skipped[r], 'file')} skipped: {r}"
        for r in NO_TABLE_HOLDS
        if r in listing.skipped
    ]
    if settings.redecode:
        expression = compiled(settings.redecode)
        names = listing.segments.column("segment").to_pylist()
        if not any(map(expression.search, names)):
            warnings.append(f"--redecode {settings.redecode!r} matches no segment: {first_names(names, 3)}")
    return warnings


def _rules(on_demand: SparkOnDemand, settings: Settings, listing: Listing, check: CheckFiles) -> Rules:
    redecode = compiled(settings.redecode) if settings.redecode else None
    landed = set(listing.segments.column("segment").to_pylist()) if settings.from_raw else set()
    landed |= set(listing.segments.column("partition_dir").to_pylist()) if settings.from_raw else set()
    return Rules(
        check=check,
        is_gone=lambda uri: (
            uri in listing.replaced or (uri not in landed and file_checks.is_gone(on_demand, uri))
        ),
        is_requested=redecode and (lambda segment: redecode.search(segment) is not None),
        compare_all=settings.verify_content or settings.from_raw,
        one_copy=settings.one_copy,
        scope=settings.scope,
        are_known_unread=file_checks.are_same_objects,
    )

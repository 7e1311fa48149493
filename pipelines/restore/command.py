"""``kafka-log-lake restore``: sources or a lake -> a plan -> topics -> records, each once -> read back.

SOURCES are decoded into ``STATE/lake``, or healed there, so that one rule says which records are committed.
The steps of other modules are called in this order: topics of the target are checked and created, schemas,
records (``producing``), the tables of the state (``offset_map``), the reading back (``verify``), groups.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import duckdb

from kafka_log_lake.pipelines.cli.commands.restore import RESTORE
from kafka_log_lake.pipelines.cli.errors import NotAllRestored, UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.status import phase
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.values import partition_number
from kafka_log_lake.pipelines.decode.decode_into import decode_into
from kafka_log_lake.pipelines.engine.driver import driver_of
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.pool import Map
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.lake.address import lake_address, open_lake, open_log
from kafka_log_lake.pipelines.lake.create import check_path
from kafka_log_lake.pipelines.listing.uris import is_named
from kafka_log_lake.pipelines.recover.job import recover, refuse_in_source
from kafka_log_lake.pipelines.recover.report_folder import check_report_folder
from kafka_log_lake.pipelines.restore import cluster, groups, offset_map, page, schemas, targets
from kafka_log_lake.pipelines.restore.clients import DECIDED
from kafka_log_lake.pipelines.restore.journal import confirmed
from kafka_log_lake.pipelines.restore.plan import Plan, make_plan
from kafka_log_lake.pipelines.restore.producing import Task, restore_partition, settle, told
from kafka_log_lake.pipelines.restore.request import (
    Request,
    check,
    read_keys,
    read_properties,
    rename_pairs,
)
from kafka_log_lake.pipelines.restore.state import State, alone, check_sources, sees
from kafka_log_lake.pipelines.restore.summary import Summary, add_held, planned
from kafka_log_lake.pipelines.restore.verify import Verified, verify_partition
from kafka_log_lake.pipelines.sql.database import duckdb_reads, open_database
from kafka_log_lake.udfs.storage.byte_source import path_of_uri

log = logging.getLogger(__name__)

_ALSO_DECODED = ("__consumer_offsets", "__cluster_metadata", "__share_group_state", "_schemas")
_LONG_SECONDS = 30  # without a confirmed record: a transaction takes less
_OWN = (
    *("path", "at", "log", "bootstrap_server", "config", "partition", "keys", "committed", "as_written"),
    *("rename", "partitions", "with_origin", "create", "append", "dry_run", "max_bytes_per_second", "state"),
)


def run(on_demand: SparkOnDemand, settings: Settings, path: Sequence[str], **others: Any) -> None:
    """Restores records into a cluster.

    Raises a UserError for wrong arguments, a NotAllRestored where something is not there.
    """
    began = time.monotonic()
    check(settings, list(path), others)
    if others["report"] is not None:
        check_report_folder(others["report"], "restore")
    request = _request(settings, others)  # what is wrong in it is said before anything is decoded
    sources = (*settings.source, *path)
    if sources:
        refuse_in_source("--state", request.state, sources)
    with nullcontext() if request.dry_run else alone(request.state):
        _run(on_demand, settings, request, sources, others["state"], began)


def _run(
    on_demand: SparkOnDemand,
    settings: Settings,
    request: Request,
    sources: tuple[str, ...],
    folder: str,
    began: float,
) -> None:
    state = State(folder, request)
    if sources:
        check_sources(request.state, (*sources, *settings.tier))
        _decode(on_demand, settings, sources, request)
    state.pin()
    request = state.request
    database = open_database(request.lake, "", at=request.at)
    with phase("planning"):
        plan = make_plan(database, request)
    summary = planned(state.restore_id, request.bootstrap, plan)
    if request.dry_run:
        _dry_run(request, plan, database, summary, settings.json, state.is_continued)
        return
    try:
        _restore(on_demand, request, plan, state, database, summary)
    finally:
        database.close()
    summary.seconds = time.monotonic() - began
    if request.create == "only":
        log.info("the topics are there; --create only writes no record")
        summary.ask_no_record()
    if request.more["report"] is not None:
        page.write_page(request.more["report"], summary)
    _print(summary, settings.json)
    if not summary.is_whole:
        raise NotAllRestored("not all that was asked for is in the target: exit code 3")


def _request(settings: Settings, others: dict[str, Any]) -> Request:
    lake = settings.lake
    if lake is not None:
        lake = open_log(lake, others["log"]) if others["log"] is not None else open_lake(lake)
        if not duckdb_reads(lake):
            raise UserError(f"restore reads no lake at {lake}: copy it to a folder or an object store")
    try:
        state = lake_address(others["state"])
    except UserError as error:
        raise UserError(str(error).replace("--lake", "--state")) from None
    check_path(state, "--state")
    client = {} if others["config"] is None else read_properties(others["config"])
    if decided := sorted(name for name in client if name in DECIDED):
        log.warning("--config: restore itself decides %s: left out", ", ".join(decided))
    return Request(
        lake=lake or f"{state}/lake",
        at=others["at"],
        bootstrap=others["bootstrap_server"] or "",
        state=state,
        client={name: value for name, value in client.items() if name not in DECIDED},
        topics=settings.topics,
        exclude_topics=settings.exclude_topics,
        partitions_of=tuple(map(_partition, others["partition"] or ())),
        since=settings.since,
        until=settings.until,
        offsets=settings.offsets,
        keys=() if others["keys"] is None else read_keys(others["keys"]),
        committed=not others["as_written"],
        rename=rename_pairs(others["rename"] or ()),
        partitions=others["partitions"],
        with_origin=others["with_origin"],
        create=others["create"],
        append=others["append"],
        dry_run=others["dry_run"],
        rate=others["max_bytes_per_second"],
        processes=settings.processes,
        more={name: value for name, value in others.items() if name not in _OWN},
    )


def _partition(text: str) -> int:
    try:
        return int(partition_number(text))
    except ValueError as error:
        raise UserError(f"--partition {error}") from None


def _decode(on_demand: SparkOnDemand, settings: Settings, sources: tuple[str, ...], request: Request) -> None:
    """Decodes or heals the sources into the state's lake: all offsets, as proofs need what is around."""
    also = "|".join(_ALSO_DECODED)
    topics = settings.topics and f"(?:{settings.topics})|{also}"
    of_lake = dataclasses.replace(
        settings,
        source=sources,
        lake=request.lake,
        topics=topics,
        since=None,
        until=None,
        offsets=None,
        json=False,
        one_copy=not is_named(sources),
    )
    if is_named(sources):
        done = recover(of_lake, partial(decode_into, on_demand, drops_missing=True), on_demand.map)
        summary, more = done.summary, done.warnings()
    else:
        summary, more = decode_into(on_demand, of_lake), []
    for warning in (*summary.warnings, *more):
        log.warning("%s", warning)


def _dry_run(
    request: Request,
    plan: Plan,
    database: duckdb.DuckDBPyConnection,
    summary: Summary,
    as_json: bool,
    is_continued: bool,
) -> None:
    summary.groups += groups.plan_groups(request, database)
    summary.schemas += schemas.plan_schemas(request)
    summary.security += cluster.plan_security(request, database)
    if request.bootstrap:
        target = targets.look(request)
        checked = targets.check(request, plan, target, True)
        summary.warnings += checked.warnings
        if not (is_continued or request.append):
            summary.warnings += targets.with_records(request, plan, target)
        missing = [topic.target for topic in plan.topics if topic.target not in target.partitions]
        summary.warnings += [f"the target has no topic {name}: --create yes creates it" for name in missing]
    for warning in summary.warnings:
        log.warning("%s", warning)
    print(summary.as_json() if as_json else "\n".join(summary.lines(is_plan=True)))


def _restore(
    on_demand: SparkOnDemand,
    request: Request,
    plan: Plan,
    state: State,
    database: duckdb.DuckDBPyConnection,
    summary: Summary,
) -> None:
    target = targets.look(request)
    state.check_cluster(target.cluster_id)
    targets.check(request, plan, target, state.is_continued)
    specs = cluster.topic_specs(database, [topic.topic for topic in plan.topics])
    missing, said = targets.missing(request, plan, target, specs)
    summary.warnings += state.note(target.cluster_id, said)
    targets.make(request, missing)
    checked = targets.check(request, plan, targets.look(request), True)
    summary.warnings += checked.warnings
    for warning in summary.warnings:
        log.warning("%s", warning)
    summary.security += cluster.restore_security(request, database)
    if request.create == "only":
        return
    state.keep(target.cluster_id)
    summary.schemas += schemas.restore_schemas(request, plan)
    map_, at_once = _workers(on_demand, request, state, len(plan.partitions))
    request = dataclasses.replace(request, processes=at_once)  # each has its part of --max-bytes-per-second
    tasks = [
        Task(request, partition, state.restore_id, checked.limits[partition.target])
        for partition in plan.partitions
    ]
    _write(map_, request, plan, tasks)
    _verify(map_, tasks, summary)
    translator = offset_map.Translator(offset_map.read(request.state))
    summary.groups += groups.restore_groups(request, database, plan, translator)


def _workers(on_demand: SparkOnDemand, request: Request, state: State, partitions: int) -> tuple[Map, int]:
    """Returns what maps a function over partitions, and how many it may do at the same time.

    Processes of this machine do, or tasks of a cluster of Spark. Raises a UserError where these don't see the
    state, which has the journals, or where Spark may run a task twice at a time: each of the two would end
    the other, until Spark gives the job up.
    """
    if not on_demand.has_executors:
        return on_demand.processes.map, max(1, min(request.processes, partitions))
    runs_twice: str | None = None
    with driver_of(on_demand.spark).conf_errors():  # a service may not tell it
        runs_twice = on_demand.spark.conf.get("spark.speculation", None)
    if (runs_twice or "").strip().lower() == "true":  # as Spark reads it
        raise UserError("spark.speculation is on: add --conf spark.speculation=false to spark-submit")
    at_once = on_demand.tasks_of(partitions)
    if not all(on_demand.map(sees, [(request.state, state.restore_id)] * on_demand.tasks_of(1 << 20))):
        raise UserError(
            f"--state {request.state} is not the same folder on Spark's executors: name one that they "
            "share with this machine, or one in an object store, such as s3://bucket/state"
        )

    def map_(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for result, error in on_demand.map(partial(told, function), items):
            if error is not None:
                raise error
            yield result

    return map_, at_once


def _write(map_: Map, request: Request, plan: Plan, tasks: Sequence[Task]) -> None:
    """Writes all partitions, the largest first, and the tables of the state, also of what failed."""
    try:
        if known := sum(map_(settle, tasks)):
            log.info("continuing: %s confirmed so far", counted_noun(known, "record"))
        with phase("writing", writing_progress(request.state, plan.records, known)):
            for _ in map_(restore_partition, tasks):
                pass
    finally:
        offset_map.write_tables(request.state, [task.plan for task in tasks])


def writing_progress(state: str, planned_records: int, before: int) -> Callable[[], str]:
    """Returns what says how far the writing is: records, rate, time left, or how long none was confirmed.

    before: the records that were confirmed when it began.
    """
    if path_of_uri(state) is None:  # a request for each partition again and again
        return lambda: ""
    began = time.monotonic()
    seen, seen_at = before, began

    def text() -> str:
        nonlocal seen, seen_at
        (records, _), now = confirmed(state), time.monotonic()
        if records > seen:
            seen, seen_at = records, now
        done = f"{records:,} of {counted_noun(planned_records, 'record')}"
        if now - seen_at > _LONG_SECONDS:
            waits = f"none confirmed for {now - seen_at:,.0f} s"
            return f"{done}, {waits}: does the target answer, has it room?"
        rate = (records - before) / max(now - began, 0.001)
        left = f", {(planned_records - records) / rate:,.0f} s left" if rate else ""
        return f"{done}, {rate:,.0f} records/s{left}"

    return text


def _verify(map_: Map, tasks: Sequence[Task], summary: Summary) -> None:
    done = {topic.topic: topic for topic in summary.topics}
    with phase("reading back"):
        of_partitions: list[Verified] = list(map_(verify_partition, tasks))
    for partition in of_partitions:
        of_topic = done[partition.topic]
        of_topic.restored += partition.restored
        of_topic.verified += partition.verified
        add_held(summary, partition.topic, partition.held)
        summary.wrong += partition.wrong


def _print(summary: Summary, as_json: bool) -> None:
    print(summary.as_json() if as_json else "\n".join(summary.lines()))
    total = sum(topic.verified for topic in summary.topics)
    if total and not as_json and summary.is_whole:
        log.info("%s restored and read back equal, %.0f s", counted_noun(total, "record"), summary.seconds)


main: Callable[..., int] = partial(run_command, RESTORE, run)

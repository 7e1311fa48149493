"""The main job: decodes segments into the Delta tables of a lake.

``run`` goes from the sources to committed tables; ``decode_segments`` gives the records as a lazy DataFrame
and writes nothing.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # under spark-submit sys.path begins with this folder; the imports need its parent
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from kafka_log_lake.pipelines.cli.process import set_up_process

    set_up_process()

import uuid
from collections.abc import Collection, Sequence
from dataclasses import fields
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafka_log_lake.pipelines.cli.commands.decode import DECODE
from kafka_log_lake.pipelines.cli.errors import DamageFound, JobError, UserError, one_line
from kafka_log_lake.pipelines.cli.setting_names import make_settings
from kafka_log_lake.pipelines.cli.settings import CATALOG, Settings, Typing
from kafka_log_lake.pipelines.cli.values import option
from kafka_log_lake.pipelines.dataframes.options import requested_names
from kafka_log_lake.pipelines.dataframes.slices import Span, make_tasks
from kafka_log_lake.pipelines.decode import job
from kafka_log_lake.pipelines.decode.decode_into import decode_into
from kafka_log_lake.pipelines.decode.metrics import Metrics
from kafka_log_lake.pipelines.decode.print_summary import print_round, print_summary
from kafka_log_lake.pipelines.decode.summary import Summary
from kafka_log_lake.pipelines.decode.watch import Batching, check_settings, watch
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand, spark_on_demand
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.engine.session import check_session
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter
from kafka_log_lake.pipelines.listing.uris import is_named
from kafka_log_lake.pipelines.sql.types import table_name
from kafka_log_lake.pipelines.tasks.slice_rows import DIRECT, SliceReader, choose_mode, stage_options
from kafka_log_lake.udfs import reads
from kafka_log_lake.udfs.format import schema
from kafka_log_lake.udfs.spark import stages
from kafka_log_lake.udfs.spark.protocol import TableRead


def run(spark: SparkSession, settings: Settings) -> Summary:
    """Decodes new and changed segments of the sources into the tables of a lake.

    Parameters
    ----------
    spark: the session; it is used where a step needs Spark.
    settings: which sources, records and lake; ``source`` and ``lake`` are needed, or ``from_raw``.

    Returns
    -------
    Summary: the counts of this run, such as ``records``, ``bytes`` and ``damaged`` (rows of quarantine). What
    is done is committed; a second call decodes only what is new.

    Raises
    ------
    UserError: a setting, a source or the lake is wrong (``LakeBusy``: another job writes to it).
    JobError: the run failed; the ledger holds nothing of it.
    """
    with spark_on_demand(settings, given=spark) as on_demand:
        return _decode(on_demand, settings, Batching(settings))


def _decode(on_demand: SparkOnDemand, settings: Settings, batching: Batching) -> Summary:
    """Decodes what is new and due, then updates the typed tables. Returns the counts of this run alone."""
    read_before = reads.counted()
    summary = decode_into(on_demand, settings, is_due=batching.is_due)
    batching.done()
    _decode_values(on_demand, settings, summary)
    summary.read_before = read_before
    return summary


def _decode_values(on_demand: SparkOnDemand, settings: Settings, summary: Summary) -> None:
    """Updates the typed tables, if an option asks for them, or by itself where the sources have ``_schemas``.

    By itself it never fails: what went wrong is a warning, as the records are decoded.
    """
    is_asked_for = settings.typed or (settings.typed is None and bool(_given_typing(settings)))
    if not is_asked_for and (settings.typed is False or not summary.has_schemas):
        return
    try:
        _update_typed(on_demand, settings, summary)
    except Exception as error:  # of a typed table that can't be read too
        if is_asked_for:
            raise
        why = str(error) if isinstance(error, JobError) else one_line(error)
        summary.warnings.append(f"not all typed tables were updated: {why}; --no-typed leaves them out")


def _update_typed(on_demand: SparkOnDemand, settings: Settings, summary: Summary) -> None:
    # They bring decoders, which other jobs need not wait for
    from kafka_log_lake.pipelines.decode_values.command import as_json, kept_lines, update
    from kafka_log_lake.pipelines.typed.tables import count_value_errors, names_in_sql

    done, kept = update(on_demand, settings, summary.lake)
    names = names_in_sql(summary.lake)
    summary.typed = [as_json(topic) | {"table": table_name("typed", names[topic.topic])} for topic in done]
    summary.kept = kept_lines(summary.lake, kept, settings.mode)
    is_meant = TopicFilter(settings.topics, settings.exclude_topics)
    summary.value_errors = count_value_errors(summary.lake, is_meant)


def decode_segments(
    spark: SparkSession,
    source: str | Sequence[str],
    columns: Collection[str] | None = None,
    **settings: object,
) -> DataFrame:
    """Returns the rows of ``records`` of all segments of a source, lazily. Needs and writes no lake.

    Parameters
    ----------
    spark: the session.
    source: log directory, partition folder, ``.log`` file or glob, or several of them.
    columns: names of columns, in the order that is wanted; the others are not decoded. None: all but run_id.
    settings: fields of ``Settings`` (topics, max_batch_uncompressed, slice_bytes, ...). A segment above
        slice_bytes is read by several tasks where the workers open files themselves.

    Returns
    -------
    DataFrame with the columns of ``records`` (docs/tables.md).

    Raises
    ------
    UserError: a wrong source (a DataFrame too), column or setting.
    UserError and TypeError at once: spark is no session.
    """
    check_session(spark)
    if hasattr(source, "mapInArrow"):
        raise UserError("source is a DataFrame: decode_frame(df) decodes the bytes that it has")
    names, declared = requested_names(schema.RECORDS.name, columns)
    ddl = ", ".join(f"`{column.name}` {column.sql_type}" for column in declared)
    checked = make_settings({**settings, "source": source})
    on_demand = SparkOnDemand(checked, given=spark)
    plan = job.plan_afresh(on_demand, checked)
    segments = [segment for bounded_run in plan.runs(plan.found, lambda: 1 << 62) for segment in bounded_run]
    mode = choose_mode(checked, [s.segment for s in segments])
    options = stage_options(checked, "", uuid.uuid4().hex)
    if mode != DIRECT or not segments:
        reader = SliceReader(on_demand, mode, checked.slice_bytes, checked.max_content)
        rows = reader.rows(reader.slices(segments, split=False))
        whole = rows.mapInArrow(stages.stage("read_records", options), schema.RECORDS.ddl())
        return whole.select(*names)
    tasks = make_tasks([Span(segment, 0, segment.length) for segment in segments], checked.slice_bytes)
    numbers = pa.array([number for number, task in enumerate(tasks) for _ in range(len(task))], pa.int32())
    frame = on_demand.spark.createDataFrame(pa.Table.from_batches(tasks).append_column("task", numbers))
    rows = frame.repartitionById(len(tasks), "task").sortWithinPartitions("group_id").drop("task")
    types = pa.schema([(column.name, column.arrow_type) for column in declared])
    return rows.mapInArrow(
        stages.table_stage(TableRead(schema.RECORDS.name, names, types, False, options)), ddl
    )


def _healed(on_demand: SparkOnDemand, settings: Settings) -> None:
    """Decodes the one true log of sources with names, as ``recover`` does, and prints the summary."""
    from kafka_log_lake.pipelines.recover.job import recover  # few jobs need it

    if settings.watch or settings.from_raw or settings.sink == CATALOG:
        raise UserError("--source NAME=PATH: copies are not for --watch, --from-raw or --sink catalog")
    if settings.topic is not None:
        raise UserError("--source NAME=PATH: copies are partition folders, which --topic does not name")
    metrics = Metrics(settings.metrics)
    with metrics.counting_failures():
        decode = partial(decode_into, on_demand, drops_missing=True)
        done = recover(settings, decode, on_demand.map)
        summary = done.summary
        _decode_values(on_demand, settings, summary)
    metrics.done(summary)
    summary.warnings += done.warnings()
    print_summary(summary, settings.json)
    if settings.fail_on_damage and (done.is_damaged or summary.is_damaged):
        raise DamageFound


def _given_typing(settings: Settings) -> list[str]:
    """Returns the names of the settings of typed tables that are not at their defaults."""
    names = [field.name for field in fields(Typing) if getattr(settings, field.name) != field.default]
    return [name for name in names if name != "typed"]


def _check_typing(settings: Settings) -> None:
    """Raises a UserError for options of typed tables where there can be none."""
    given = ", ".join(map(option, _given_typing(settings)))
    if given and settings.typed is False:
        raise UserError(f"{given}: only for typed tables, leave out --no-typed")
    if given and settings.sink == CATALOG:
        raise UserError(f"{given}: typed tables need a lake in a folder, --sink catalog has none")


def _job(on_demand: SparkOnDemand, settings: Settings) -> None:
    check_settings(settings)
    _check_typing(settings)
    if is_named(settings.source):
        _healed(on_demand, settings)
        return
    if settings.with_copies:
        raise UserError("--with-copies is for sources with names: --source NAME=PATH")
    batching, is_first, metrics = Batching(settings), True, Metrics(settings.metrics)

    def once() -> None:
        nonlocal is_first
        with metrics.counting_failures():
            summary = _decode(on_demand, settings, batching)
        metrics.done(summary, batching.lag)
        if settings.watch and not settings.json and not is_first:
            print_round(summary)
        elif summary.segments or is_first:
            print_summary(summary, settings.json)
        is_first = False
        if settings.fail_on_damage and summary.is_damaged:
            raise DamageFound

    if settings.watch:
        watch(once, settings.interval)
        batching.tell()
    else:
        once()


main = partial(run_command, DECODE, _job)

if __name__ == "__main__":
    sys.exit(main())

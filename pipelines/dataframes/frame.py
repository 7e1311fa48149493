"""Decodes a DataFrame of segment bytes to records, batches or quarantine, lazily, by mapInArrow."""

from __future__ import annotations

import re
from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.values import byte_count, nearest
from kafka_log_lake.pipelines.dataframes.options import requested_names
from kafka_log_lake.pipelines.engine.driver import Driver, driver_of, spark_errors
from kafka_log_lake.pipelines.listing.hadoop import canonical_path
from kafka_log_lake.pipelines.listing.naming import LEFT_FOLDER, PARTITION_FOLDER
from kafka_log_lake.pipelines.plan.slices import TASKS_PER_CORE
from kafka_log_lake.udfs.format.schema import Column
from kafka_log_lake.udfs.spark.protocol import FrameRead, StageOptions
from kafka_log_lake.udfs.spark.stages import frame_stage
from kafka_log_lake.udfs.storage.store import canonical_uri, worker_opens

_WARN, _RAISE, _IGNORE = "warn", "raise", "ignore"
_ERROR = Column("error", "string", "Of a row that stands for a damaged range: what is wrong; else null")
_CHUNK_POSITION, _SEGMENT = "chunk_position", "segment"  # of raw_segments
_PATH, _LENGTH, _CONTENT = "path", "length", "content"  # of binaryFile
_CHUNK = ("content", _SEGMENT, _CHUNK_POSITION)  # the columns of raw_segments that make a chunk
_OF_LANDED = ("chunk_bytes", "crc32c", "whole_bytes")  # others that the tasks read
_SHUFFLED = "spark.sql.shuffle.partitions"  # "auto" where Databricks chooses it
_TYPES = {
    "topic": ("string",),
    "partition": ("tinyint", "smallint", "int", "bigint"),
    "segment": ("string",),
    "position": ("tinyint", "smallint", "int", "bigint"),
    "content": ("binary",),
}
_CASTS = {"partition": "int", "position": "bigint"}
# What a broker keeps next to segments and above their folders
_BROKER_FILE = (
    r"\.(index|timeindex|txnindex|snapshot|checkpoint|swap|cleaned|deleted|lock|kafka_cleanshutdown)\z"
    r"|/(partition\.metadata|meta\.properties|quorum-state|[a-z-]+-checkpoint)\z"
)
Given = str | SparkColumn


def decode_frame(
    df: DataFrame,
    content: Given = "content",
    topic: Given = "topic",
    partition: Given | int = "partition",
    position: Given | None = None,
    segment: Given | None = None,
    table: str = "records",
    columns: Collection[str] | None = None,
    on_damage: str = _WARN,
    *,
    max_batch_uncompressed: int | str = Settings().max_batch_uncompressed,
    quarantine_content_bytes: int | str = Settings().quarantine_content_bytes,
) -> DataFrame:
    """Returns the rows of a table that the bytes of a DataFrame hold, a batch or a stream, lazily.

    A row is a whole segment, or one record batch or more; each is decoded by itself. With ``position`` it is
    a chunk of a segment: the chunks of one topic, partition and segment are put together by their positions,
    in whatever order they come; a chunk that comes twice counts once. Chunks of raw_segments are read from
    its files by the tasks where the frame's plan and the storage allow it. Rows of binaryFile without
    ``content`` are files of any size, which the tasks open; Spark brings all other bytes.

    Parameters
    ----------
    df: the frame. content (binary), topic (string), partition, position (integers) and segment (string) are
        names of its columns, or Columns (``F.lit("orders")``).
    content: the bytes; null and cut values become rows of quarantine. Where the frame has no such column, but
        ``path`` and ``length``, the tasks read the files.
    topic, partition: partition may be a number too. Where the frame has no such column, they and segment are
        taken from ``path``, as binaryFile and Auto Loader give it; then the files that a broker keeps next to
        segments, and its folders -delete, -stray and -future, are passed over.
    position: byte of the chunk in its segment; None: ``chunk_position``, which raw_segments has, else no
        position.
    segment: URI or name of the file; None: a column ``segment``, else ``path``, else null.
    table: "records", "batches" or "quarantine".
    columns: names of the table's columns, in the order that is wanted; None: all but run_id. Of records
        ``error`` may be one: then each damaged range is a row too, with topic, partition, segment,
        batch_position and error.
    on_damage: "warn" leaves damaged ranges out and writes a line a task to the executor's log, "ignore"
        writes none, "raise" fails the query at the first.
    max_batch_uncompressed, quarantine_content_bytes: bytes, or a text with a unit, as the settings of the
        jobs.

    Returns
    -------
    DataFrame with the columns of the table (docs/tables.md). Of a value that is null or cut, and of bytes
    that are missing between two chunks, there is a row of quarantine.

    Raises
    ------
    UserError: a column is missing or of another type, or an argument is wrong. The query itself fails in one
        line where chunks contradict each other, or do not say of which segment and position they are.
    """
    names, declared = requested_names(table, columns, _ERROR)
    if on_damage not in (_WARN, _RAISE, _IGNORE):
        raise UserError(f"on_damage must be one of {_WARN}, {_RAISE}, {_IGNORE}, not {on_damage!r}")
    options = StageOptions(
        run_id="",
        began_us=0,
        window_bytes=Settings().window_bytes,
        max_batch_uncompressed=_bytes("max_batch_uncompressed", max_batch_uncompressed),
        quarantine_content_bytes=_bytes("quarantine_content_bytes", quarantine_content_bytes),
        lake="",
        parquet_compression="",
    )
    known = _names(df)
    if position is None and _CHUNK_POSITION in known:
        position = _CHUNK_POSITION
    if segment is None and _SEGMENT in known:
        segment = _SEGMENT
    driver = driver_of(df.sparkSession)
    has_bytes = not isinstance(content, str) or content != _CONTENT or _CONTENT in known
    are_files = not has_bytes and position is None and {_PATH, _LENGTH} <= {*known}
    if are_files:
        content, segment, position = F.lit(None).cast("binary"), None, _LENGTH
    rows = _rows(df, known, topic, partition, segment, position, content)
    is_landed = _is_landed(driver, df, content, segment, position)
    if is_landed:
        rows = rows.drop("content").withColumn("file", _canonical_uri(F.input_file_name()))
    read = FrameRead(
        table,
        names,
        pa.schema([(column.name, column.arrow_type) for column in declared]),
        on_damage == _RAISE,
        options,
        content=_text(content),
        position=_text(position),
        segment=_text(segment or _PATH),
        warns=on_damage == _WARN,
        is_chunked=position is not None and not are_files,
        is_landed=is_landed,
        are_files=are_files,
    )
    driver.share_code()
    if is_landed:
        # Rows of a few bytes: Spark would put all of them in one task, were the number of tasks not given
        rows = rows.repartitionByRange(_tasks(driver), "topic", "partition", "segment")
    elif read.is_chunked:
        rows = rows.repartition("topic", "partition", "segment")
    ddl = ", ".join(f"`{column.name}` {column.sql_type}" for column in declared)
    return rows.mapInArrow(frame_stage(read), ddl)


def _tasks(driver: Driver) -> int:
    """Returns the most tasks for landed chunks: those of a shuffle, or those that keep all cores busy.

    Spark makes fewer of fewer segments.
    """
    shuffled = driver.spark.conf.get(_SHUFFLED) or ""
    return max(int(shuffled) if shuffled.isdigit() else 0, driver.parallelism() * TASKS_PER_CORE)


def _is_landed(driver: Driver, df: DataFrame, *given: Given | None) -> bool:
    """Returns whether workers can read a frame's chunks from the files of raw_segments."""
    if not all(isinstance(column, str) for column in given) or given != _CHUNK:
        return False
    scheme = driver.scheme_of_files(df, _CHUNK, _OF_LANDED)
    return scheme is not None and worker_opens(canonical_uri(f"{scheme}://"))


def _bytes(name: str, value: int | str) -> int:
    try:
        return byte_count(value)
    except ValueError as error:
        raise UserError(f"{name} {error}") from None


def _names(df: DataFrame) -> list[str]:
    """Returns the names of a frame's columns. Raises a UserError for no frame, or one Spark refuses."""
    if not hasattr(df, "mapInArrow"):
        raise UserError(
            f"df must be a DataFrame, not {type(df).__name__}: decode_segments(spark, path) takes a path"
        )
    with _refused():
        return list(df.columns)


class _refused:  # noqa: N801  # used as a context manager
    """A context manager that turns an error of Spark's analysis into a UserError of one line."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, spark_errors()):
            raise UserError(str(error).partition("\n")[0]) from None


def _text(given: Given | int | None) -> str:
    """Returns the name or expression by which the user gave a column."""
    return re.sub(r"\AColumn<'(.*)'>\Z", r"\1", str(given))


def _rows(
    df: DataFrame,
    known: list[str],
    topic: Given,
    partition: Given | int,
    segment: Given | None,
    position: Given | None,
    content: Given,
) -> DataFrame:
    """Returns the frame's rows with the columns of FRAME_SCHEMA. Raises a UserError for wrong columns."""
    by_path = _by_path() if _PATH in known else {}
    missing = [name for name in (topic, partition) if isinstance(name, str) and name not in known]
    if missing == [topic, partition] and not by_path:
        raise UserError(
            f"the frame has no columns {topic} and {partition}, and no path that says them: topic and "
            'partition name columns, or are given as topic=F.lit("orders"), partition=0'
        )
    if position is not None and segment is None and not by_path:
        raise UserError(
            f"position ({_text(position)}) makes each row a chunk: segment must name the column that says of "
            "which file it is"
        )
    if missing and by_path:
        folder = F.try_element_at(F.split(_PATH, "/"), F.lit(-2))
        left = folder.rlike(rf"\A{LEFT_FOLDER.pattern}\z") | F.col(_PATH).rlike(_BROKER_FILE)
        df = df.where(~F.coalesce(left, F.lit(False)))
    given: dict[str, Given | int | None] = {
        "topic": topic,
        "partition": partition,
        "segment": segment,
        "position": position,
        "content": content,
    }
    chosen = {
        name: by_path[name]
        if name in by_path and (value is None or value in missing)
        else _column(known, name, value)
        for name, value in given.items()
    }
    rows = df.select(*(column.alias(name) for name, column in chosen.items()))
    with _refused():
        type_of = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    for name, types in _TYPES.items():
        if type_of[name] not in types:
            raise UserError(
                f"column {_text(given[name])} is {type_of[name]}, and {name} must be {types[-1]}"
                f"{_CURES.get((name, type_of[name]), '')}"
            )
    return rows.select(*(F.col(name).cast(_CASTS.get(name, type_of[name])).alias(name) for name in type_of))


_CURES = {
    ("content", "string"): ": F.unbase64(column) or F.unhex(column) where it is text of bytes",
    ("partition", "string"): ": F.col(column).cast('int')",
    ("position", "string"): ": F.col(column).cast('bigint')",
}


def _column(known: list[str], name: str, value: Given | int | None) -> SparkColumn:
    """Returns the column that an argument names. Raises a UserError where the frame has none of the name."""
    if value is None:
        return F.lit(None).cast(_TYPES[name][-1])
    if isinstance(value, SparkColumn):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and name == "partition":
        return F.lit(value)
    if not isinstance(value, str):
        raise UserError(f"{name} must be the name of a column, or a Column, not {value!r}")
    if value in known:
        return F.col(f"`{value.replace('`', '``')}`")
    if value.partition(".")[0] in known:  # a field of a struct
        return F.col(value)
    literal = f'; {name}=F.lit("{value}") says it of all rows' if name == "topic" else ""
    hint = nearest(value, known) or f"; it has {', '.join(known)}"
    raise UserError(f"{name}: the frame has no column {value}{hint}{literal}")


def _by_path() -> dict[str, SparkColumn]:
    """Returns topic, partition and segment by a file's path; null where its folder is no partition's."""
    folder = F.try_element_at(F.split(_PATH, "/"), F.lit(-2))
    pattern = rf"\A{PARTITION_FOLDER.pattern}\z"
    return {
        "topic": F.nullif(F.regexp_extract(folder, pattern, 1), F.lit("")),
        "partition": F.regexp_extract(folder, pattern, 2).try_cast("int"),
        "segment": _canonical_uri(F.col(_PATH)),
    }


def _canonical_uri(path: SparkColumn) -> SparkColumn:
    """Returns the canonical URI of a path that Spark gives, with ``s3`` for ``s3a`` and ``s3n``."""
    return F.regexp_replace(canonical_path(path), r"\As3[an]://", "s3://")

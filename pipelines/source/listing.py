"""The segments that the sources hold, as a DataFrame: nothing here reads a segment's bytes.

Spark's ``binaryFile`` source lists paths, lengths and modification times, and Spark expressions make the rest
of them, so that a million segments never pass through the driver. Spark leaves out files without bytes: what
has none is no segment yet, and the rows of one that lost them stay until it has bytes again. A row whose
``skip`` is not null is no segment to decode; ``pipelines.plan.ledger`` counts those and plans the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipelines.command.errors import UserError, one_line
from pipelines.source.uris import Found, escape, resolve

LISTING_DDL = (
    "topic string, partition int, log_dir string, segment string, file_base_offset bigint, length bigint, "
    "modified timestamp, has_successor boolean, skip string"
)
LISTING_COLUMNS = [column.split()[0] for column in LISTING_DDL.split(", ")]

# Why a file is passed over. The first three are folders that brokers leave behind.
DELETED, STRAY, FUTURE = "folder -delete", "folder -stray", "folder -future"
NO_PARTITION = "folder is no partition"
PARTITION_TOO_BIG = "partition number past int"
NO_SEGMENT = "file is no segment"
OFFSET_TOO_BIG = "base offset past bigint"
TOPIC_TOO_LONG = "topic name too long for a folder of the lake"

_PARTITION_FOLDER = r"(?s)\A(.+)-(\d+)\z"
_LEFT_BEHIND = r"(?s)\.[0-9a-fA-F]+-(delete|stray|future)\z"
_SEGMENT_NAME = r"\A\d{20}\.log\z"
_MAX_NAME_BYTES = 255
# What Hive's (and so Delta's) partition folders escape as %XX
_HIVE_ESCAPED = "[\\x00-\\x1F\"#%'*/:=?\\\\\\x7F{\\[\\]^]"


def list_segments(
    spark: SparkSession,
    sources: str | Sequence[str],
    *,
    follow_symlinks: bool = False,
    topics: str | None = None,
    exclude_topics: str | None = None,
) -> DataFrame:
    """Every ``.log`` file of the sources once, columns of LISTING_DDL; lazy but for the file names.

    segment: canonical URI, ``file:///...`` for local files, without percent-encoding.
    has_successor: whether the folder holds a segment with a greater base offset, also one not asked for.
    topics, exclude_topics: Java regular expressions on the whole name.
    """
    sources = [sources] if isinstance(sources, str) else list(sources)
    wanted = topic_filter(spark, topics, exclude_topics)
    found = resolve(spark, sources, follow_symlinks)
    if not found.patterns and not found.files:
        raise nothing_in(sources)
    try:
        files = _load(spark, found)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise nothing_in(sources) from None
        raise UserError(f"{', '.join(sources)} can't be listed: {one_line(error)}") from error
    if found.links:
        files = _without_links(files, follow_symlinks)
    return classify(files).where(F.col("skip").isNotNull() | wanted)


def nothing_in(sources: Iterable[str]) -> UserError:
    """What to say where the sources hold no segment at all."""
    return UserError(f"no segments (<topic>-<partition>/<20 digits>.log) in {', '.join(sources)}")


def topic_filter(spark: SparkSession, topics: str | None, exclude_topics: str | None) -> Column:
    """Which topics were asked for: Java regular expressions on the whole name."""
    wanted = F.lit(True)
    if topics is not None:
        wanted &= F.col("topic").rlike(whole(spark, topics, "--topics"))
    if exclude_topics is not None:
        wanted &= ~F.col("topic").rlike(whole(spark, exclude_topics, "--exclude-topics"))
    return wanted


def whole(spark: SparkSession, regex: str, option: str) -> str:
    """A Java regular expression that must match the whole string; UserError where it does not compile."""
    return rf"(?s)\A(?:{checked_regex(spark, regex, option)})\z"


def checked_regex(spark: SparkSession, regex: str, option: str) -> str:
    """The same expression, or a UserError that says where it breaks."""
    jvm = spark._jvm
    assert jvm is not None
    try:
        jvm.java.util.regex.Pattern.compile(regex)
    except Exception as error:
        raise UserError(f"{option} {regex!r} is no regular expression: {one_line(error)}") from error
    return regex


def _load(spark: SparkSession, found: Found) -> DataFrame:
    """Columns path, length, modified, wanted; a file may come more than once.

    A file that was named alone needs its folder listed too, to know whether a successor is there.
    """
    loads = []
    if found.patterns:
        loads.append(_binary_files(spark, found.patterns).withColumn("wanted", F.lit(True)))
    if found.files:
        folders = dict.fromkeys(os.path.dirname(path) for path in found.files)
        beside = _binary_files(spark, [escape(folder) + "/*.log" for folder in folders])
        named = spark.createDataFrame(pa.table({"named": list(found.files)}))
        loads.append(
            beside.join(F.broadcast(named), F.col("path") == F.col("named"), "left").select(
                "path", "length", "modified", F.col("named").isNotNull().alias("wanted")
            )
        )
    return loads[0] if len(loads) == 1 else loads[0].unionByName(loads[1])


def _binary_files(spark: SparkSession, patterns: Iterable[str]) -> DataFrame:
    """What the patterns match; files that vanish after the listing are left out."""
    reader = spark.read.format("binaryFile").option("ignoreMissingFiles", "true")
    return reader.load(list(patterns)).select("path", "length", F.col("modificationTime").alias("modified"))


def _without_links(files: DataFrame, follow_symlinks: bool) -> DataFrame:
    """Local paths through a link left out, or with follow_symlinks each real file once."""
    real = files.mapInArrow(
        _add_real_path(), files.schema.simpleString()[7:-1].replace(":", " ") + ", real string"
    )
    if not follow_symlinks:
        return real.where(F.col("real") == F.col("path")).drop("real")
    first = Window.partitionBy("real").orderBy(F.col("real") != F.col("path"), F.length("path"), "path")
    return real.withColumn("nth", F.dense_rank().over(first)).where("nth = 1").drop("nth", "real")


def _add_real_path() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Adds ``real``: where the path leads once links are followed. A closure: workers need no import."""

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            paths = batch.column("path").to_pylist()
            real = [
                "file:" + os.path.realpath("/" + p[5:].lstrip("/")) if p.startswith("file:") else p
                for p in paths
            ]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(real, pa.string())], names=[*batch.schema.names, "real"]
            )

    return add


def classify(files: DataFrame) -> DataFrame:
    """Columns of LISTING_DDL from (path, length, modified, wanted), each wanted path once."""
    segment = F.regexp_replace("path", r"\Afile:/+", "file:///")
    named = files.withColumn("segment", segment).withColumn("name", F.substring_index("segment", "/", -1))
    placed = named.withColumn(
        "log_dir", F.expr("left(segment, length(segment) - length(name) - 1)")
    ).withColumn("folder", F.substring_index("log_dir", "/", -1))
    topic = F.regexp_extract("folder", _PARTITION_FOLDER, 1)
    number = F.regexp_extract("folder", _PARTITION_FOLDER, 2)
    known = (
        placed.withColumn("topic", topic)
        .withColumn("partition", number.try_cast("int"))
        .withColumn("file_base_offset", F.expr("try_cast(left(name, 20) AS bigint)"))
    )
    skipped = known.withColumn("skip", _skip_reason())
    one_folder = Window.partitionBy("log_dir")
    once = Window.partitionBy("log_dir", "segment").orderBy(F.col("wanted").desc())
    last = F.max(F.when(F.col("skip").isNull(), F.col("file_base_offset"))).over(one_folder)
    return (
        skipped.withColumn("has_successor", F.coalesce(last > F.col("file_base_offset"), F.lit(False)))
        .withColumn("nth", F.row_number().over(once))
        .where("nth = 1 AND wanted")
        .select(*LISTING_COLUMNS)
    )


def _skip_reason() -> Column:
    left_behind = F.regexp_extract("folder", _LEFT_BEHIND, 1)
    escapes = F.length("topic") - F.length(F.regexp_replace("topic", _HIVE_ESCAPED, ""))
    folder_bytes = F.octet_length(F.lit("topic=")) + F.octet_length("topic") + 2 * escapes
    return (
        F.when(left_behind != "", F.concat(F.lit("folder -"), left_behind))
        .when(~F.col("folder").rlike(_PARTITION_FOLDER), F.lit(NO_PARTITION))
        .when(F.col("partition").isNull(), F.lit(PARTITION_TOO_BIG))
        .when(~F.col("name").rlike(_SEGMENT_NAME), F.lit(NO_SEGMENT))
        .when(F.col("file_base_offset").isNull(), F.lit(OFFSET_TOO_BIG))
        .when(folder_bytes > _MAX_NAME_BYTES, F.lit(TOPIC_TOO_LONG))
    )

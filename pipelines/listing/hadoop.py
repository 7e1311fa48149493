"""Lists file systems that only Spark's JVM can open. All calls of Hadoop through py4j are here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from kafka_log_lake.pipelines.cli.errors import UserError, one_line
from kafka_log_lake.pipelines.engine.driver import driver_of, spark_errors
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.listing.stores import FILES_SCHEMA, files_table
from kafka_log_lake.pipelines.listing.uris import escape
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.storage.store import MOUNTS, hadoop_options, missing_package, spark_uri

_S3_CLASS = "fs.s3.impl"
_REGION = "fs.s3a.endpoint.region"
_PROVIDER = "fs.s3a.aws.credentials.provider"
_BY_US = "kafka-log-lake"  # what Hadoop notes as the origin of a setting


def job_scheme(on_demand: SparkOnDemand) -> str:
    """Returns ``default_scheme``, without starting Spark where its answer is known."""
    return "file" if on_demand.is_plain else default_scheme(on_demand.spark)


def default_scheme(spark: SparkSession) -> str:
    """Returns the URI scheme of a path without one: ``file``, or what Hadoop's ``fs.defaultFS`` says.

    ``file`` for ``dbfs`` too.
    """
    if driver_of(spark).has_jvm:
        scheme = str(_hadoop(spark).fs.FileSystem.getDefaultUri(_configuration(spark)).getScheme())
    else:
        (row,) = spark.sql("SET fs.defaultFS").collect()
        scheme = row["value"].partition(":")[0] if ":" in row["value"] else "file"
    # On Databricks Python opens a path as a local one: below /Volumes and /dbfs it is the same file
    return "file" if scheme == "dbfs" else scheme


def open_to_spark(spark: SparkSession, uri: str) -> None:
    """Lets a session open a canonical URI, by the environment where it has no settings.

    Raises a UserError where Spark lacks the classes for it. Jobs over files with ``--sink arrow`` need none.
    What a server of Spark Connect opens is its own matter. The region is set for the bucket of the URI alone:
    a lake and its sources may lie in buckets of different regions.
    """
    options = hadoop_options(uri)
    if not options or not driver_of(spark).has_jvm:
        return
    configuration = _configuration(spark)
    if configuration.get(_S3_CLASS) and _BY_US not in (configuration.getPropertySources(_S3_CLASS) or ()):
        return
    try:
        jvm: Any = spark._jvm
        loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        loader.loadClass(options[_S3_CLASS])
    except spark_errors():
        version = _hadoop(spark).util.VersionInfo.getVersion()
        packages = f"--packages org.apache.hadoop:hadoop-aws:{version}"
        raise UserError(
            f"Spark can't open {uri} without Hadoop's client of S3: add {packages} to spark-submit, "
            f"elsewhere set PYSPARK_SUBMIT_ARGS='{packages} pyspark-shell'"
        ) from None
    bucket = uri.removeprefix("s3://").partition("/")[0]
    if configuration.get("fs.s3a.access.key"):
        options.pop(_PROVIDER)
    for option, value in options.items():
        name = f"fs.s3a.bucket.{bucket}.endpoint.region" if option == _REGION else option
        if all(spark.conf.get(f"spark.hadoop.{setting}", None) is None for setting in (option, name)):
            spark.conf.set(name, value)
            configuration.set(name, value, _BY_US)


def list_files(
    spark: SparkSession, uri: str, suffixes: tuple[str, ...] = (SEGMENT_SUFFIX,)
) -> tuple[pa.Table, set[str]]:
    """Lists every file at or below a URI or glob whose name ends in one of the suffixes.

    Returns a table of FILES_SCHEMA (modified: microseconds since 1970 UTC), and the paths of files that the
    URI itself names: for those, the table holds all files of their folder.

    Spark's recursive listing skips folders whose name begins with ``_`` (``__consumer_offsets-0``) and reads
    ``a=1`` as a table partition; one glob for each depth does neither. Spark lists the segments, as they may
    be many; Hadoop what the log cleaner left, empty files too, which Spark leaves out. Raises a UserError
    for a URI that is not there or can't be listed.
    """
    try:
        folders, named = _folders(spark, uri)
        patterns = [f"{folder}/*{SEGMENT_SUFFIX}" for folder in folders]
        patterns = [pattern for pattern in patterns if len(_glob(spark, pattern))]
        left = [f"{folder}/*{s}" for folder in folders for s in suffixes if s != SEGMENT_SUFFIX]
        statuses = [status for pattern in left for status in _glob(spark, pattern) if status.isFile()]
        others = files_table(
            (s.getPath().toString(), s.getLen(), s.getModificationTime() * 1000) for s in statuses
        )
        if not patterns:
            return others, named
        reader = spark.read.format("binaryFile").option("ignoreMissingFiles", "true")
        files = reader.load(patterns).select(
            "path", "length", F.unix_micros("modificationTime").alias("modified")
        )
        return pa.concat_tables([files.toArrow().cast(FILES_SCHEMA), others]), named
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return FILES_SCHEMA.empty_table(), set()
        raise UserError(f"{uri} can't be listed: {one_line(error)}") from error


def _folders(spark: SparkSession, uri: str) -> tuple[list[str], set[str]]:
    """Returns globs of the folders at or below a URI, one per depth; and segments that the URI names."""
    try:
        roots = _glob(spark, escape(uri)) or _glob(spark, uri)
        if not roots:
            raise UserError(f"no such path: {uri}")
        folders, named = [], set()
        for status in roots:
            path = status.getPath()
            level = escape(path.toString()).rstrip("/")
            if status.isDirectory():
                while len(_glob(spark, level + "/*")):
                    folders.append(level)
                    level += "/*"
            elif level.endswith(SEGMENT_SUFFIX):
                named.add(path.toString())
                folders.append(escape(path.getParent().toString()))
        return list(dict.fromkeys(folders)), named
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{uri} can't be opened: {one_line(error)}{missing_package(uri)}") from error


def _glob(spark: SparkSession, pattern: str) -> Any:
    """Returns Java's array of FileStatus for the matches of a glob. Each access to an element calls Java.

    Raises a UserError over Spark Connect.
    """
    if not driver_of(spark).has_jvm:
        raise UserError(
            f"{pattern} can't be listed over Spark Connect, which does not show Hadoop's file systems: "
            "name a folder that this machine and the workers have, such as a mount or a Volume"
        )
    path = _hadoop(spark).fs.Path(pattern)
    return path.getFileSystem(_configuration(spark)).globStatus(path) or ()


def canonical_path(path: Column) -> Column:
    """Returns the canonical URI of a file by the path that Spark gives it."""
    for ours, of_spark in {"file:///": "file:/", **MOUNTS}.items():
        path = F.regexp_replace(path, rf"\A{of_spark}/*", ours)
    return path


def exists(spark: SparkSession, uri: str) -> bool:
    """Says whether a file or folder exists, by its canonical URI."""
    uri = spark_uri(uri)
    if not driver_of(spark).has_jvm:
        try:
            _ = spark.read.format("binaryFile").load(escape(uri)).schema
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return False
            raise
        return True
    path = _hadoop(spark).fs.Path(uri)
    return bool(path.getFileSystem(_configuration(spark)).exists(path))


def _hadoop(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop


def _configuration(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()

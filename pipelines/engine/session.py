"""Gives a job its Spark session: the active one, or an embedded local one.

Under spark-submit and in a notebook the session belongs to the user: its settings win, and only missing ones
are added. ``python -m pipelines.<job>`` starts a local Spark in this process and stops it at the end.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.errors import CallError, UserError
from kafka_log_lake.pipelines.cli.java import java_problem
from kafka_log_lake.pipelines.cli.settings import Running
from kafka_log_lake.pipelines.engine.driver import driver_of, spark_errors

if TYPE_CHECKING:
    from pyspark import SparkConf

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"

_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

# Running that every session needs, wherever it runs
ANYWHERE = {
    "spark.sql.extensions": _DELTA_EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",  # ${env:HOME} in a statement, a topic, a path
    # deltalake reads Spark's default type, INT96, as nanoseconds: an OPTIMIZE would break years past 2262
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
}

# For one machine: Spark's defaults, 200 and 50 tasks for a few rows, would take longer than the work
_LOCAL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}

EMBEDDED = {
    **_LOCAL,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What only the web interface shows: a session of many queries fills its heap with it
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    # A worker starts with the decoder loaded. Not all libraries of other systems live through a fork
    **({"spark.python.daemon.module": "kafka_log_lake.udfs.spark.daemon"} if sys.platform == "linux" else {}),
}

# For a JVM that only plans:
# - the first JIT compiler alone: the second would use a core for classes that run a few times. Java gives it
#   48 MiB for its code by default: a session that runs many queries fills that, and compiles no more;
# - no generated code: every Delta task generates hundreds of KB of it again, which costs more than it saves;
# - no adaptive execution: planning again after each stage is most of the time of a query over a few rows;
# - small pages, one task after a shuffle: each join and each aggregation of a task clears a page, by default
#   of 16 MiB or more.
ONLY_PLANS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.buffer.pageSize": "1m",
    "spark.sql.shuffle.partitions": "1",
}

# Every JVM that Spark starts prints this line, at any log level
_NOISE = b"Using incubator modules: jdk.incubator.vector"


def check_session(spark: object) -> None:
    """Raises a CallError for what is no session of Spark, where one or None is meant."""
    if spark is not None and not hasattr(spark, "createDataFrame"):
        raise CallError(
            f"the first argument is Spark's session, which get_session() gives, not {type(spark).__name__}"
        )


def get_session(settings: Running | None = None, *, only_plans: bool = False) -> SparkSession:
    """Returns the active session of Spark, or starts one.

    It can open Delta tables, and its Python workers find this project.

    Parameters
    ----------
    settings: ``cores`` (None: all) and ``driver_memory`` of a session that is started here; None: the
        defaults.
    only_plans: whether the JVM processes no rows itself, so that it should start fast rather than run fast.

    Returns
    -------
    SparkSession. One that was active keeps its settings; it is the caller's to stop.

    Raises
    ------
    UserError: there is no supported Java, or Spark has no Delta Lake.
    """
    spark = SparkSession.getActiveSession()
    if spark is None and is_elsewhere():
        spark = SparkSession.builder.getOrCreate()
    elif spark is None:
        spark = _join_submitted() if is_submitted() else _start_embedded(settings or Running(), only_plans)
    driver = driver_of(spark)
    with driver.conf_errors():
        spark.conf.set("spark.sql.execution.arrow.pyspark.validateSchema.enabled", "true")
    # For a wrong statement it logs a page of JSON, which the exception holds too
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    _check_delta(spark)
    driver.share_code()
    return spark


@contextmanager
def session(settings: Running, *, only_plans: bool = False) -> Iterator[SparkSession]:
    """Yields ``get_session`` for one job; stops the session at the end, unless it was active before."""
    was_active = SparkSession.getActiveSession() is not None
    spark = get_session(settings, only_plans=only_plans)
    try:
        yield spark
    finally:
        if not was_active:
            stop_session(spark)


def stop_session(spark: SparkSession) -> None:
    """Stops a session that this process started.

    PySpark would wait for its thread that takes accumulators' values, which looks once a second whether it
    has to end; that thread keeps no process alive.
    """
    if not driver_of(spark).has_jvm:
        spark.stop()
        return
    server: Any = spark.sparkContext._accumulatorServer
    spark.sparkContext._accumulatorServer = None  # type: ignore[assignment]
    spark.stop()
    threading.Thread(target=server.shutdown, daemon=True).start()


@contextmanager
def configured(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    """Changes settings of the session for the duration of a block."""
    driver = driver_of(spark)
    before: dict[str, str | None] = {}
    for key, value in values.items():
        with driver.conf_errors():
            old = spark.conf.get(key, None)
            spark.conf.set(key, value)
            before[key] = old
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def is_submitted() -> bool:
    """Says whether spark-submit, or a shell of Spark, started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_elsewhere() -> bool:
    """Says whether Spark runs as a service that this process only joins: Spark Connect, or Databricks."""
    return "SPARK_REMOTE" in os.environ or "DATABRICKS_RUNTIME_VERSION" in os.environ


def _join_submitted() -> SparkSession:
    """Joins the session under spark-submit, with our settings where the command line has none."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    submitted = SparkConf()
    ours = dict(ANYWHERE)
    if (submitted.get("spark.master") or "").startswith("local"):
        ours.update(_LOCAL)
    if submitted.get("spark.sql.catalogImplementation", "in-memory") == "in-memory":
        ours["spark.sql.warehouse.dir"] = _scratch_folder()
    builder = SparkSession.builder
    for key, value in ours.items():
        if not submitted.contains(key):
            builder = builder.config(key, value)
    extensions = submitted.get("spark.sql.extensions", "") or ""
    if extensions and _DELTA_EXTENSION not in extensions:
        builder = builder.config("spark.sql.extensions", f"{extensions},{_DELTA_EXTENSION}")
    return builder.getOrCreate()


def _start_embedded(settings: Running, only_plans: bool) -> SparkSession:
    from pyspark import SparkConf

    problem = java_problem()
    if problem:
        raise UserError(problem)
    home = Path(pyspark.__file__).parent.resolve()
    if (home / "jars").is_dir():
        os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # local[N,4]: a task may fail three times before the job fails; plain local[N] never retries
    conf = SparkConf().setMaster(f"local[{settings.cores or '*'},4]").setAppName("kafka-log-lake")
    conf.set("spark.driver.memory", settings.driver_memory)
    conf.set("spark.sql.warehouse.dir", _scratch_folder())
    conf.setAll([*ANYWHERE.items(), *EMBEDDED.items()])
    if not any((home / "jars").glob("delta-spark_*.jar")):
        # ``make setup`` has not installed Delta's jars: Spark fetches them into Ivy's cache, once
        conf.set("spark.jars.packages", DELTA_PACKAGE)
    if only_plans:
        conf.setAll([*ONLY_PLANS.items()])
    _start_context(conf)
    return SparkSession.builder.getOrCreate()


def _start_context(conf: SparkConf) -> None:
    """Starts the JVM, and passes on its standard error line by line, without _NOISE.

    A second context in one process uses the JVM that is running.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        SparkContext(conf=conf)
        return
    reader, writer = os.pipe()
    threading.Thread(target=_pass_on, args=(reader,), daemon=True).start()
    try:
        gateway = launch_gateway(conf, {"stderr": writer})
    finally:
        os.close(writer)
    SparkContext(conf=conf, gateway=gateway)


def _pass_on(reader: int) -> None:
    with os.fdopen(reader, "rb") as lines:
        for line in lines:
            if _NOISE not in line:
                os.write(2, line)


def _scratch_folder() -> str:
    """Makes an empty folder for Spark's warehouse, which no job uses; returns its URI.

    It is removed when Python exits.
    """
    folder = tempfile.mkdtemp(prefix="kafka-log-lake-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return f"file:{folder}"


def _check_delta(spark: SparkSession) -> None:
    """Raises a UserError if Spark has no Delta.

    Opening a table takes 0.8 s of a new JVM, so a class is looked for first. A Spark whose Delta has other
    classes is known by its error for a table that does not exist.
    """
    if driver_of(spark).has_jvm and _has_class(spark, _DELTA_EXTENSION):
        return
    try:
        # Spark Connect analyses a plan when its schema is requested
        _ = spark.read.format("delta").load("/nonexistent/kafka-log-lake").schema
    except spark_errors() as error:
        if "[DATA_SOURCE_NOT_FOUND]" in str(error):
            raise UserError(
                "Spark has no Delta Lake: run `make setup` in the project's environment, "
                f"elsewhere add --packages {DELTA_PACKAGE} to spark-submit"
            ) from None


def _has_class(spark: SparkSession, name: str) -> bool:
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader().loadClass(name)
    except spark_errors():  # ClassNotFoundException
        return False
    return True

"""The Spark session of a job: the one that is there, or an embedded local one.

Under spark-submit and in a notebook Spark is somebody else's: its own settings win, and only what is missing
is added. Alone (``python -m pipelines.<job>``) a local Spark is started in this process and stopped with it.
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

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pipelines.command.errors import UserError
from pipelines.command.java import java_problem
from pipelines.command.settings import Settings

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"

_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

# What every session of ours needs, wherever it runs.
ANYWHERE = {
    "spark.sql.extensions": _DELTA_EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    # deltalake reads Spark's default, INT96, as nanoseconds: years past 2262 would not survive an OPTIMIZE
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
}

# One machine: the defaults, 200 and 50 tasks for a handful of rows, would take longer than the work.
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
}

# For a Java that only plans: its second compiler would take a core for classes that are used a few times;
# Spark's generated code, of which every task of Delta's writes hundreds of KB anew, more than it saves; and
# planning again after each stage of a query is most of a query over a few rows.
_ONLY_PLANS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

# Printed by every Java that Spark starts, whatever the log level.
_NOISE = b"Using incubator modules: jdk.incubator.vector"


def get_session(settings: Settings | None = None, *, only_plans: bool = False) -> SparkSession:
    """The active session where there is one, else a new one; ready for Delta and for our Python workers.

    only_plans: whether Java has no rows to work on itself, so that a fast start is worth more to it.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        spark = _join_submitted() if submitted else _start_embedded(settings or Settings(), only_plans)
    spark.conf.set("spark.sql.execution.arrow.pyspark.validateSchema.enabled", "true")
    # What it prints of a wrong statement, a page of JSON, is in the exception.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    _check_delta(spark)
    _show_packages_to_workers(spark)
    return spark


@contextmanager
def session(settings: Settings, *, only_plans: bool = False) -> Iterator[SparkSession]:
    """``get_session`` for the time of one job; a session that was there before stays."""
    found = SparkSession.getActiveSession() is not None
    spark = get_session(settings, only_plans=only_plans)
    try:
        yield spark
    finally:
        if not found:
            spark.stop()


def _join_submitted() -> SparkSession:
    """Under spark-submit: our settings where the command named none."""
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


def _start_embedded(settings: Settings, only_plans: bool) -> SparkSession:
    problem = java_problem()
    if problem:
        raise UserError(problem)
    home = Path(pyspark.__file__).parent
    if (home / "jars").is_dir():
        os.environ["SPARK_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # The second figure lets a task fail three times before the job does; plain local[N] never tries again.
    conf = SparkConf().setMaster(f"local[{settings.cores or '*'},4]").setAppName("kafka-log-lake")
    conf.set("spark.driver.memory", settings.driver_memory)
    conf.set("spark.sql.warehouse.dir", _scratch_folder())
    conf.setAll([*ANYWHERE.items(), *EMBEDDED.items()])
    if only_plans:
        conf.setAll([*_ONLY_PLANS.items()])
    _start_context(conf)
    return SparkSession.builder.getOrCreate()


def _start_context(conf: SparkConf) -> None:
    """Starts Java with its standard error passed on line by line, without the noise.

    A second context of one process finds Java running already.
    """
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
    """Where Spark may put a warehouse that nobody asked for; gone when Python ends."""
    folder = tempfile.mkdtemp(prefix="kafka-log-lake-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return f"file:{folder}"


def _check_delta(spark: SparkSession) -> None:
    """Asks Spark for a Delta table that is not there: how it says no tells whether it knows Delta."""
    try:
        spark.read.format("delta").load("/nonexistent/kafka-log-lake")
    except (AnalysisException, Py4JJavaError) as error:
        if "[DATA_SOURCE_NOT_FOUND]" in str(error):
            raise UserError(
                "Spark has no Delta Lake: run `make setup` in the project's environment, "
                f"elsewhere add --packages {DELTA_PACKAGE} to spark-submit"
            ) from None


def _show_packages_to_workers(spark: SparkSession) -> None:
    """Puts the checkout on the workers' path; from a zip (--py-files) Spark has done so itself."""
    root = Path(__file__).resolve().parent.parent.parent
    if not root.is_dir():
        return
    environment = spark.sparkContext.environment
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    if str(root) not in folders:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), *folders]))

"""``python -m pipelines.query --lake L "SELECT ..."``: runs one SQL statement over a lake.

DuckDB answers in this process what it is known to answer as Spark does (``pipelines.engine``), Spark all
else: that takes the start of a JVM. Names are checked before either starts.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

if not __package__:  # spark-submit puts pipelines/ on sys.path; the imports need its parent
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from pipelines.command.commands import QUERY
from pipelines.command.errors import UserError
from pipelines.command.options import run_command
from pipelines.command.settings import Settings
from pipelines.engine.answer import answer as answer_without_java
from pipelines.engine.errors import Unsupported
from pipelines.source.uris import local_path
from pipelines.views.statements import only_reads

logger = logging.getLogger(__name__)

# Where these are set, paths, tables and functions may be others than this process can know
_OF_A_CLUSTER = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")


def run(
    settings: Settings,
    statement: str,
    format: str,  # noqa: A002  # the option's name
    writes: str = "refuse",
    engine: str = "auto",
) -> None:
    """Prints the result of one statement. Raises a UserError for one that writes; writes: "allow" runs it.

    engine: duckdb, spark, or auto for DuckDB wherever it is known to give Spark's rows.
    """
    lake = settings.require_lake()
    if writes == "refuse" and not only_reads(statement):
        raise UserError("query only reads; for upkeep of the tables add --writes allow")
    try:
        for line in _without_java(lake, statement, format, settings.cores, engine):
            print(line)
        return
    except Unsupported as reason:
        if engine == "duckdb":
            raise UserError(
                f"DuckDB is not known to answer this as Spark does: {reason}; use --engine spark"
            ) from None
        if engine == "auto":
            logger.info("Spark answers, which takes longer; not done by DuckDB: %s", reason)
    from pipelines.command.session import session  # imports Spark, which the other engine does not need
    from pipelines.engine.spark import answer

    with session(settings) as spark:
        for line in answer(spark, lake, statement, format):
            print(line)


def _without_java(lake: str, statement: str, output: str, cores: int | None, engine: str) -> Iterator[str]:
    """Lines that print the result. Raises Unsupported before the first one if Spark must answer."""
    if local_path(lake) is None:
        raise Unsupported("a lake that is no local folder")
    if any(name in os.environ for name in _OF_A_CLUSTER) or _has_session():
        raise Unsupported("a session or a cluster that is configured elsewhere")
    yield from answer_without_java(lake, statement, output, cores, is_asked=engine != "spark")


def _has_session() -> bool:
    """Whether this process has a session of Spark, which may know more names."""
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark is not None and pyspark.SparkSession.getActiveSession() is not None


def main(argv: Sequence[str] | None = None) -> int:
    return run_command(QUERY, run, argv, with_spark=False)


if __name__ == "__main__":
    sys.exit(main())

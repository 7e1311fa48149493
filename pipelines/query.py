"""``python -m pipelines.query --lake L "SELECT ..."``: runs one SQL statement over a lake.

DuckDB answers in this process what it is known to answer as Spark does (``pipelines.engine``), Spark all
else: that takes the start of a JVM. Names are checked before either starts.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

if not __package__:  # spark-submit puts pipelines/ on sys.path; the imports need its parent
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from pipelines.command.commands import QUERY
from pipelines.command.errors import UserError
from pipelines.command.options import run_command
from pipelines.command.settings import LakeSettings
from pipelines.command.terminal import counted_noun, room_of_lines
from pipelines.engine import answer as without_java
from pipelines.engine.files import CSV, check_output, write_csv, write_parquet
from pipelines.source.uris import local_path
from pipelines.sql.errors import Unsupported
from pipelines.views.statements import only_reads, refuse_changes_on_s3
from udfs.source.store import canonical, is_object_store

logger = logging.getLogger("pipelines.query")  # under "python -m" its own name is another

Lines = Callable[..., Iterator[str]]  # takes output and room
Arrow = Callable[[], tuple[pa.Schema, Iterator[pa.RecordBatch]]]

# Where these are set, paths, tables and functions may be others than this process can know
_OF_A_CLUSTER = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")


def run(
    settings: LakeSettings,
    statement: str,
    format: str,  # noqa: A002  # the option's name
    full: bool = False,
    output: str | None = None,
    writes: str = "refuse",
    engine: str = "auto",
) -> None:
    """Prints the result of one statement, or writes it to a file.

    full: whether long values are printed whole. output: the file, .csv or .parquet. writes: "allow" runs a
    statement that writes. engine: duckdb, spark, or auto for DuckDB wherever it is known to give Spark's
    rows. Raises a UserError for a wrong statement, one that writes though it may not, or on S3,
    or a file that can't be written.
    """
    lake = settings.require_lake()
    if writes == "refuse" and not only_reads(statement):
        raise UserError("query only reads; for upkeep of the tables add --writes allow")
    refuse_changes_on_s3(lake, statement)
    give = _Printed(format, room_of_lines(full)) if output is None else _Written(output, lake)
    try:
        _check_place(lake)
        give(
            partial(without_java.answer, lake, statement, cores=settings.cores, is_asked=engine != "spark"),
            partial(without_java.arrow, lake, statement, settings.cores, engine != "spark"),
        )
        return
    except Unsupported as reason:
        if engine == "duckdb":
            raise UserError(
                f"DuckDB is not known to answer this as Spark does: {reason}; use --engine spark"
            ) from None
        if engine == "auto" and not _is_elsewhere():  # a cluster's user has requested Spark
            logger.info("Spark answers, which takes longer; not done by DuckDB: %s", reason)
    from pipelines.command.session import session  # imports Spark, which the other engine does not need
    from pipelines.engine import spark as with_spark

    with session(settings) as spark:
        give(
            partial(with_spark.answer, spark, lake, statement),
            partial(with_spark.arrow, spark, lake, statement),
        )


class _Printed:
    """Prints the lines of an answer. room: see ``rows.printed``."""

    def __init__(self, output: str, room: int | None) -> None:
        self._output, self._room = output, room

    def __call__(self, lines: Lines, _: Arrow) -> None:
        for line in lines(output=self._output, room=self._room):
            print(line)


class _Written:
    """Writes an answer to a file. Raises a UserError at once for a name that can't be one."""

    def __init__(self, path: str, lake: str) -> None:
        self._path, self._suffix = path, check_output(path, lake)

    def __call__(self, lines: Lines, arrow: Arrow) -> None:
        if self._suffix == CSV:
            rows = write_csv(self._path, lines(output="csv"))
        else:
            rows = write_parquet(self._path, *arrow())
        logger.info("%s written to %s", counted_noun(rows, "row"), self._path)


def _check_place(lake: str) -> None:
    """Raises Unsupported where this process may not know all files, or all names."""
    if local_path(lake) is None and not is_object_store(canonical(lake)):
        raise Unsupported("a lake that is in no local folder and no object store")
    if _is_elsewhere():
        raise Unsupported("a session or a cluster that is configured elsewhere")


def _is_elsewhere() -> bool:
    """Whether a session or a cluster of the user may know other names than this process."""
    pyspark = sys.modules.get("pyspark.sql")
    has_session = pyspark is not None and pyspark.SparkSession.getActiveSession() is not None
    return has_session or any(name in os.environ for name in _OF_A_CLUSTER)


def main(argv: Sequence[str] | None = None) -> int:
    return run_command(QUERY, run, argv, with_spark=False)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m pipelines.query --lake L "SELECT ..."``: runs one SQL statement over a lake, and only reads.

Where this machine reads the lake, DuckDB answers in this process, in its own SQL (``pipelines.sql.answers``).
``--engine spark`` is Spark's SQL, which takes the start of a JVM; it is the default in a session or a cluster
that is configured elsewhere, and for lakes that Spark alone reaches.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from kafka_log_lake.pipelines.cli.commands.query import QUERY
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import LakeSettings
from kafka_log_lake.pipelines.cli.terminal import counted_noun, room_of_lines
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.lake.address import open_log
from kafka_log_lake.pipelines.sql import answers
from kafka_log_lake.pipelines.sql.answer_files import CSV, check_output, write_csv, write_parquet
from kafka_log_lake.pipelines.sql.database import duckdb_reads, open_database
from kafka_log_lake.pipelines.sql.statements import check_text, tokens

logger = logging.getLogger(__name__)

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
    at: str | None = None,
    log: str | None = None,
) -> None:
    """Prints the result of one statement, or writes it to a file.

    full: whether long values are printed whole. output: the file, .csv or .parquet. writes: "allow" runs a
    statement that writes, in Spark. engine: duckdb, spark, or auto. at: an earlier state of the lake: a run
    or a time. log: one of several copies, by name, or healed. Raises a UserError for a wrong statement, one
    that writes though it may not, or on S3, or a file that can't be written.
    """
    check_text(statement)
    lake = settings.require_lake()
    if log is not None:
        lake = open_log(lake, log)
    if output is None:
        give = partial(_print, room_of_lines(full), format)
    else:
        give = partial(_write, output, check_output(output, lake))
    if choose_engine(engine, lake, writes, at) == "duckdb":

        def in_duckdb(run_in: Callable[..., Any], **options: object) -> Any:
            """Calls ``run_in`` with a database that has what the statement names.

            If a name is not there it is run again among all names, of which DuckDB gives the nearest.
            """
            try:
                database = open_database(lake, statement, settings.cores, at)
                result = run_in(database, statement, **options)
                _note_uncommitted(database, statement)
                return result
            except answers.UnknownName:
                return run_in(open_database(lake, "", settings.cores, at), statement, **options)

        give(partial(in_duckdb, answers.answer), partial(in_duckdb, answers.arrow))
        return
    from kafka_log_lake.pipelines.engine.session import (
        session,  # imports Spark, which the other engine does not need
    )
    from kafka_log_lake.pipelines.query import spark as with_spark
    from kafka_log_lake.pipelines.query.gate import check_reads, refuse_changes_on_s3
    from kafka_log_lake.pipelines.query.spark import one_line_errors

    with session(settings) as spark:
        with one_line_errors(spark):
            if writes == "allow":
                refuse_changes_on_s3(spark, lake, statement)
            else:
                check_reads(spark, statement)
        give(
            partial(with_spark.answer, spark, lake, statement, writes=writes == "allow"),
            partial(with_spark.arrow, spark, lake, statement),
        )


_OF_COMMITTED = ("committed_records", "messages", "latest_by_key")


def _note_uncommitted(database: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Logs how many records the views of committed records leave out."""
    # A bare name is no proof: topic_overview has a column messages
    words = [token.word for token in tokens(statement) if not token.is_comment]
    read = (word for before, word in pairwise(words) if before in ("from", "join"))
    name = next((word for word in read if word in _OF_COMMITTED), None)
    if name is None:
        return
    counted = "SELECT CAST(sum(records) AS BIGINT) FROM current_transactions WHERE outcome <> 'committed'"
    left_out = (database.cursor().execute(counted).fetchone() or [0])[0]
    if left_out:
        logger.info(
            "%s hides %s of aborted and open transactions, and what follows an open one. "
            "To see them, query records",
            name,
            counted_noun(left_out, "record"),
        )


def choose_engine(engine: str, lake: str, writes: str = "refuse", at: str | None = None) -> str:
    """Chooses the engine of statements: duckdb or spark. Raises a UserError for one that can't run them."""
    is_here = duckdb_reads(lake)
    if engine == "auto":
        engine = "spark" if writes == "allow" or not is_here or _is_elsewhere() else "duckdb"
    if engine == "spark" and at is not None:
        raise UserError("--at needs --engine duckdb")
    if engine == "duckdb" and writes == "allow":
        raise UserError("DuckDB only reads: --writes allow needs --engine spark")
    if engine == "duckdb" and not is_here:
        raise UserError(f"DuckDB reads no lake at {lake}: use --engine spark")
    return engine


def _print(room: int | None, form: str, lines: Lines, _: Arrow) -> None:
    """Prints the lines of an answer. room: see ``rows.printed``. form: table, json or csv."""
    for line in lines(output=form, room=room):
        print(line)


def _write(path: str, suffix: str, lines: Lines, arrow: Arrow) -> None:
    """Writes an answer to a file. suffix: the end of its name."""
    rows = write_csv(path, lines(output="csv")) if suffix == CSV else write_parquet(path, *arrow())
    logger.info("%s written to %s", counted_noun(rows, "row"), path)


def _is_elsewhere() -> bool:
    """Returns whether a session or a cluster of the user may know other names than this process."""
    pyspark = sys.modules.get("pyspark.sql")
    has_session = pyspark is not None and pyspark.SparkSession.getActiveSession() is not None
    return has_session or any(name in os.environ for name in _OF_A_CLUSTER)


main = partial(run_command, QUERY, run, with_spark=False)

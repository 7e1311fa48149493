"""``kafka-log-lake export --topic T --lake L --output FILE``: the committed records of a topic in one file.

Keys and values are those of the topic's typed table, if the lake has one, else texts. The file is there whole
or not at all, and an existing one is replaced only with ``--overwrite``.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import duckdb
import pyarrow as pa

from kafka_log_lake.pipelines.cli.commands.export import EXPORT, EXPORT_FORMATS
from kafka_log_lake.pipelines.cli.errors import UserError, needs_extra, unwritable, writing
from kafka_log_lake.pipelines.cli.settings import LakeSettings
from kafka_log_lake.pipelines.cli.streams import replace_file, replaced_file
from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable
from kafka_log_lake.pipelines.cli.values import nearest
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.export.statement import not_in_typed, of_texts, of_typed
from kafka_log_lake.pipelines.export.workbook import CELL, CellsCut, write_xlsx
from kafka_log_lake.pipelines.lake.address import open_lake, open_log
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.sql.answer_files import check_place, write_csv, write_parquet
from kafka_log_lake.pipelines.sql.answers import answer, arrow
from kafka_log_lake.pipelines.sql.database import duckdb_reads, open_database
from kafka_log_lake.pipelines.sql.types import quoted
from kafka_log_lake.pipelines.typed.tables import TypedTable, typed_tables
from kafka_log_lake.udfs.format.report_tables import VALUE_ERRORS

logger = logging.getLogger(__name__)


def run(
    settings: LakeSettings,
    topic: str | None = None,
    format: str = "auto",  # noqa: A002  # the option's name
    output: str | None = None,
    values: str = "typed",
    overwrite: bool = False,
    at: str | None = None,
    log: str | None = None,
) -> None:
    """Writes the committed records of a topic to a file.

    format: one of EXPORT_FORMATS; auto: by the file's name. output: the file; None: the topic's name in this
    folder. values: "typed", by the typed table if there is one, or "text". at: an earlier state: a run or a
    time. log: one of several copies, by name, or healed. Raises a UserError for a topic that the lake does
    not have, a file that is there, or one that can't be written.
    """
    lake = settings.require_lake()
    lake = open_log(lake, log) if log is not None else open_lake(lake)
    if not duckdb_reads(lake):
        raise UserError(f"export reads no lake at {lake}: query --engine spark does")
    if topic is None:
        raise UserError("--topic is missing: name one topic, such as --topic orders")
    path, form = place_and_format(topic, output, format)
    check_place(path, lake)
    if os.path.isfile(path) and not overwrite:
        raise UserError(f"--output {printable(path)} is there already: add --overwrite to replace it")
    table = _typed_table(lake, topic, at) if values == "typed" else None
    has_errors = table is not None and VALUE_ERRORS.name in published_tables(lake, at, {VALUE_ERRORS.name})
    is_flat = form in ("csv", "xlsx")
    statement = of_texts(topic) if table is None else of_typed(topic, table, is_flat, has_errors)
    looked_up = f"{statement} FROM segments records published_quarantine"
    database = open_database(lake, looked_up, settings.cores, at)
    _check_topic(database, topic)
    if table is not None:
        _check_typed(database, topic, table)
    cut = CellsCut()
    rows = _write(database, statement, topic, path, form, cut)
    kind = "keys and values as text" if table is None else f"typed, as {table.folder}/{topic}"
    logger.info("%s of %s written to %s (%s)", counted_noun(rows, "record"), topic, path, kind)
    _warn(database, topic, rows, cut)


def place_and_format(topic: str, output: str | None, form: str) -> tuple[str, str]:
    """Returns the file and its format, which its name says where ``form`` is auto."""
    suffix = os.path.splitext(output or "")[1].lower().removeprefix(".")
    if form == "auto":
        form = suffix if output is not None else "parquet"
    if form not in EXPORT_FORMATS:
        names = ", ".join(f".{format_}" for format_ in EXPORT_FORMATS)
        raise UserError(f"--output {printable(output or '')} must end in one of {names}; or add --format")
    # A folder may be named as no topic of Kafka is
    return output or f"{re.sub(r'[^A-Za-z0-9._-]', '_', topic)}.{form}", form


def _typed_table(lake: str, topic: str, at: str | None) -> TypedTable | None:
    tables = typed_tables(lake, at=at, topics={topic})
    return next((table for table in tables if table.folder == "typed"), None)


def _number(database: duckdb.DuckDBPyConnection, statement: str, *values: str) -> int:
    (number,) = database.cursor().execute(statement, values).fetchone() or (0,)
    return int(number or 0)


def _check_topic(database: duckdb.DuckDBPyConnection, topic: str) -> None:
    topics = [
        topic_ for (topic_,) in database.cursor().execute("SELECT DISTINCT topic FROM segments").fetchall()
    ]
    if topic not in topics:
        raise UserError(f"the lake has no topic {printable(topic)}{nearest(topic, topics)}")


def _check_typed(database: duckdb.DuckDBPyConnection, topic: str, table: TypedTable) -> None:
    """Raises a UserError where the typed table lacks records: an earlier run did not bring it up to date."""
    missing = _number(database, not_in_typed(topic, table))
    if missing:
        raise UserError(
            f"{counted_noun(missing, 'record')} of {printable(topic)} not in its typed table: bring it up to "
            "date by decode-values, or add --values text"
        )


def _write(
    database: duckdb.DuckDBPyConnection, statement: str, topic: str, path: str, form: str, cut: CellsCut
) -> int:
    if form == "csv":
        return write_csv(path, answer(database, statement, "csv"))
    schema, batches = arrow(database, statement)
    if form == "parquet":
        return write_parquet(path, schema, batches)
    if form == "duckdb":
        return _write_duckdb(path, topic, schema, batches)
    try:
        with replaced_file(path, "--output") as file, writing(f"--output {path}"):
            return write_xlsx(file, schema, batches, cut)
    except ModuleNotFoundError as error:
        raise needs_extra("--format xlsx", error) from None


def _write_duckdb(path: str, topic: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    """Writes a database of DuckDB with one table, which has the topic's name."""
    with _made_beside(path) as temporary:
        try:
            with duckdb.connect(temporary) as made:
                made.register("rows of export", pa.RecordBatchReader.from_batches(schema, batches))
                made.execute(f'CREATE TABLE {quoted(topic)} AS FROM "rows of export"')
                return _number(made, f"SELECT count(*) FROM {quoted(topic)}")
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise unwritable(f"--output {path}", error) from None


@contextmanager
def _made_beside(path: str) -> Iterator[str]:
    """Yields a path next to a file, whose place the file made there takes if the block succeeds.

    Raises a UserError for a device or a pipe, which it would replace.
    """
    place = os.path.realpath(path)
    if os.path.exists(place) and not os.path.isfile(place):
        raise UserError(f"--output {path} is no file, and a database of DuckDB needs one")
    temporary = f"{place}.{os.urandom(4).hex()}.tmp"
    try:
        yield temporary
        with writing(f"--output {path}"):
            replace_file(temporary, place)
    finally:
        for left in (temporary, f"{temporary}.wal"):
            with suppress(FileNotFoundError):
                os.remove(left)


def _warn(database: duckdb.DuckDBPyConnection, topic: str, rows: int, cut: CellsCut) -> None:
    """Logs what of the topic is not in the file, or is there in another way than one would think."""
    data = "SELECT count(*) FROM records WHERE topic = ? AND NOT is_control"
    left_out = _number(database, data, topic) - rows
    if left_out > 0:
        logger.info(
            "left out: %s of aborted and open transactions, after an open one, or below the log start; "
            "the table records has them",
            counted_noun(left_out, "record"),
        )
    damaged = _number(database, "SELECT count(*) FROM published_quarantine WHERE topic = ?", topic)
    if damaged:
        logger.warning(
            "%s of %s could not be decoded: its records are not in the file, see the view lost_offsets",
            counted_noun(damaged, "damaged range"),
            topic,
        )
    copies = (
        "SELECT max(copies) FROM (SELECT count(DISTINCT partition_dir) AS copies FROM segments "
        "WHERE topic = ? GROUP BY partition)"
    )
    if _number(database, copies, topic) > 1:
        logger.warning(
            "the lake has several copies of partitions of %s, and the file has the records of each: "
            "decode with --one-copy, or recover, to have each record once",
            topic,
        )
    if cut.count:
        logger.warning(
            "%s longer than the %s characters that a cell of Excel holds: cut, which is said at the end of "
            "each; --format csv, parquet and duckdb have all of it",
            counted_noun(cut.count, "cell"),
            f"{CELL:,}",
        )


main: Callable[..., int] = partial(run_command, EXPORT, run, with_spark=False)

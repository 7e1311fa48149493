"""DuckDB answers a statement over a lake: its whole SQL, as far as it only reads.

What reaches files or the configuration is refused by DuckDB itself (``database``). Of statements that would
write or run others, those below are refused by their kind, as DuckDB's own parser finds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import duckdb
import pyarrow as pa

from kafka_log_lake.pipelines.cli.errors import UserError, with_own_paths
from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.sql.connection import advice
from kafka_log_lake.pipelines.sql.interrupts import run_apart
from kafka_log_lake.pipelines.sql.json_rows import json_lines
from kafka_log_lake.pipelines.sql.rows import ResultColumn, printed
from kafka_log_lake.pipelines.sql.statements import duckdb_text, tokens

_BATCH_ROWS = 2048
_KIND = duckdb.StatementType
# Every form of a query: FROM, WITH, VALUES, TABLE, DESCRIBE, SHOW, SUMMARIZE are SELECT
READS = frozenset({_KIND.SELECT})
# What a shell may make besides, in memory: it ends with the shell. The tables of the lake are views there
IN_MEMORY = READS | {_KIND.CREATE, _KIND.DROP, _KIND.INSERT, _KIND.UPDATE, _KIND.DELETE, _KIND.SET}
# Statements that Spark runs on the tables where writes are allowed
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE_INTO", "VACUUM", "CREATE", "ALTER", "DROP"})
# The advice to change a setting: the configuration is locked
_SETTING = re.compile(r"(, or|\. Use) SET \w+ ?=[^.]*")
_OF_DUCKDB = re.compile(r' Did you mean "pg_\w+"\?')  # its own catalog: nobody who asks a lake means that


class UnknownName(UserError):
    """The error for a table, view or function that is not there."""


def answer(
    database: duckdb.DuckDBPyConnection,
    statement: str,
    output: str,
    room: int | None = None,
    kinds: frozenset[duckdb.StatementType] = READS,
) -> Iterator[str]:
    """Returns lines that print the result of one statement. output: table, json or csv. room: ``printed``.

    kinds: of statements that are run. Raises a UserError for another one, for more than one and for what
    DuckDB says of a wrong one.
    """
    schema, batches, is_plan = _run(database, statement, kinds)
    if is_plan and output == "table":
        plans = (text for batch in batches for text in batch.column(batch.num_columns - 1).to_pylist())
        return (printable(line) for plan in plans for line in plan.splitlines())
    columns = [ResultColumn(field.name, _is_binary(field.type), _is_number(field.type)) for field in schema]
    lines = (line for batch in batches for line in json_lines(batch))
    return iter(printed(output, columns, lines, room)) if columns else iter(())


def arrow(database: duckdb.DuckDBPyConnection, statement: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Returns the schema and the rows of ``answer`` as Arrow. Raises as it does."""
    schema, batches, _ = _run(database, statement, READS)
    return schema, batches


def _run(
    database: duckdb.DuckDBPyConnection, statement: str, kinds: frozenset[duckdb.StatementType]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch], bool]:
    """Runs a statement. Returns its schema, its rows, and whether they are a plan (EXPLAIN)."""
    computed = partial(run_apart, database, ThreadPoolExecutor(1))
    with _wrong_statements_in_one_line(partial(advice, database, statement)):
        judged, is_plan = _judged(database, duckdb_text(statement), kinds)
        relation: duckdb.DuckDBPyRelation | None = computed(lambda: database.sql(judged))
        if relation is None:  # what a shell made
            return pa.schema([]), iter(()), False
        reader = computed(lambda: relation.to_arrow_reader(_BATCH_ROWS))

    def batches() -> Iterator[pa.RecordBatch]:
        with _wrong_statements_in_one_line():
            while (batch := computed(lambda: next(reader, None))) is not None:
                yield batch

    return reader.schema, batches(), is_plan


def _judged(
    database: duckdb.DuckDBPyConnection, text: str, kinds: frozenset[duckdb.StatementType]
) -> tuple[duckdb.Statement, bool]:
    """Parses the one statement of a text. Returns it, and whether it is EXPLAIN.

    Raises a UserError for one that may not run.
    """
    statements = database.extract_statements(text)
    if len(statements) != 1:
        raise UserError(f"SQL: {'one statement at a time' if statements else 'there is no statement'}")
    (statement,) = statements
    kind, word = statement.type, statement.type.name
    if kind == _KIND.MULTI:
        word = _around_pivot(text)
        kind = _KIND.__members__.get(word, _KIND.INVALID)
    if kind == _KIND.EXPLAIN:
        _judged(database, _explained(text), READS)  # EXPLAIN ANALYZE runs it
        return statement, True
    if kind not in kinds:
        raise UserError(_refusal(word, kinds))
    return statement, False


def _refusal(word: str, kinds: frozenset[duckdb.StatementType]) -> str:
    """Returns why a statement may not run, and what to do instead. word: its kind."""
    to_file = "query --output FILE writes rows to a file"
    if kinds is IN_MEMORY:
        return f"the shell only reads the lake, and this is {word}" + (
            f"; {to_file}" if word == "COPY" else ""
        )
    upkeep = "for upkeep of the tables add --engine spark --writes allow"
    hint = to_file if word == "COPY" else upkeep if word in _CHANGES else ""
    return f"query only reads, and this is {word}" + (f"; {hint}" if hint else "")


def _around_pivot(text: str) -> str:
    """Returns the kind of a statement with a PIVOT: SELECT, EXPLAIN, or its first word.

    DuckDB makes several statements of it, whatever the PIVOT is in: COPY (PIVOT ...) TO 'file' too.
    """
    depth = 0
    words: list[str] = []
    for token in tokens(text):
        sign = "" if token.is_comment else token.text.strip()
        if depth == 0 and (token.word or (sign == "(" and not words)):
            words.append(token.word or sign)
        depth += (sign == "(") - (sign == ")")
    first = words[0] if words else ""
    if first == "with":  # what follows the common table expressions decides
        first = next((word for word in words if word in _CHANGING), "select")
    return "SELECT" if first in (*_QUERIES, *_ABOUT_QUERIES) else first.upper()


def _explained(text: str) -> str:
    """Returns the statement after EXPLAIN, its options left out."""
    left = [token for token in tokens(text) if not token.is_comment]
    left = left[1:]
    if left and left[0].word == "analyze":
        left = left[1:]
    if left and left[0].text.strip() == "(" and (len(left) == 1 or left[1].word not in _QUERIES):
        closes = next((i for i, token in enumerate(left) if token.text.strip() == ")"), len(left))
        left = left[closes + 1 :]
    return "".join(token.text for token in left)


_QUERIES = (
    *("select", "with", "from", "values", "table", "pivot", "unpivot", "pivot_wider", "pivot_longer"),
    "(",
)
_ABOUT_QUERIES = ("describe", "desc", "show", "summarize")
_CHANGING = ("insert", "update", "delete", "merge", "copy", "create")


@contextmanager
def _wrong_statements_in_one_line(advise: Callable[[], str] = str) -> Iterator[None]:
    """Turns what DuckDB says of a statement into a UserError: its message without the quoted line.

    advise: gives what follows it.
    """
    try:
        yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except (duckdb.Error, pa.ArrowException) as error:
        said = " ".join(with_own_paths(str(error)).split("\nLINE ")[0].split())
        head = _OF_DUCKDB.sub("", _SETTING.sub("", said))
        kind = UnknownName if isinstance(error, duckdb.CatalogException) else UserError
        raise kind(f"SQL: {head}{advise()}") from None


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)

"""Translates statements and views to DuckDB's SQL in one pass over tokens, and finds where statements end.

``offset`` and ``group`` are reserved words there, and columns here. Where no clause can be they are quoted.
The views are written for Spark and DuckDB alike; ``view_text`` changes two more things in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import duckdb

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.values import is_utf8
from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.pipelines.sql.types import duckdb_type, quoted
from kafka_log_lake.pipelines.views.declared import PUBLIC, SESSION_VIEWS, View, no_rows
from kafka_log_lake.udfs.format.report_tables import REPORT_TABLES
from kafka_log_lake.udfs.format.schema import TABLES, Table

_PUBLIC = {name for names in PUBLIC.values() for name in names}
# What begins the number of an OFFSET clause: OFFSET 5, OFFSET (1 + 1), OFFSET ?, OFFSET $1
_BEGINS_NUMBER = frozenset("0123456789(?$")
LISTED = "internal.listed_tables"  # what SHOW TABLES gives: group, name, about
# Where the lake's tables and views lie, which read each other there. Those in main read them: one that a user
# makes anew, or a temporary table with its name, changes no other
LAKE = "_lake"
KEPT = "_kept"  # the rows of views that are computed once (pipelines.sql.kept)
_SHOW_TABLES = (["show", "tables"], ["show", "tables", ";"])
# A macro cannot take a lambda, nor have the name of a keyword
_FUNCTIONS = {"transform": "list_transform", "array": "list_value"}


class Token(NamedTuple):
    """A token of SQL, with the blanks that follow it.

    is_word: whether it is a bare word; else it is a quoted one, a literal, a sign or a comment.
    """

    text: str
    is_word: bool
    is_comment: bool

    @property
    def word(self) -> str:
        """Returns the bare word in lower case; "" for another token."""
        return self.text.strip().lower() if self.is_word else ""

    def replaced(self, text: str) -> str:
        """Returns another text with this token's blanks after it."""
        return text + self.text[len(self.text.rstrip()) :]


def tokens(text: str) -> Iterator[Token]:
    """Yields the tokens of a text, as DuckDB reads them. Joined, they are the text."""
    content = text.encode()  # DuckDB counts bytes
    kinds = duckdb.tokenize(text)
    if not kinds:
        yield Token(text, False, True)
        return
    ends = [*(at for at, _ in kinds[1:]), len(content)]
    if kinds[0][0]:
        yield Token(content[: kinds[0][0]].decode(), False, True)
    for (at, kind), end in zip(kinds, ends, strict=True):
        part = content[at:end].decode()
        is_word = kind in (duckdb.token_type.keyword, duckdb.token_type.identifier) and part[0] not in '"`'
        yield Token(part, is_word, kind == duckdb.token_type.comment)


def duckdb_text(statement: str) -> str:
    """Translates a statement: quotes each bare ``offset`` and ``group`` that belongs to no clause.

    SHOW TABLES becomes a query of ``LISTED``, which groups them; SHOW ALL TABLES leaves out LAKE and KEPT.
    DESCRIBE of a table or a view gives the meaning of each column, too.
    """
    parts = list(tokens(statement))
    words = [token.word or token.text.strip() for token in parts if not token.is_comment]
    if words in _SHOW_TABLES:
        return f"FROM {LISTED}"
    match words:
        case ["show", "all", "tables"] | ["show", "all", "tables", ";"]:
            return f"FROM (SHOW ALL TABLES) WHERE schema NOT IN ('{LAKE}', '{KEPT}')"
        case ["describe" | "desc", name] | ["describe" | "desc", name, ";"] if name in _declared():
            return _described(_declared()[name])
    return "".join(_quoted(parts))


@cache
def _declared() -> dict[str, Table | View]:
    declared: tuple[Table | View, ...] = (*TABLES, *REPORT_TABLES, *SESSION_VIEWS)
    return {table.name: table for table in declared}


def _described(declared: Table | View) -> str:
    """Returns the SELECT of name, type and meaning of each column."""
    names = [sql_literal(column.name) for column in declared.columns]
    meanings = ", ".join(sql_literal(column.comment) for column in declared.columns)
    meaning = f"MAP([{', '.join(names)}], [{meanings}])[column_name] AS meaning"
    is_macro = isinstance(declared, View) and not declared.has_defaults  # DuckDB does not describe one
    rows = no_rows(declared.columns, quoted, duckdb_type) if is_macro else declared.name
    return f"SELECT column_name, column_type, {meaning} FROM (DESCRIBE {rows})"


def _quoted(parts: list[Token]) -> Iterator[str]:
    before = ""
    for i, token in enumerate(parts):
        is_name = False
        if token.word in ("offset", "group"):
            after = next((part for part in parts[i + 1 :] if not part.is_comment), Token("", False, False))
            if token.word == "offset":
                is_name = after.text[:1] not in _BEGINS_NUMBER
            else:  # GROUP BY, WITHIN GROUP, EXCLUDE GROUP
                is_name = after.word != "by" and before not in ("within", "exclude")
        yield token.replaced(f'"{token.word}"') if is_name else token.text
        before = before if token.is_comment else token.word


def view_text(select: str, parameters: Mapping[str, str]) -> str:
    """Translates the SELECT of a view to DuckDB's SQL.

    parameters: name -> type in DuckDB; each is cast to it, because a macro takes values of any type.
    A lambda ``x -> y`` becomes ``lambda x: y``. The tables and views that it reads are those of LAKE.
    """
    made: list[str] = []
    parts = list(tokens(select))
    for i, (token, text) in enumerate(zip(parts, _quoted(parts), strict=True)):
        after_dot = i > 0 and parts[i - 1].text.strip() == "."
        is_read = i > 0 and parts[i - 1].word in ("from", "join")
        if token.text.strip() == "->":
            made[-1] = f"lambda {made[-1].strip()}"
            made.append(": ")
        elif token.word in parameters and not after_dot:
            made.append(token.replaced(f'CAST("{token.word}" AS {parameters[token.word]})'))
        elif is_read and token.word in _declared():
            made.append(f"{LAKE}.{text}")
        elif token.word in _FUNCTIONS:
            made.append(token.replaced(_FUNCTIONS[token.word]))
        else:
            made.append(text)
    return "".join(made)


# What may hold a semicolon that ends nothing: quoted text and names, comments. An open one goes on
_TOKENS = re.compile(
    r"""'[^']*(?:'|\Z) | "[^"]*(?:"|\Z) | `[^`]*(?:`|\Z) | --[^\n]* |
        /\*(?:.*?\*/|.*\Z) | ; | [^'"`;/-]+ | .""",
    re.DOTALL | re.VERBOSE,
)


def split_statements(text: str) -> tuple[list[str], str]:
    """Returns the statements in a text that ``;`` ends, and what is left after the last."""
    statements: list[str] = []
    rest = ""
    for token in _TOKENS.findall(text):
        if token == ";":
            statements.append(rest.strip())
            rest = ""
        else:
            rest += token
    return statements, rest


def check_text(statement: str) -> None:
    """Raises a UserError for a statement with bytes that are not UTF-8, which no engine takes."""
    if not is_utf8(statement):
        raise UserError("SQL: the statement is not UTF-8")


def has_code(statement: str) -> bool:
    """Returns whether a statement is more than blanks and comments."""
    return any(token.strip() and not token.startswith(("--", "/*")) for token in _TOKENS.findall(statement))


def table_creations(table: Table, rows: str, kind: str = "VIEW") -> Iterator[str]:
    """Yields statements that create a table of the lake.

    rows: a SELECT of its columns. kind: TABLE where it is to hold them.
    """
    yield f"CREATE SCHEMA IF NOT EXISTS {LAKE}"
    if kind == "VIEW":  # of no rows first, as DuckDB binds a view when another one reads it
        yield f"CREATE VIEW {LAKE}.{table.name} AS {no_rows(table.columns, quoted, duckdb_type)}"
        yield f"CREATE VIEW {table.name} AS FROM {LAKE}.{table.name}"
        yield f"CREATE OR REPLACE VIEW {LAKE}.{table.name} AS {rows}"
    else:
        yield f"CREATE TABLE {LAKE}.{table.name} AS {rows}"
        yield f"CREATE VIEW {table.name} AS FROM {LAKE}.{table.name}"


def creations(views: Sequence[View], lists: bool = False) -> Iterator[str]:
    """Yields statements that create views, each after those that it reads, and the user's name of each.

    lists: whether the schema ``internal`` is made too, in which those that are not PUBLIC have their names.

    DuckDB binds a view when it is created, and each view below it again. So each is empty first, and the
    last one gets its SELECT first, over empty views: a fifth of the time.
    """
    yield f"CREATE SCHEMA IF NOT EXISTS {LAKE}"
    for view in views:
        yield from _statements(view, no_rows(view.columns, quoted, duckdb_type))
        yield from _names(view)
    if lists:
        yield "CREATE SCHEMA internal"
        for view in views:
            if view.has_defaults and view.name not in _PUBLIC:
                yield f"CREATE VIEW internal.{view.name} AS FROM {LAKE}.{view.name}"
    for view in reversed(views):
        yield from _statements(view, definition(view))


def _statements(view: View, select: str, schema: str = f"{LAKE}.") -> Iterator[str]:
    """Yields statements that create a view; with parameters a table macro, and a view of their defaults."""
    if view.parameters:
        listed = ", ".join(
            f'"{parameter.name}"' + ("" if parameter.default is None else f" := {parameter.default}")
            for parameter in view.parameters
        )
        yield f"CREATE OR REPLACE MACRO {schema}{view.name}({listed}) AS TABLE {select}"
        select = f"SELECT * FROM {schema}{view.name}()"
    if view.has_defaults:
        yield f"CREATE OR REPLACE VIEW {schema}{view.name} AS {select}"


def _names(view: View) -> Iterator[str]:
    """Yields statements that create the names by which a user reads a view."""
    given = ", ".join(f'"{parameter.name}" := "{parameter.name}"' for parameter in view.parameters)
    yield from _statements(view, f"FROM {LAKE}.{view.name}" + (f"({given})" if given else ""), schema="")


@cache
def definition(view: View) -> str:
    """Returns the SELECT of a view in DuckDB's SQL, with the types that it declares."""
    parameters = {parameter.name: duckdb_type(parameter.sql_type) for parameter in view.parameters}
    names = ", ".join(f'"{column.name}"' for column in view.columns)
    # With the view's name: a parameter of a macro that reads the view may have the name of a column
    typed = ", ".join(
        f'CAST({view.name}."{column.name}" AS {duckdb_type(column.sql_type)}) AS "{column.name}"'
        for column in view.columns
    )
    return f"SELECT {typed} FROM (\n{view_text(view.select, parameters)}\n) AS {view.name}({names})"

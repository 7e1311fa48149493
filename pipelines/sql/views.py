"""The views of ``pipelines.views`` in a DuckDB database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from pipelines.sql.tokens import view_text
from pipelines.sql.types import duckdb_type, no_rows
from pipelines.views.declared import View


def creations(views: Sequence[View]) -> Iterator[str]:
    """Statements that create views, which come after those that they read.

    DuckDB binds a view when it is created, and each view below it again. So each is empty first, and the
    last one gets its SELECT first, over empty views: a fifth of the time.
    """
    for view in views:
        yield from _statements(view, no_rows(view.columns))
    for view in reversed(views):
        yield from _statements(view, _select(view))


def _statements(view: View, select: str) -> Iterator[str]:
    """With parameters a table macro, and a view of their defaults."""
    if view.parameters:
        listed = ", ".join(
            f'"{one.name}"' + ("" if one.default is None else f" := {one.default}") for one in view.parameters
        )
        yield f"CREATE OR REPLACE MACRO {view.name}({listed}) AS TABLE {select}"
        select = f"SELECT * FROM {view.name}()"
    if view.has_defaults:
        yield f"CREATE OR REPLACE VIEW {view.name} AS {select}"


@cache
def _select(view: View) -> str:
    parameters = {one.name: duckdb_type(one.sql_type) for one in view.parameters}
    names = ", ".join(f'"{column.name}"' for column in view.columns)
    # With the view's name: a parameter of a macro that reads the view may have the name of a column
    typed = ", ".join(
        f'CAST({view.name}."{column.name}" AS {duckdb_type(column.sql_type)}) AS "{column.name}"'
        for column in view.columns
    )
    return f"SELECT {typed} FROM (\n{view_text(view.select, parameters)}\n) AS {view.name}({names})"

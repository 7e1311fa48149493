"""The views of ``pipelines.views`` in a DuckDB database."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.sql.tokens import view_text
from pipelines.sql.types import duckdb_type
from pipelines.views.declared import View


def creations(view: View) -> Iterator[str]:
    """Statements that create a view: with parameters a table macro, and a view of their defaults."""
    parameters = {one.name: duckdb_type(one.sql_type) for one in view.parameters}
    names = ", ".join(f'"{column.name}"' for column in view.columns)
    # With the view's name: a parameter of a macro that reads the view may have the name of a column
    typed = ", ".join(
        f'CAST({view.name}."{column.name}" AS {duckdb_type(column.sql_type)}) AS "{column.name}"'
        for column in view.columns
    )
    select = f"SELECT {typed} FROM (\n{view_text(view.select, parameters)}\n) AS {view.name}({names})"
    if view.parameters:
        listed = ", ".join(
            f'"{one.name}"' + ("" if one.default is None else f" := {one.default}") for one in view.parameters
        )
        yield f"CREATE MACRO {view.name}({listed}) AS TABLE {select}"
        select = f"SELECT * FROM {view.name}()"
    if view.has_defaults:
        yield f"CREATE VIEW {view.name} AS {select}"

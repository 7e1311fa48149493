"""Finds names that nothing has, before anything starts: of tables, views and functions.

Unknown columns are found by ``translate``. Names of several parts are Spark's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import resources

from sqlglot import exp

from pipelines.command.errors import UserError
from pipelines.command.settings import nearest
from pipelines.engine.text import Statement
from pipelines.views.declared import SESSION_VIEWS
from udfs.functions.declared import FUNCTIONS, TABLE_FUNCTIONS

_OURS = {
    *(one.name for one in FUNCTIONS),
    *(one.name for one in TABLE_FUNCTIONS),
    *("kafka_internal_record", "kafka_offset_commit", "kafka_transaction_state"),
    *("table_changes", "table_changes_by_path"),  # Delta's
    *(view.name for view in SESSION_VIEWS if view.parameters),
}


def spark_functions() -> frozenset[str]:
    """The names of all functions of Spark SQL."""
    return frozenset(
        resources.files(__package__).joinpath("spark_functions.json").read_text().split('"')[1::2]
    )


def check_names(statement: Statement, tables: Iterable[str]) -> None:
    """Raises a UserError for a table, view or function that is not there. tables: those of the lake."""
    tree = statement.tree
    if not isinstance(tree, exp.Query):
        return
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    relations = {*tables, *(view.name for view in SESSION_VIEWS if view.has_defaults)}
    for name in _relations(tree):
        if name.lower() not in relations | ctes:
            hint = nearest(name.lower(), sorted(relations | ctes))
            raise UserError(
                f"SQL: [TABLE_OR_VIEW_NOT_FOUND] The table or view `{name}` cannot be found{hint}"
            )
    known = _OURS | spark_functions()
    for call in tree.find_all(exp.Anonymous):
        if not isinstance(call.parent, exp.Dot) and call.name.lower() not in known:
            hint = nearest(call.name.lower(), sorted(known))
            raise UserError(f"SQL: [UNRESOLVED_ROUTINE] The function `{call.name}` cannot be found{hint}")


def _relations(tree: exp.Expr) -> Iterator[str]:
    """The names of one part in FROM and JOIN."""
    for table in tree.find_all(exp.Table):
        is_read = isinstance(table.parent, exp.From | exp.Join)
        if is_read and isinstance(table.this, exp.Identifier) and not table.args.get("db"):
            yield table.name

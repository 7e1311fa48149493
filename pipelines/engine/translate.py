"""Translates a query of Spark SQL over the lake's tables and views into one SELECT of DuckDB.

Columns get names of their own in DuckDB (``c0``, ``c1``, ...) and relations too (``t1``, ``t2``, ...): what a
name of the statement means is decided here, by Spark's rules, and never by DuckDB. Views are translated where
they are named, so that conditions reach the files of the tables below them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

import pipelines.engine.functions  # its rules
import pipelines.engine.nested  # noqa: F401  # its rules
from pipelines.engine import types as t
from pipelines.engine.aggregates import direction
from pipelines.engine.casts import cast
from pipelines.engine.expressions import Expressions, Subquery, only
from pipelines.engine.scope import Field, Scope, Source, Value
from pipelines.engine.selects import Around, Query, Select, fields_of, limits_of, position_of
from pipelines.engine.text import Statement, parse
from pipelines.sql.errors import Unsupported
from pipelines.views.declared import View

_SETS: dict[type[exp.Expr], str] = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}


@dataclass(frozen=True)
class Translated:
    """A whole statement. tables: those of the lake that it reads. is_hinted: whether a join has a hint."""

    query: Query
    tables: frozenset[str]
    is_hinted: bool


def translate(
    statement: Statement, tables: Mapping[str, Sequence[tuple[str, pa.DataType]]], views: Mapping[str, View]
) -> Translated:
    """Translates a parsed statement.

    tables: the columns of the lake's tables. Raises Unsupported with what DuckDB is not known to do as Spark
    does, a UserError for a column that is not there.
    """
    translation = _Translation(statement, tables, views, itertools.count(1), set(), set())
    query = translation.query(statement.tree, Around(), is_result=True)
    return Translated(query, frozenset(translation.used), bool(translation.hints))


@dataclass
class _Translation:
    statement: Statement
    tables: Mapping[str, Sequence[tuple[str, pa.DataType]]]
    views: Mapping[str, View]
    numbers: itertools.count[int]
    used: set[str]
    hints: set[str]

    def query(self, node: exp.Expr, around: Around, is_result: bool = False) -> Query:
        if isinstance(node, exp.Subquery) and node.alias == "":
            only(node, {"this", "order", "limit", "offset", "with_"})
            inner = self.query(node.this, self.with_ctes(node, around)[0])
            return self.ended(node, inner, around)
        if isinstance(node, exp.Select):
            return Select(self, node, around).query(is_result)
        if type(node) in _SETS:
            return self.set_operation(node, around)
        raise Unsupported(f"a statement of this kind ({node.key})")

    def with_ctes(self, node: exp.Expr, around: Around) -> tuple[Around, str]:
        """What is known within a query that has a WITH; and the WITH of DuckDB."""
        clause = node.args.get("with_")
        if clause is None:
            return around, ""
        only(clause, {"expressions"})
        around, parts = replace(around, ctes=dict(around.ctes)), []
        for cte in clause.expressions:
            only(cte, {"this", "alias"})
            only(cte.args["alias"], {"this", "columns"})
            inner = self.query(cte.this, around)
            names = [one.name for one in cte.args["alias"].columns]
            if names and len(names) != len(inner.fields):
                raise Unsupported("a list of columns of another length")
            listed = [
                (name, one.type)
                for name, one in zip(names or [f.name for f in inner.fields], inner.fields, strict=True)
            ]
            number = f"w{next(self.numbers)}"
            around.ctes[cte.alias.lower()] = Query(number, fields_of(listed))
            parts.append(f"{number} AS ({inner.sql})")
        return around, f"WITH {', '.join(parts)} "

    def set_operation(self, node: exp.Expr, around: Around) -> Query:
        only(node, {"this", "expression", "distinct", "order", "limit", "offset", "with_"})
        around, clause = self.with_ctes(node, around)
        left, right = (self.query(one, around) for one in (node.this, node.expression))
        is_all = not node.args.get("distinct")
        if len(left.fields) != len(right.fields) or (is_all and not isinstance(node, exp.Union)):
            raise Unsupported("this operation of sets")
        types = [t.common_type([a.type, b.type]) for a, b in zip(left.fields, right.fields, strict=True)]
        sides = (_converted(query, types, f"t{next(self.numbers)}") for query in (left, right))
        word = f" {_SETS[type(node)]}{' ALL' if is_all else ''} "
        fields = fields_of([(one.name, of) for one, of in zip(left.fields, types, strict=True)])
        whole = Query(clause + word.join(f"({side})" for side in sides), fields)
        return self.ended(node, whole, around)

    def ended(self, node: exp.Expr, query: Query, around: Around) -> Query:
        """A query with the ORDER BY and LIMIT of a set operation or of brackets."""
        order, limits = node.args.get("order"), limits_of(node)
        if order is None and not limits:
            return query
        alias = f"t{next(self.numbers)}"
        scope = Scope([Source(None, fields_of([(f.name, f.type) for f in query.fields], alias))])
        keys = []
        for one in order.expressions if order else []:
            position = position_of(one.this, [f.name for f in query.fields])
            if position is None:
                found = Expressions(self.statement, scope, self.subquery(around)).value(one.this)
                keys.append(f"{found.sql} {direction(one)}")
            else:
                keys += [f"{i + 1} {direction(one)}" for i in position]
        by = f" ORDER BY {', '.join(keys)}" if keys else ""
        listed = ", ".join(one.sql for one in fields_of([(f.name, f.type) for f in query.fields]))
        return Query(f"SELECT {listed} FROM ({query.sql}) AS {alias}{by}{limits}", query.fields)

    def subquery(self, around: Around) -> Subquery:
        """Translates a query within an expression."""

        def translated(node: exp.Expr, scope: Scope) -> tuple[str, tuple[Field, ...]]:
            inner = self.query(node, replace(around, scope=scope))
            return inner.sql, inner.fields

        return translated

    # --- Relations ---

    def relation(self, node: exp.Expr, around: Around) -> tuple[str, Source]:
        """A relation of FROM or JOIN: its SQL with its alias, and its columns."""
        number = f"t{next(self.numbers)}"
        if isinstance(node, exp.Subquery):
            only(node, {"this", "alias"})
            found = self.query(node.this, around)
            sql, name = f"({found.sql})", None
        elif isinstance(node, exp.Table):
            only(node, {"this", "alias"})
            sql, found, name = self.named(node, around)
        else:
            raise Unsupported(f"{node.key} in FROM")
        alias = node.args.get("alias")
        if alias is not None:
            only(alias, {"this", "columns"})
            name = alias.name or name
            if alias.columns and len(alias.columns) != len(found.fields):
                raise Unsupported("a list of columns of another length")
        names = [one.name for one in alias.columns] if alias is not None and alias.columns else None
        listed = [(names[i] if names else one.name, one.type) for i, one in enumerate(found.fields)]
        return f"{sql} AS {number}", Source(name, fields_of(listed, number))

    def named(self, node: exp.Table, around: Around) -> tuple[str, Query, str]:
        """A CTE, table, view or table function by its name."""
        if isinstance(node.this, exp.Anonymous):
            view = self.views.get(node.this.name.lower())
            if view is None or not view.parameters:
                raise Unsupported(f"the table function {node.this.name}")
            query = self.view(view, self.arguments(view, node.this.expressions, around))
            return f"({query.sql})", query, view.name
        if not isinstance(node.this, exp.Identifier):
            raise Unsupported("this relation")
        name = node.name.lower()
        if name in around.ctes:
            return around.ctes[name].sql, around.ctes[name], node.name
        if name in self.tables:
            self.used.add(name)
            return f"lake_{name}", Query("", fields_of(self.tables[name])), node.name
        if name not in self.views or not self.views[name].has_defaults:
            raise Unsupported(f"the relation {node.name}")
        query = self.view(self.views[name], {})
        return f"({query.sql})", query, node.name

    def arguments(self, view: View, nodes: Sequence[exp.Expr], around: Around) -> dict[str, Value]:
        """Values for the parameters of a view, by position or by name."""
        names = [one.name for one in view.parameters]
        own = Expressions(self.statement, Scope(values=around.parameters), self.subquery(around))
        given: dict[str, Value] = {}
        for i, node in enumerate(nodes):
            is_named = isinstance(node, exp.Kwarg)
            name = node.name.lower() if is_named else names[i] if i < len(names) else ""
            if name not in names or name in given:
                raise Unsupported(f"these arguments of {view.name}")
            given[name] = own.value(node.expression if is_named else node)
        return given

    def view(self, view: View, given: Mapping[str, Value]) -> Query:
        """A view with the values of its parameters, in the types that it declares where it has parameters."""
        values: dict[str, Value] = {}
        for one in view.parameters:
            if one.name not in given and one.default is None:
                raise Unsupported(f"{view.name} without its argument {one.name}")
            literal = parse(f"SELECT {one.default}").tree.expressions[0]
            own = Expressions(self.statement, Scope(), self.subquery(Around()))
            value = given[one.name] if one.name in given else own.value(literal)
            values[one.name.lower()] = cast(value, t.declared_type(one.sql_type))
        values |= {f"{view.name}.{name}": value for name, value in values.items()}
        body = parse(view.select)
        inner = replace(self, statement=body)  # the counter and the set of tables are shared
        query = inner.query(body.tree, Around(parameters=values))
        declared = [(column.name, t.declared_type(column.sql_type)) for column in view.columns]
        if len(declared) != len(query.fields):
            raise Unsupported(f"the view {view.name}, whose columns are not those that it declares")
        if not view.parameters and [one.type for one in query.fields] != [of for _, of in declared]:
            raise Unsupported(f"the view {view.name}, whose types are not those that it declares")
        sql = _converted(query, [of for _, of in declared], f"t{next(self.numbers)}")
        return Query(sql, fields_of(declared))


def _converted(query: Query, types: Sequence[pa.DataType], alias: str) -> str:
    """A query with its columns in these types."""
    fields = fields_of([(one.name, one.type) for one in query.fields], alias)
    if [one.type for one in fields] == list(types):
        return query.sql
    values = (cast(Value(one.sql, one.type), of) for one, of in zip(fields, types, strict=True))
    listed = ", ".join(f"{value.sql} AS c{i}" for i, value in enumerate(values))
    return f"SELECT {listed} FROM ({query.sql}) AS {alias}"

"""Translates one SELECT: its relations, columns, groups and order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from pipelines.engine import types as t
from pipelines.engine.aggregates import direction, is_aggregate
from pipelines.engine.expressions import Expressions, Subquery, only
from pipelines.engine.scope import Field, Scope, Source, Value, unknown_column
from pipelines.engine.text import Statement
from pipelines.engine.titles import title
from pipelines.sql.errors import Unsupported

_JOINS = {
    "": "JOIN",
    "INNER": "JOIN",
    "CROSS": "CROSS JOIN",
    "LEFT": "LEFT JOIN",
    "LEFT OUTER": "LEFT JOIN",
    "RIGHT": "RIGHT JOIN",
    "RIGHT OUTER": "RIGHT JOIN",
    "FULL": "FULL JOIN",
    "FULL OUTER": "FULL JOIN",
    "LEFT SEMI": "SEMI JOIN",
    "SEMI": "SEMI JOIN",
    "LEFT ANTI": "ANTI JOIN",
    "ANTI": "ANTI JOIN",
}
_OF_A_SELECT = {
    *("expressions", "from_", "joins", "laterals", "where", "group", "having", "windows", "order", "limit"),
    *("offset", "distinct", "hint", "with_"),
}


@dataclass(frozen=True)
class Query:
    """A translated query: SQL of DuckDB, and its columns. Their names in DuckDB are c0, c1, ..."""

    sql: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Item:
    """A column of a SELECT. node: its expression; None for one that came from a star."""

    name: str | None
    value: Value
    node: exp.Expr | None = None


@dataclass
class Around:
    """What is known around a query: CTEs by name, and the parameters of the view that it is in."""

    ctes: dict[str, Query] = field(default_factory=dict)
    parameters: dict[str, Value] = field(default_factory=dict)
    scope: Scope | None = None


class Queries(Protocol):
    """What ``translate`` does for a SELECT. hints: those of all joins so far."""

    statement: Statement
    numbers: itertools.count[int]
    hints: set[str]

    def with_ctes(self, node: exp.Expr, around: Around) -> tuple[Around, str]: ...
    def subquery(self, around: Around) -> Subquery: ...
    def relation(self, node: exp.Expr, around: Around) -> tuple[str, Source]: ...


def fields_of(columns: Sequence[tuple[str | None, pa.DataType]], relation: str = "") -> tuple[Field, ...]:
    """Columns named c0, c1, ... in DuckDB, of a relation there."""
    prefix = f"{relation}." if relation else ""
    return tuple(Field(name, of, f"{prefix}c{i}") for i, (name, of) in enumerate(columns))


def limits_of(node: exp.Expr) -> str:
    sql = ""
    for name in ("limit", "offset"):
        clause = node.args.get(name)
        if clause is None:
            continue
        only(clause, {"expression"})
        number = clause.expression
        if isinstance(number, exp.Var) and number.name.upper() == "ALL":
            continue
        if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdecimal():
            raise Unsupported(f"{name} of what is no number")
        sql += f" {name.upper()} {number.name}"
    return sql


def position_of(node: exp.Expr, names: Sequence[str | None]) -> list[int] | None:
    """The columns of the result that a key of ORDER BY names, by number, by name or by ALL."""
    if (
        isinstance(node, exp.Var | exp.Column)
        and node.name.upper() == "ALL"
        and len(node.parts if isinstance(node, exp.Column) else [1]) == 1
    ):
        return list(range(len(names)))
    if isinstance(node, exp.Literal) and not node.is_string:
        number = int(node.name) if node.name.isdecimal() else 0
        if not 1 <= number <= len(names):
            raise Unsupported("an ORDER BY of a number that is no column")
        return [number - 1]
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        found = [i for i, name in enumerate(names) if name is not None and name.lower() == node.name.lower()]
        if len(found) > 1:
            raise Unsupported(f"the name {node.name}, which is ambiguous")
        return found or None
    return None


class Select:
    """Translates one SELECT."""

    def __init__(self, translation: Queries, node: exp.Select, around: Around) -> None:
        only(node, _OF_A_SELECT)
        hint = node.args.get("hint")
        translation.hints |= {one.name.upper() for one in hint.expressions} if hint else set()
        self.whole = translation
        self.node = node
        self.around, self.clause = translation.with_ctes(node, around)
        self.scope = Scope(values=dict(around.parameters), outer=around.scope)
        self.own = Expressions(translation.statement, self.scope, translation.subquery(self.around))
        self.items: list[Item] = []

    def query(self, is_result: bool) -> Query:
        node, distinct = self.node, self.node.args.get("distinct")
        if distinct is not None:
            only(distinct, set())
        relations = self.relations()
        where = node.args.get("where")
        condition = f" WHERE {self.own.condition(where.this)}" if where is not None else ""
        for window in node.args.get("windows") or []:
            self.own.windows[window.name.lower()] = window
        self.select()
        group = self.group()
        having = node.args.get("having")
        having_sql = f" HAVING {self.with_aliases().condition(having.this)}" if having is not None else ""
        by = self.order()
        # Spark prints what is not UTF-8 as U+FFFD: the result keeps the bytes, ``json_rows`` does that
        values = [(is_result and one.value.raw) or one.value.sql for one in self.items]
        listed = ", ".join(f"{value} AS c{i}" for i, value in enumerate(values))
        sql = (
            f"{self.clause}SELECT {'DISTINCT ' if distinct is not None else ''}{listed}{relations}{condition}"
            f"{group}{having_sql}{by}{limits_of(node)}"
        )
        if is_result:
            self.items = [self.titled(one) for one in self.items]
        return Query(sql, fields_of([(one.name, one.value.type) for one in self.items]))

    def titled(self, item: Item) -> Item:
        if item.name is not None or item.node is None:
            return item
        return replace(item, name=title(self.whole.statement, item.node))

    # --- FROM ---

    def relations(self) -> str:
        first = self.node.args.get("from_")
        if first is None:
            return ""
        only(first, {"this"})
        sql, source = self.whole.relation(first.this, self.around)
        self.scope.sources.append(source)
        parts = [sql]
        for one in first.this.args.get("joins") or []:
            raise Unsupported(f"{one.key} in brackets")
        for join in self.node.args.get("joins") or []:
            parts += [self.join(join)]
        for lateral in self.node.args.get("laterals") or []:
            parts += [self.lateral(lateral)]
        return f" FROM {' '.join(parts)}"

    def join(self, join: exp.Join) -> str:
        only(join, {"this", "kind", "side", "on"})
        words = " ".join(filter(None, (join.side, join.kind))).upper()
        if words not in _JOINS:
            raise Unsupported(f"{words} JOIN")
        sql, source = self.whole.relation(join.this, self.around)
        kind, condition = _JOINS[words], join.args.get("on")
        both = replace(self.scope, sources=[*self.scope.sources, source])
        if kind not in ("SEMI JOIN", "ANTI JOIN"):
            self.scope.sources.append(source)
        if condition is None:
            if kind not in ("JOIN", "CROSS JOIN"):
                raise Unsupported(f"{words} JOIN without a condition")
            return f"CROSS JOIN {sql}"
        return f"{kind.removeprefix('CROSS ')} {sql} ON {self.own.with_scope(both).condition(condition)}"

    def lateral(self, lateral: exp.Lateral) -> str:
        """LATERAL VIEW explode(array) relation AS column."""
        only(lateral, {"this", "view", "alias"})
        alias = lateral.args["alias"]
        if not isinstance(lateral.this, exp.Explode) or len(alias.columns) != 1:
            raise Unsupported("this LATERAL")
        only(lateral.this, {"this"})
        array = self.own.value(lateral.this.this)
        if not pa.types.is_list(array.type):
            raise Unsupported("explode of what is no array")
        number = f"t{next(self.whole.numbers)}"
        columns = [(alias.columns[0].name, array.type.value_type)]
        self.scope.sources.append(Source(alias.name or None, fields_of(columns, number)))
        return f"CROSS JOIN LATERAL (SELECT unnest({array.sql}) AS c0) AS {number}"

    # --- SELECT ---

    def select(self) -> None:
        """Fills ``items``: what the SELECT gives."""
        for node in self.node.expressions:
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                self.items += self.star(node)
                continue
            name, inner = None, node
            if isinstance(node, exp.Alias):
                only(node, {"this", "alias"})
                name, inner = node.alias, node.this
            elif isinstance(node, exp.Column | exp.Dot):
                name = node.name if isinstance(node, exp.Column) else node.expression.name
            value = self.exploded(inner) if isinstance(inner, exp.Explode) else self.with_earlier(inner)
            self.items.append(Item(name, value, inner))

    def with_earlier(self, node: exp.Expr) -> Value:
        """A value that may use aliases of the columns before it, where no relation has the name."""
        aliases = {one.name.lower(): one.value for one in self.items if one.name is not None}
        return self.own.with_scope(self.scope.with_values(aliases | self.scope.values)).value(node)

    def star(self, node: exp.Expr) -> list[Item]:
        star = node.this if isinstance(node, exp.Column) else node
        only(star, {"except_"})
        name = node.args["table"].name.lower() if isinstance(node, exp.Column) else None
        if isinstance(node, exp.Column):
            only(node, {"this", "table"})
        sources = [s for s in self.scope.sources if name is None or (s.alias or "").lower() == name]
        if not sources or (name is not None and len(sources) > 1):
            raise Unsupported(f"{name or ''}.* of an unknown or ambiguous relation")
        left_out = {one.name.lower() for one in star.args.get("except_") or []}
        fields = [one for source in sources for one in source.fields]
        known = {(one.name or "").lower() for one in fields}
        for missing in sorted(left_out - known):
            raise unknown_column(missing, self.scope.columns())
        kept = [one for one in fields if (one.name or "").lower() not in left_out]
        return [Item(one.name, Value(one.sql, one.type)) for one in kept]

    def exploded(self, node: exp.Explode) -> Value:
        """explode(sequence(a, b)), which gives a row a number; once in a SELECT that does not aggregate."""
        only(node, {"this"})
        series = node.this
        if (
            not isinstance(series, exp.GenerateSeries)
            or self.node.args.get("group")
            or self.node.args.get("order")
        ):
            raise Unsupported("explode in a SELECT")
        if sum(isinstance(one.unalias(), exp.Explode) for one in self.node.expressions) > 1:
            raise Unsupported("explode twice")
        only(series, {"start", "end"})
        start, end = (self.own.of_type(series.args[name], t.BIGINT).sql for name in ("start", "end"))
        rising, falling = f"generate_series({start}, {end})", f"generate_series({start}, {end}, -1)"
        return Value(f"unnest(CASE WHEN {start} <= {end} THEN {rising} ELSE {falling} END)", t.BIGINT)

    # --- GROUP BY, HAVING, ORDER BY ---

    def group(self) -> str:
        clause = self.node.args.get("group")
        if clause is None:
            return ""
        only(clause, {"expressions", "all"})
        if clause.args.get("all"):
            keys = [self.key_of(one) for one in self.items if one.node is None or not is_aggregate(one.node)]
            for one in self.items:
                if one.node is not None and is_aggregate(one.node) and _has_columns_outside(one.node):
                    raise Unsupported("GROUP BY ALL with columns beside an aggregate")
            keys = [key for key in keys if key]
        else:
            keys = [self.group_key(one) for one in clause.expressions]
        return f" GROUP BY {', '.join(keys)}" if keys else " GROUP BY ()"

    @staticmethod
    def key_of(item: Item) -> str:
        """The key of a column of the result; nothing for a constant."""
        is_constant = item.node is not None and item.node.find(exp.Column) is None
        return "" if is_constant else item.value.raw or item.value.sql

    def group_key(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal():
            number = int(node.name)
            if not 1 <= number <= len(self.items):
                raise Unsupported("a GROUP BY of a number that is no column")
            item = self.items[number - 1]
            if item.node is not None and is_aggregate(item.node):
                raise Unsupported("a GROUP BY of an aggregate")
            return self.key_of(item) or "()"
        aliases = {one.name.lower(): one.value for one in self.items if one.name is not None}
        found = self.own.with_scope(self.scope.with_values(aliases | self.scope.values)).value(node)
        if found.is_literal:
            raise Unsupported("a GROUP BY of a constant")
        return found.raw or found.sql

    def with_aliases(self) -> Expressions:
        """Expressions that may use columns of the result; a name that a relation has too is Unsupported."""
        aliases: dict[str, Value] = {}
        known = {name.lower() for name in self.scope.columns()}
        used = {
            one.name.lower()
            for clause in ("having", "order")
            if (found := self.node.args.get(clause))
            for one in found.find_all(exp.Column)
            if len(one.parts) == 1
        }
        for one in self.items:
            name = (one.name or "").lower()
            is_the_column = one.node is None or isinstance(one.node, exp.Column)
            if name in used & known and not is_the_column and not self.are_keys_alone(name):
                raise Unsupported(f"the name {one.name}, which is a column and an alias")
            aliases[name] = one.value
        return self.own.with_scope(self.scope.with_values(aliases | self.scope.values))

    def are_keys_alone(self, name: str) -> bool:
        """Whether an alias is used as a whole key of ORDER BY and nowhere else: the alias counts there."""
        order, having = self.node.args.get("order"), self.node.args.get("having")
        if having is not None and any(one.name.lower() == name for one in having.find_all(exp.Column)):
            return False
        keys = [one.this for one in order.expressions] if order is not None else []
        inner = [k for k in keys if not isinstance(k, exp.Column)]
        return not any(c.name.lower() == name for key in inner for c in key.find_all(exp.Column))

    def order(self) -> str:
        order = self.node.args.get("order")
        if order is None:
            return ""
        keys, names = [], [one.name for one in self.items]
        for one in order.expressions:
            only(one, {"this", "desc", "nulls_first"})
            positions = position_of(one.this, names)
            if positions is None:
                found = self.with_aliases().value(one.this)
                if found.is_literal or pa.types.is_nested(found.type):
                    raise Unsupported("an ORDER BY of this kind")
                keys.append(f"{found.raw or found.sql} {direction(one)}")
                continue
            if any(pa.types.is_nested(self.items[i].value.type) for i in positions):
                raise Unsupported("an order of nested values")
            keys += [f"{i + 1} {direction(one)}" for i in positions]
        return f" ORDER BY {', '.join(keys)}"


def _has_columns_outside(node: exp.Expr) -> bool:
    """Whether an expression has a column outside of its aggregates."""
    if isinstance(node, exp.AggFunc | exp.Filter):
        return False
    return isinstance(node, exp.Column) or any(map(_has_columns_outside, node.iter_expressions()))

"""Translates aggregate and window functions of Spark SQL into DuckDB's."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from pipelines.engine import types as t
from pipelines.engine.casts import cast
from pipelines.engine.expressions import Expressions, Rule, kind, only, rule
from pipelines.engine.scope import Value
from pipelines.sql.errors import Unsupported

# Aggregates that have a rule here; only these are looked for in a SELECT
AGGREGATES = (
    *(exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max),
    *(exp.LogicalOr, exp.LogicalAnd, exp.ArgMin, exp.ArgMax, exp.Filter),
)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether an expression has an aggregate function outside of windows and subqueries."""
    if isinstance(node, exp.Window | exp.Query):
        return isinstance(node, exp.Window) and any(is_aggregate(one) for one in _operands_of_window(node))
    return isinstance(node, AGGREGATES) or any(map(is_aggregate, node.iter_expressions()))


def _operands_of_window(node: exp.Window) -> list[exp.Expr]:
    """What a window is over: aggregates there belong to the SELECT."""
    arguments = list(node.this.iter_expressions())
    order = node.args.get("order")
    return [*arguments, *node.args.get("partition_by", []), *(order.expressions if order else [])]


def _single(self: Expressions, node: exp.Expr) -> tuple[str, list[Value]]:
    """``DISTINCT `` or nothing, and the arguments of an aggregate."""
    argument = node.this
    if isinstance(argument, exp.Distinct):
        only(argument, {"expressions"})
        return "DISTINCT ", self.values(argument.expressions)
    return "", self.values([argument, *node.expressions])


# The rules of functions that take FILTER or OVER. A sum is not in Spark's type yet: DuckDB sums in 128 bits
_BARE: dict[type[exp.Expr], Rule] = {}


def _over_rows(*classes: type[exp.Expr], arguments: str) -> Callable[[Rule], Rule]:
    allowed = set(arguments.split())

    def register(function: Rule) -> Rule:
        def checked(self: Expressions, node: exp.Expr) -> Value:
            only(node, allowed)
            return function(self, node)

        _BARE.update(dict.fromkeys(classes, checked))
        return function

    return register


def _typed(sql: str, of: pa.DataType) -> Value:
    return Value(f"CAST({sql} AS {t.duckdb_type(of)})", of)


@rule(*AGGREGATES[:-1], arguments="this expression expressions big_int")
def _aggregate(self: Expressions, node: exp.Expr) -> Value:
    found = _BARE[type(node)](self, node)
    return _typed(found.sql, found.type)


@rule(exp.Filter)
def _filtered(self: Expressions, node: exp.Filter) -> Value:
    if not isinstance(node.this, AGGREGATES) or isinstance(node.this, exp.ArgMin | exp.ArgMax | exp.Filter):
        raise Unsupported(f"FILTER of {kind(node.this)}")
    found = _BARE[type(node.this)](self, node.this)
    return _typed(f"{found.sql} FILTER (WHERE {self.condition(node.expression.this)})", found.type)


@_over_rows(exp.Count, arguments="this big_int expressions")
def _count(self: Expressions, node: exp.Count) -> Value:
    if isinstance(node.this, exp.Star):
        only(node.this, set())
        return Value("count(*)", t.BIGINT)
    distinct, values = _single(self, node)
    sqls = [one.raw or one.sql for one in values]
    if len(sqls) == 1:
        return Value(f"count({distinct}{sqls[0]})", t.BIGINT)
    known = " AND ".join(f"{sql} IS NOT NULL" for sql in sqls)
    return Value(f"count({distinct}CASE WHEN {known} THEN row({', '.join(sqls)}) END)", t.BIGINT)


@_over_rows(exp.CountIf, arguments="this")
def _count_if(self: Expressions, node: exp.CountIf) -> Value:
    return Value(f"count(CASE WHEN {self.condition(node.this)} THEN 1 END)", t.BIGINT)


@_over_rows(exp.Sum, arguments="this")
def _sum(self: Expressions, node: exp.Sum) -> Value:
    distinct, values = _single(self, node)
    (found,) = values
    if found.type in t.INTEGERS:
        return Value(f"sum({distinct}{found.sql})", t.BIGINT)
    if found.type == t.DOUBLE:
        return Value(f"sum({distinct}{found.sql})", t.DOUBLE)
    raise Unsupported(f"the sum of {found.type}")


@_over_rows(exp.Avg, arguments="this")
def _avg(self: Expressions, node: exp.Avg) -> Value:
    distinct, values = _single(self, node)
    (found,) = values
    if found.type not in (*t.INTEGERS, t.DOUBLE):
        raise Unsupported(f"the average of {found.type}")
    return Value(f"avg({distinct}{cast(found, t.DOUBLE).sql})", t.DOUBLE)


@_over_rows(exp.Min, exp.Max, arguments="this")
def _extreme(self: Expressions, node: exp.Func) -> Value:
    found = self.value(node.this)
    if pa.types.is_nested(found.type) or found.type == t.VOID:
        raise Unsupported(f"{kind(node)} of {found.type}")
    return Value(f"{node.key}({found.sql})", found.type)


@_over_rows(exp.LogicalOr, exp.LogicalAnd, arguments="this")
def _logical(self: Expressions, node: exp.Func) -> Value:
    name = "bool_or" if isinstance(node, exp.LogicalOr) else "bool_and"
    return Value(f"{name}({self.condition(node.this)})", t.BOOLEAN)


@_over_rows(exp.ArgMin, exp.ArgMax, arguments="this expression")
def _by_another(self: Expressions, node: exp.Func) -> Value:
    """min_by and max_by: rows without the second value do not count, a null of the first does."""
    found, by = self.value(node.this), self.value(node.expression)
    if pa.types.is_nested(by.type):
        raise Unsupported(f"{kind(node)} by nested values")
    name = "arg_min_null" if isinstance(node, exp.ArgMin) else "arg_max_null"
    return Value(f"{name}({found.sql}, {by.sql}) FILTER (WHERE {by.sql} IS NOT NULL)", found.type)


# --- Windows ---


@_over_rows(exp.RowNumber, exp.Rank, exp.DenseRank, arguments="")
def _rank(self: Expressions, node: exp.Func) -> Value:
    return Value(f"{node.sql_name().lower()}()", t.INT)


@_over_rows(exp.Lag, exp.Lead, arguments="this offset default")
def _neighbour(self: Expressions, node: exp.Func) -> Value:
    found = self.value(node.this)
    offset = self.number(node.args["offset"]) if node.args.get("offset") else 1
    default = node.args.get("default")
    if default is None:
        return Value(f"{node.key}({found.sql}, {offset})", found.type)
    other = self.value(default)
    if other.type not in (found.type, t.VOID) and t.common_type([found.type, other.type]) != found.type:
        raise Unsupported(f"{node.key} with a default of another type")
    return Value(f"{node.key}({found.sql}, {offset}, {cast(other, found.type).sql})", found.type)


_WINDOWED = (
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.Lag, exp.Lead),
    *(exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalOr, exp.LogicalAnd),
)
_SIDES = ("PRECEDING", "FOLLOWING")


def ordering(self: Expressions, order: exp.Order | None) -> list[str]:
    """Keys of an ORDER BY, each with the place of nulls: first where it ascends, unless it says otherwise."""
    keys = []
    for one in order.expressions if order else []:
        only(one, {"this", "desc", "nulls_first"})
        found = self.value(one.this)
        if pa.types.is_nested(found.type):
            raise Unsupported("an order of nested values")
        keys.append(f"{found.raw or found.sql} {direction(one)}")
    return keys


def direction(one: exp.Ordered) -> str:
    first = bool(one.args.get("nulls_first"))
    return f"{'DESC' if one.args.get('desc') else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


@rule(exp.Window, arguments="this partition_by order spec over alias")
def _window(self: Expressions, node: exp.Window) -> Value:
    if node.args.get("over") != "OVER" or not isinstance(node.this, _WINDOWED):
        raise Unsupported(f"{kind(node.this)} over a window")
    if isinstance(node.this.this, exp.Distinct):
        raise Unsupported("DISTINCT over a window")
    found = _BARE[type(node.this)](self, node.this)
    window = node
    if node.args.get("alias"):
        named = self.windows.get(node.args["alias"].name.lower())
        if named is None or any(node.args.get(name) for name in ("partition_by", "order", "spec")):
            raise Unsupported("a window that extends another")
        window = named
    return _typed(f"{found.sql} OVER ({_specification(self, window)})", found.type)


def _specification(self: Expressions, window: exp.Window) -> str:
    parts = []
    by = [one.raw or one.sql for one in self.values(window.args.get("partition_by") or [])]
    if by:
        parts.append("PARTITION BY " + ", ".join(by))
    keys = ordering(self, window.args.get("order"))
    if keys:
        parts.append("ORDER BY " + ", ".join(keys))
    spec = window.args.get("spec")
    if spec is not None:
        only(spec, {"kind", "start", "start_side", "end", "end_side"})
        ends = [_bound(self, spec, "start"), _bound(self, spec, "end") or "CURRENT ROW"]
        if spec.args["kind"] not in ("ROWS", "RANGE"):
            raise Unsupported("this frame of a window")
        parts.append(f"{spec.args['kind']} BETWEEN {ends[0]} AND {ends[1]}")
    return " ".join(parts)


def _bound(self: Expressions, spec: exp.WindowSpec, name: str) -> str:
    bound, side = spec.args.get(name), spec.args.get(f"{name}_side")
    if bound is None or bound == "CURRENT ROW":
        return "" if bound is None else "CURRENT ROW"
    if side not in _SIDES:
        raise Unsupported("this frame of a window")
    if bound == "UNBOUNDED":
        return f"UNBOUNDED {side}"
    if spec.args["kind"] != "ROWS":
        raise Unsupported("a frame by distance")
    return f"{self.number(bound)} {side}"

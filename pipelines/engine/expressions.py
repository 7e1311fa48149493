"""Translates expressions of Spark SQL into DuckDB's.

A list of what is known, not of what differs: an expression that has no rule here is Unsupported. The tests
compare the rules with Spark on edge values. What Spark refuses at run time (overflow, division by zero, a
cast that fails: ANSI mode) fails in DuckDB too, and then Spark is asked, which says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from pipelines.engine import types as t
from pipelines.engine.casts import cast, timestamp_literal
from pipelines.engine.scope import Field, Scope, Value, struct_field, unknown_column
from pipelines.engine.text import Statement
from pipelines.sql.errors import Unsupported

_MAX_INT, MAX_BIGINT = 2**31 - 1, 2**63 - 1

Rule = Callable[["Expressions", Any], Value]
Subquery = Callable[[exp.Expr, Scope], tuple[str, tuple[Field, ...]]]  # gives the SQL and the columns
RULES: dict[type[exp.Expr], Rule] = {}
FUNCTIONS: dict[str, Rule] = {}  # those for which the parser has no class


def rule(*classes: type[exp.Expr], arguments: str = "this expression") -> Callable[[Rule], Rule]:
    """Registers the rule of classes of expressions; another argument than those named is Unsupported."""
    allowed = set(arguments.split())

    def register(function: Rule) -> Rule:
        def checked(self: Expressions, node: exp.Expr) -> Value:
            only(node, allowed)
            return function(self, node)

        for one in classes:
            RULES[one] = checked
        return function

    return register


def function(*names: str) -> Callable[[Rule], Rule]:
    def register(body: Rule) -> Rule:
        FUNCTIONS.update(dict.fromkeys(names, body))
        return body

    return register


def only(node: exp.Expr, allowed: set[str]) -> None:
    """Raises Unsupported if a node has an argument beside these."""
    given = {name for name, value in node.args.items() if value not in (None, False, [])}
    if not given <= allowed:
        raise Unsupported(f"{kind(node)} with {', '.join(sorted(given - allowed))}")


def kind(node: exp.Expr) -> str:
    """What a node is called in messages: the function's name, or the parser's class."""
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name}"
    return f"the function {node.sql_name().lower()}" if isinstance(node, exp.Func) else f"{node.key}"


def text_literal(text: str) -> str:
    """A string literal of DuckDB, which knows no escape but the doubled quote."""
    if "\0" in text:
        raise Unsupported("a string with a zero byte")
    return "'" + text.replace("'", "''") + "'"


class Expressions:
    """Translates the expressions of one scope. subquery: translates a query within an expression."""

    def __init__(self, statement: Statement, scope: Scope, subquery: Subquery) -> None:
        self.statement = statement
        self.scope = scope
        self.subquery = subquery
        self.windows: dict[str, exp.Window] = {}

    def value(self, node: exp.Expr) -> Value:
        found = RULES.get(type(node))
        if found is None:
            raise Unsupported(kind(node))
        return found(self, node)

    def values(self, nodes: Iterable[exp.Expr]) -> list[Value]:
        return [self.value(node) for node in nodes]

    def condition(self, node: exp.Expr) -> str:
        return self.of_type(node, t.BOOLEAN).sql

    def of_type(self, node: exp.Expr, *types: pa.DataType) -> Value:
        """The value of a node that has one of these types; a bare NULL has each."""
        found = self.value(node)
        if found.type == t.VOID:
            return cast(found, types[0])
        if found.type not in types:
            raise Unsupported(f"{node.key} of type {found.type} where Spark would convert it")
        return found

    def alike(self, nodes: Iterable[exp.Expr]) -> list[Value]:
        """Values in their common type; a string literal beside timestamps is a timestamp."""
        found = self.values(nodes)
        if any(one.type == t.TIMESTAMP for one in found):
            found = [timestamp_literal(one) if one.type == t.STRING else one for one in found]
        wanted = t.common_type(one.type for one in found)
        return [cast(one, wanted) for one in found]

    def with_scope(self, scope: Scope) -> Expressions:
        other = Expressions(self.statement, scope, self.subquery)
        other.windows = self.windows
        return other

    def text(self, node: exp.Expr) -> str:
        """The text of a string literal that a rule needs to see."""
        if not isinstance(node, exp.Literal) or not node.is_string:
            raise Unsupported("a pattern or option that is not a literal")
        return self.statement.text(node)

    def number(self, node: exp.Expr) -> int:
        """The value of a literal of a whole number of 0 or more."""
        found = self.value(node)
        if not isinstance(found.literal, int) or isinstance(found.literal, bool):
            raise Unsupported("a position or length that is not a literal")
        return found.literal


# --- Names and literals ---


@rule(exp.Column, arguments="this table db catalog")
def _column(self: Expressions, node: exp.Column) -> Value:
    if isinstance(node.this, exp.Star):
        raise Unsupported("* within an expression")
    parts = [part.name for part in node.parts]
    found = self.scope.find(parts)
    if found is None:
        raise unknown_column(".".join(parts), self.scope.columns())
    return found


@rule(exp.Identifier, arguments="this quoted")
def _variable(self: Expressions, node: exp.Identifier) -> Value:
    found = self.scope.values.get(node.name.lower())
    if found is None:
        raise Unsupported(f"the name {node.name} in a lambda")
    return found


@rule(exp.Dot)
def _dot(self: Expressions, node: exp.Dot) -> Value:
    if not isinstance(node.expression, exp.Identifier):
        raise Unsupported("a name of several parts")
    return struct_field(self.value(node.this), [node.expression.name])


@rule(exp.Literal, arguments="this is_string")
def _literal(self: Expressions, node: exp.Literal) -> Value:
    if node.is_string:
        text = self.statement.text(node)
        return Value(text_literal(text), t.STRING, literal=text, is_literal=True)
    if node.name.isdecimal():
        number = int(node.name)
        if number > MAX_BIGINT:
            raise Unsupported("a number past bigint")
        of = t.INT if number <= _MAX_INT else t.BIGINT
        return Value(f"CAST({number} AS {t.duckdb_type(of)})", of, literal=number, is_literal=True)
    if re.fullmatch(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+", node.name):
        return Value(f"CAST('{node.name}' AS DOUBLE)", t.DOUBLE)
    raise Unsupported("a decimal number")


@rule(exp.Null, arguments="")
def _null(self: Expressions, node: exp.Null) -> Value:
    return Value("NULL", t.VOID, is_literal=True)


@rule(exp.Boolean, arguments="this")
def _boolean(self: Expressions, node: exp.Boolean) -> Value:
    return Value(str(bool(node.this)).lower(), t.BOOLEAN, is_literal=True)


@rule(exp.HexString, arguments="this is_integer")
def _hex_literal(self: Expressions, node: exp.HexString) -> Value:
    if not re.fullmatch(r"([0-9a-fA-F]{2})*", node.name):
        raise Unsupported("an odd number of hexadecimal digits")
    return Value(f"unhex('{node.name}')", t.BINARY, is_literal=True)


@rule(exp.Paren, arguments="this")
def _paren(self: Expressions, node: exp.Paren) -> Value:
    return self.value(node.this)


# --- Casts, and what is decided ---


@rule(exp.Cast, arguments="this to")
def _cast(self: Expressions, node: exp.Cast) -> Value:
    wanted = t.parsed_type(node.to)
    found = self.value(node.this)
    if isinstance(found.literal, str) and wanted in (t.TIMESTAMP, t.DATE):
        return cast(timestamp_literal(found), wanted)
    return cast(found, wanted)


@rule(exp.TryCast, arguments="this to")
def _postfix_cast(self: Expressions, node: exp.TryCast) -> Value:
    """``CAST`` in Spark's dialect, ``a::int``, ``10L``; a TRY_CAST has the argument ``safe``."""
    return _cast(self, node)


@rule(exp.TsOrDsToDate, arguments="this")
def _date(self: Expressions, node: exp.TsOrDsToDate) -> Value:
    return cast(self.of_type(node.this, t.TIMESTAMP, t.DATE), t.DATE)


@function("bigint", "smallint", "tinyint")
def _cast_by_name(self: Expressions, node: exp.Anonymous) -> Value:
    (argument,) = node.expressions
    return cast(self.value(argument), t.declared_type(node.name.lower()))


@rule(exp.Case, arguments="this ifs default")
def _case(self: Expressions, node: exp.Case) -> Value:
    branches = node.args["ifs"]
    if node.this is not None:
        tests = [_compared(self, "=", node.this, one.this) for one in branches]
    else:
        tests = [self.condition(one.this) for one in branches]
    results = self.alike([*(one.args["true"] for one in branches), node.args.get("default") or exp.Null()])
    whens = " ".join(f"WHEN {test} THEN {value.sql}" for test, value in zip(tests, results, strict=False))
    return Value(f"CASE {whens} ELSE {results[-1].sql} END", results[0].type)


@rule(exp.If, arguments="this true false")
def _if(self: Expressions, node: exp.If) -> Value:
    yes, no = self.alike([node.args["true"], node.args.get("false") or exp.Null()])
    return Value(f"CASE WHEN {self.condition(node.this)} THEN {yes.sql} ELSE {no.sql} END", yes.type)


@rule(exp.Coalesce, arguments="this expressions")
def _coalesce(self: Expressions, node: exp.Coalesce) -> Value:
    values = self.alike([node.this, *node.expressions])
    return Value(f"coalesce({', '.join(one.sql for one in values)})", values[0].type)


@rule(exp.Nullif)
def _nullif(self: Expressions, node: exp.Nullif) -> Value:
    first, second = self.value(node.this), self.value(node.expression)
    t.common_type([first.type, second.type])
    return Value(f"nullif({first.sql}, {second.sql})", first.type)


@rule(exp.Greatest, exp.Least, arguments="this expressions ignore_nulls")
def _extreme(self: Expressions, node: exp.Func) -> Value:
    values = self.alike([node.this, *node.expressions])
    if values[0].type == t.DOUBLE:
        raise Unsupported(f"{kind(node)} of doubles")
    name = "greatest" if isinstance(node, exp.Greatest) else "least"
    return Value(f"{name}({', '.join(one.sql for one in values)})", values[0].type)


# --- Conditions ---

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}


def _compared(self: Expressions, operator: str, *nodes: exp.Expr) -> str:
    values = self.values(nodes)
    are_bytes = all(one.raw or (one.is_literal and one.type in (t.STRING, t.VOID)) for one in values)
    if are_bytes and any(one.raw for one in values):
        return f" {operator} ".join(one.raw or f"encode({one.sql})" for one in values).join("()")
    values = self.alike(nodes)
    if pa.types.is_nested(values[0].type):
        raise Unsupported("a comparison of nested values")
    return f" {operator} ".join(one.sql for one in values).join("()")


@rule(*_COMPARISONS)
def _comparison(self: Expressions, node: exp.Binary) -> Value:
    return Value(_compared(self, _COMPARISONS[type(node)], node.this, node.expression), t.BOOLEAN)


@rule(exp.NullSafeEQ)
def _null_safe(self: Expressions, node: exp.NullSafeEQ) -> Value:
    return Value(_compared(self, "IS NOT DISTINCT FROM", node.this, node.expression), t.BOOLEAN)


@rule(exp.Between, arguments="this low high")
def _between(self: Expressions, node: exp.Between) -> Value:
    low = _compared(self, ">=", node.this, node.args["low"])
    high = _compared(self, "<=", node.this, node.args["high"])
    return Value(f"({low} AND {high})", t.BOOLEAN)


@rule(exp.In, arguments="this expressions query")
def _in(self: Expressions, node: exp.In) -> Value:
    query = node.args.get("query")
    if query is None:
        equal = (_compared(self, "=", node.this, one) for one in node.expressions)
        return Value(" OR ".join(equal).join("()"), t.BOOLEAN)
    sql, (field, *others) = self.subquery(query.this, self.scope)
    found = self.value(node.this)
    if others or found.type != field.type:
        raise Unsupported("IN with a query of other types")
    return Value(f"({found.sql} IN ({sql}))", t.BOOLEAN)


@rule(exp.Exists, arguments="this expression")
def _exists(self: Expressions, node: exp.Exists) -> Value:
    if node.expression is None:
        sql, _ = self.subquery(node.this, self.scope)
        return Value(f"EXISTS ({sql})", t.BOOLEAN)
    raise Unsupported("the function exists")


@rule(exp.Subquery, arguments="this")
def _scalar_subquery(self: Expressions, node: exp.Subquery) -> Value:
    sql, (field, *others) = self.subquery(node.this, self.scope)
    if others:
        raise Unsupported("a subquery of several columns as a value")
    # DuckDB fails where there are several rows, as Spark does
    return Value(f"({sql})", field.type)


@rule(exp.And, exp.Or)
def _connected(self: Expressions, node: exp.Binary) -> Value:
    word = "AND" if isinstance(node, exp.And) else "OR"
    parts = [self.condition(one) for one in node.flatten(unnest=False)]
    return Value(f" {word} ".join(parts).join("()"), t.BOOLEAN)


@rule(exp.Not, arguments="this")
def _not(self: Expressions, node: exp.Not) -> Value:
    return Value(f"(NOT {self.condition(node.this)})", t.BOOLEAN)


@rule(exp.Is)
def _is(self: Expressions, node: exp.Is) -> Value:
    found = self.value(node.this)
    sql = found.raw or found.sql
    if isinstance(node.expression, exp.Null):
        return Value(f"({sql} IS NULL)", t.BOOLEAN)
    if isinstance(node.expression, exp.Boolean) and found.type == t.BOOLEAN:
        return Value(f"({sql} IS {str(bool(node.expression.this)).upper()})", t.BOOLEAN)
    raise Unsupported("this form of IS")


@rule(exp.Anonymous, arguments="this expressions")
def _by_name(self: Expressions, node: exp.Anonymous) -> Value:
    found = FUNCTIONS.get(node.name.lower())
    if found is None:
        raise Unsupported(kind(node))
    try:
        return found(self, node)
    except ValueError:
        raise Unsupported(f"{kind(node)} with {len(node.expressions)} arguments") from None

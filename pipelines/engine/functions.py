"""Translates functions and operators of numbers, texts, bytes and times: rules of ``expressions``."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable

from sqlglot import exp

from pipelines.engine import types as t
from pipelines.engine.casts import cast
from pipelines.engine.expressions import MAX_BIGINT, Expressions, function, rule, text_literal
from pipelines.engine.scope import Value
from pipelines.sql.errors import Unsupported

# --- Numbers ---

_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_BITWISE = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|"}


def numbers(self: Expressions, *nodes: exp.Expr) -> list[Value]:
    """Values in their common numeric type."""
    found = self.alike(nodes)
    if found[0].type not in (*t.INTEGERS, t.DOUBLE):
        raise Unsupported(f"arithmetic with {found[0].type}")
    return found


@rule(*_ARITHMETIC)
def _arithmetic(self: Expressions, node: exp.Binary) -> Value:
    left, right = numbers(self, node.this, node.expression)
    sql = f"({left.sql} {_ARITHMETIC[type(node)]} {right.sql})"
    if left.type in (t.TINYINT, t.SMALLINT):
        sql = f"CAST({sql} AS {t.duckdb_type(left.type)})"
    return Value(sql, left.type)


@rule(exp.Div, arguments="this expression typed safe")
def _divided(self: Expressions, node: exp.Div) -> Value:
    numbers(self, node.this, node.expression)
    left, right = (cast(self.value(one), t.DOUBLE) for one in (node.this, node.expression))
    return Value(f"spark_divide({left.sql}, {right.sql})", t.DOUBLE)


@rule(exp.IntDiv)
def _whole_division(self: Expressions, node: exp.IntDiv) -> Value:
    left, right = numbers(self, node.this, node.expression)
    if left.type not in t.INTEGERS:
        raise Unsupported("DIV of doubles")
    left, right = cast(left, t.BIGINT), cast(right, t.BIGINT)
    return Value(f"spark_div({left.sql}, {right.sql})", t.BIGINT)


@rule(exp.Mod)
def _remainder(self: Expressions, node: exp.Mod) -> Value:
    left, right = numbers(self, node.this, node.expression)
    if left.type not in t.INTEGERS:
        raise Unsupported("% of doubles")
    return Value(f"CAST(spark_mod({left.sql}, {right.sql}) AS {t.duckdb_type(left.type)})", left.type)


@function("pmod")
def _positive_remainder(self: Expressions, node: exp.Anonymous) -> Value:
    left, right = numbers(self, *node.expressions)
    if left.type not in t.INTEGERS:
        raise Unsupported("pmod of doubles")
    return Value(f"CAST(spark_pmod({left.sql}, {right.sql}) AS {t.duckdb_type(left.type)})", left.type)


@rule(exp.Neg, arguments="this")
def _negative(self: Expressions, node: exp.Neg) -> Value:
    if isinstance(node.this, exp.Literal) and node.this.name == str(MAX_BIGINT + 1):
        raise Unsupported("the lowest bigint")
    (found,) = numbers(self, node.this)
    if isinstance(found.literal, int):
        name = t.duckdb_type(found.type)
        return Value(f"CAST(-{found.literal} AS {name})", found.type, literal=-found.literal, is_literal=True)
    return Value(f"CAST(-{found.sql} AS {t.duckdb_type(found.type)})", found.type)


@rule(*_BITWISE)
def _bitwise(self: Expressions, node: exp.Binary) -> Value:
    left, right = numbers(self, node.this, node.expression)
    if left.type not in t.INTEGERS:
        raise Unsupported("bits of doubles")
    return Value(f"({left.sql} {_BITWISE[type(node)]} {right.sql})", left.type)


@rule(exp.BitwiseRightShift)
def _shift_right(self: Expressions, node: exp.BitwiseRightShift) -> Value:
    """Spark uses the lowest 6 bits of the distance: it is a literal here, or a column of 0 to 63."""
    found = self.of_type(node.this, t.BIGINT)
    distance = self.of_type(node.expression, t.INT)
    return Value(f"({found.sql} >> ({distance.sql} & 63))", t.BIGINT)


@rule(exp.Abs, arguments="this")
def _abs(self: Expressions, node: exp.Abs) -> Value:
    (found,) = numbers(self, node.this)
    return Value(f"abs({found.sql})", found.type)


@rule(exp.Round, arguments="this decimals")
def _round(self: Expressions, node: exp.Round) -> Value:
    (found,) = numbers(self, node.this)
    decimals = self.number(node.args["decimals"]) if node.args.get("decimals") else 0
    if found.type in t.INTEGERS:
        return found
    rounded = f"spark_round({found.sql}, CAST({decimals} AS INTEGER))"
    return Value(f"CASE WHEN isfinite({found.sql}) THEN {rounded} ELSE {found.sql} END", t.DOUBLE)


@rule(exp.Floor, exp.Ceil, arguments="this")
def _whole(self: Expressions, node: exp.Func) -> Value:
    found = self.of_type(node.this, *t.INTEGERS, t.DOUBLE)
    if found.type in t.INTEGERS:
        return cast(found, t.BIGINT)
    return Value(
        f"CAST({'floor' if isinstance(node, exp.Floor) else 'ceil'}({found.sql}) AS BIGINT)", t.BIGINT
    )


# --- Texts and bytes ---


@rule(exp.Length, arguments="this binary")
def _length(self: Expressions, node: exp.Length) -> Value:
    found = self.of_type(node.this, t.STRING, t.BINARY)
    name = "length" if found.type == t.STRING else "octet_length"
    return Value(f"CAST({name}({found.sql}) AS INTEGER)", t.INT)


@function("octet_length")
def _octets(self: Expressions, node: exp.Anonymous) -> Value:
    (argument,) = node.expressions
    found = self.of_type(argument, t.STRING, t.BINARY)
    sql = found.raw or (found.sql if found.type == t.BINARY else f"encode({found.sql})")
    return Value(f"CAST(octet_length({sql}) AS INTEGER)", t.INT)


@rule(exp.Substring, arguments="this start length")
def _substring(self: Expressions, node: exp.Substring) -> Value:
    found = self.of_type(node.this, t.STRING, t.BINARY)
    start = self.number(node.args["start"])
    length = self.number(node.args["length"]) if node.args.get("length") else None
    if start < 1 or (length is not None and length < 1):
        raise Unsupported("substring before the start, or of no length")
    if found.type == t.STRING:
        last = "" if length is None else f", {length}"
        return Value(f"substring({found.sql}, {start}{last})", t.STRING)
    end = "" if length is None else str(start + length - 1)
    return Value(f"({found.sql}[{start}:{end}])", t.BINARY)


@rule(exp.Concat, arguments="expressions safe")
def _concat(self: Expressions, node: exp.Concat) -> Value:
    if not node.args.get("safe"):
        raise Unsupported("string literals side by side")
    return _joined(self, node.expressions)


@rule(exp.DPipe, arguments="this expression safe")
def _pipes(self: Expressions, node: exp.DPipe) -> Value:
    return _joined(self, [node.this, node.expression])


def _joined(self: Expressions, nodes: Iterable[exp.Expr]) -> Value:
    values = self.values(nodes)
    if any(one.type not in (t.STRING, t.VOID, *t.INTEGERS) for one in values):
        raise Unsupported("concat of other types")
    return Value(" || ".join(cast(one, t.STRING).sql for one in values).join("()"), t.STRING)


@rule(exp.Replace, arguments="this expression replacement")
def _replace(self: Expressions, node: exp.Replace) -> Value:
    if not self.text(node.expression):
        raise Unsupported("replace of an empty string")
    parts = [
        self.of_type(one, t.STRING).sql for one in (node.this, node.expression, node.args["replacement"])
    ]
    return Value(f"replace({', '.join(parts)})", t.STRING)


_PARTS = {exp.Contains: "contain", exp.StartsWith: "start_with", exp.EndsWith: "end_with"}
_OF_TEXTS = {"contain": "contains", "start_with": "starts_with", "end_with": "ends_with"}


@rule(*_PARTS)
def _part_of(self: Expressions, node: exp.Func) -> Value:
    text, part = (self.of_type(one, t.STRING) for one in (node.this, node.expression))
    return _has_part(_PARTS[type(node)], text, part)


def _has_part(where: str, text: Value, part: Value) -> Value:
    """Whether a text has a part. Spark compares bytes, also those that are no UTF-8."""
    if text.raw and part.is_literal:
        return Value(f"bytes_{where}({text.raw}, encode({part.sql}))", t.BOOLEAN)
    return Value(f"{_OF_TEXTS[where]}({text.sql}, {part.sql})", t.BOOLEAN)


@rule(exp.Like, arguments="this expression negate")
def _like(self: Expressions, node: exp.Like) -> Value:
    pattern = self.text(node.expression)
    if re.fullmatch(r"(?:[^\\]|\\[\\%_])*", pattern, re.DOTALL) is None:
        raise Unsupported("this escape in a pattern of LIKE")
    text, negated = self.of_type(node.this, t.STRING), bool(node.args.get("negate"))
    simple = re.fullmatch(r"(%?)([^%_\\]+)(%?)", pattern, re.DOTALL)
    if text.raw and simple is not None and (simple[1] or simple[3]):
        where = "contain" if simple[1] and simple[3] else "end_with" if simple[1] else "start_with"
        part = Value(text_literal(simple[2]), t.STRING, is_literal=True)
        found = _has_part(where, text, part).sql
        return Value(f"(NOT {found})" if negated else found, t.BOOLEAN)
    word = "NOT LIKE" if negated else "LIKE"
    return Value(f"({text.sql} {word} {text_literal(pattern)} ESCAPE '\\')", t.BOOLEAN)


@rule(exp.Hex, arguments="this")
def _hex(self: Expressions, node: exp.Hex) -> Value:
    return Value(f"hex({self.of_type(node.this, t.BINARY).sql})", t.STRING)


@rule(exp.Unhex, arguments="this")
def _unhex(self: Expressions, node: exp.Unhex) -> Value:
    return Value(f"unhex({self.of_type(node.this, t.STRING).sql})", t.BINARY)


@rule(exp.SHA2, arguments="this length")
def _sha2(self: Expressions, node: exp.SHA2) -> Value:
    if self.number(node.args["length"]) != 256:
        raise Unsupported("sha2 of another length than 256")
    return Value(f"sha256({self.of_type(node.this, t.BINARY).sql})", t.STRING)


# --- Times ---


@rule(exp.CurrentTimestamp, arguments="")
def _now(self: Expressions, node: exp.Expr) -> Value:
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    return Value(f"CAST('{now.isoformat(' ')}' AS TIMESTAMP)", t.TIMESTAMP)


@function("now")
def _now_function(self: Expressions, node: exp.Anonymous) -> Value:
    return _now(self, node)


@function("timestamp_millis")
def _timestamp_millis(self: Expressions, node: exp.Anonymous) -> Value:
    (argument,) = node.expressions
    found = cast(self.of_type(argument, *t.INTEGERS), t.BIGINT)
    return Value(f"make_timestamp({found.sql} * 1000)", t.TIMESTAMP)


@rule(exp.UnixMillis, arguments="this")
def _unix_millis(self: Expressions, node: exp.UnixMillis) -> Value:
    return Value(f"floor_div(epoch_us({self.of_type(node.this, t.TIMESTAMP).sql}), 1000)", t.BIGINT)


_UNITS = ("year", "month", "day", "hour", "minute", "second")


@rule(exp.TimestampTrunc, arguments="this unit")
def _truncated(self: Expressions, node: exp.TimestampTrunc) -> Value:
    unit = node.args["unit"]
    name = (self.text(unit) if isinstance(unit, exp.Literal) else unit.name).lower()
    if name.startswith("text "):
        name = self.statement.texts[int(name.removeprefix("text "))].lower()
    if name not in _UNITS:
        raise Unsupported(f"date_trunc to {name}")
    return Value(f"date_trunc('{name}', {self.of_type(node.this, t.TIMESTAMP).sql})", t.TIMESTAMP)


@rule(exp.Year, exp.Month, exp.Hour, exp.Minute, exp.Second, arguments="this")
def _part_of_time(self: Expressions, node: exp.Func) -> Value:
    found = self.of_type(node.this, t.TIMESTAMP, t.DATE)  # the parser takes the date for year and month
    return Value(f"CAST({node.key}({found.sql}) AS INTEGER)", t.INT)

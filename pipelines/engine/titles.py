"""The names that Spark gives to columns without an alias: ``count(1)``, ``sum(records)``, ``(a + 1)``."""

from __future__ import annotations

from sqlglot import exp

from pipelines.engine import types as t
from pipelines.engine.text import Statement
from pipelines.sql.errors import Unsupported

# Other names of functions that the parser reads as one: which was written cannot be told from the tree
_OTHER_NAMES = frozenset(
    {*("nvl", "ifnull", "char_length", "character_length", "len", "substr", "mod", "any", "some", "every")}
)
_BINARY: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_NAMED: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.CountIf: "count_if",
    exp.ArgMin: "min_by",
    exp.ArgMax: "max_by",
    exp.Coalesce: "coalesce",
    exp.Length: "length",
    exp.Substring: "substring",
    exp.Round: "round",
    exp.Hex: "hex",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Concat: "concat",
    exp.UnixMillis: "unix_millis",
}
_TYPES = {
    t.TINYINT: "TINYINT",
    t.SMALLINT: "SMALLINT",
    t.INT: "INT",
    t.BIGINT: "BIGINT",
    t.DOUBLE: "DOUBLE",
    t.STRING: "STRING",
    t.BINARY: "BINARY",
    t.BOOLEAN: "BOOLEAN",
    t.DATE: "DATE",
    t.TIMESTAMP: "TIMESTAMP",
}


def title(statement: Statement, node: exp.Expr) -> str:
    """The name of a column of the result. Raises Unsupported where it is not known."""
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column):
        return node.this.name
    return _text(statement, node)


def _text(statement: Statement, node: exp.Expr) -> str:
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Paren):
        return _text(statement, node.this)
    if isinstance(node, exp.Null):
        return "NULL"
    if isinstance(node, exp.Boolean):
        return str(bool(node.this)).lower()
    if isinstance(node, exp.Literal):
        if node.is_string:
            return statement.text(node)
        if node.name.isdecimal():
            return node.name
    if type(node) in _BINARY:
        left, right = (_text(statement, one) for one in (node.this, node.expression))
        return f"({left} {_BINARY[type(node)]} {right})"
    # ``10L`` is read as a cast too, and ``string(a)`` as one of another class
    if isinstance(node, exp.TryCast) and not isinstance(node.this, exp.Literal):
        return f"CAST({_text(statement, node.this)} AS {_TYPES[t.parsed_type(node.to)]})"
    if isinstance(node, exp.Bracket) and node.args.get("offset") is None:
        return f"{_text(statement, node.this)}[{_text(statement, node.expressions[0])}]"
    if isinstance(node, exp.Count):
        return _count(statement, node)
    if type(node) in _NAMED and not statement.words & _OTHER_NAMES:
        if isinstance(node.this, exp.Distinct):
            raise Unsupported("the name of this column")
        return f"{_NAMED[type(node)]}({_arguments(statement, node)})"
    raise Unsupported("the name of a column without an alias")


def _arguments(statement: Statement, node: exp.Expr) -> str:
    """The arguments in the order in which they are written."""
    if isinstance(node, exp.Round) and node.args.get("decimals") is None:
        return f"{_text(statement, node.this)}, 0"
    names = ("this", "expression", "start", "length", "decimals")
    parts = [one for name in names if isinstance(one := node.args.get(name), exp.Expr)]
    return ", ".join(_text(statement, one) for one in (*parts, *node.expressions))


def _count(statement: Statement, node: exp.Count) -> str:
    if isinstance(node.this, exp.Star):
        return "count(1)"
    if isinstance(node.this, exp.Distinct):
        return f"count(DISTINCT {', '.join(_text(statement, one) for one in node.this.expressions)})"
    return f"count({', '.join(_text(statement, one) for one in (node.this, *node.expressions))})"

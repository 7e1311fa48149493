"""Translates functions and operators of arrays and maps: rules of ``expressions``."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from pipelines.engine import types as t
from pipelines.engine.expressions import Expressions, function, kind, rule
from pipelines.engine.scope import Value
from pipelines.sql.errors import Unsupported


def _array(self: Expressions, node: exp.Expr) -> Value:
    found = self.value(node)
    if not pa.types.is_list(found.type):
        raise Unsupported(f"{node.key} of type {found.type} where an array is known")
    return found


def _lambda(self: Expressions, node: exp.Expr, element: pa.DataType) -> tuple[str, Value]:
    """``x -> ...`` over elements of a type: the name of the variable in DuckDB, and the body."""
    if not isinstance(node, exp.Lambda) or len(node.expressions) != 1:
        raise Unsupported("a lambda of several variables")
    name = f"l{len(self.scope.values)}"  # a lambda within this one has one value more around it
    inner = self.scope.with_values({node.expressions[0].name.lower(): Value(name, element)})
    return name, self.with_scope(inner).value(node.this)


@rule(exp.Transform)
def _transform(self: Expressions, node: exp.Transform) -> Value:
    array = _array(self, node.this)
    name, body = _lambda(self, node.expression, array.type.value_type)
    return Value(f"list_transform({array.sql}, lambda {name}: {body.sql})", pa.list_(body.type))


@rule(exp.ArrayFilter)
def _filter(self: Expressions, node: exp.ArrayFilter) -> Value:
    array = _array(self, node.this)
    name, body = _lambda(self, node.expression, array.type.value_type)
    if body.type != t.BOOLEAN:
        raise Unsupported("a filter by what is no condition")
    return Value(f"list_filter({array.sql}, lambda {name}: {body.sql})", array.type)


@rule(exp.ArrayDistinct, arguments="this")
def _distinct(self: Expressions, node: exp.ArrayDistinct) -> Value:
    """Of equal elements the first, in their order."""
    array = _array(self, node.this)
    if array.type.value_type not in (t.STRING, *t.INTEGERS):
        raise Unsupported(f"{kind(node)} of {array.type.value_type}")
    first = f"lambda e, i: list_position({array.sql}, e) = i"
    return Value(f"list_filter({array.sql}, {first})", array.type)


@rule(exp.Map, arguments="keys values")
def _map_of_arrays(self: Expressions, node: exp.Map) -> Value:
    keys, values = _array(self, node.args["keys"]), _array(self, node.args["values"])
    if keys.type.value_type != t.STRING:
        raise Unsupported("a map whose keys are no strings")
    return Value(f"map({keys.sql}, {values.sql})", pa.map_(t.STRING, values.type.value_type))


@rule(exp.Bracket, arguments="this expressions offset safe")
def _element(self: Expressions, node: exp.Bracket) -> Value:
    """``map[key]``, ``element_at(map, key)``, ``try_element_at(array, position)``: null where there is none.

    ``element_at(array, position)`` fails there, which is Spark's matter: within try() DuckDB would not fail.
    """
    found, (index,) = self.value(node.this), node.expressions
    if pa.types.is_map(found.type) and found.type.key_type == t.STRING:
        key = self.of_type(index, t.STRING)
        return Value(f"map_extract_value({found.sql}, {key.sql})", found.type.item_type)
    position = self.value(index).literal
    if not pa.types.is_list(found.type) or not node.args.get("safe") or not isinstance(position, int):
        raise Unsupported("this element")
    if position == 0:
        raise Unsupported("the element at 0")
    return Value(f"list_extract({found.sql}, {position})", found.type.value_type)


@function("try_validate_utf8")
def _valid_utf_8(self: Expressions, node: exp.Anonymous) -> Value:
    """The text; null where the bytes that it was cast from are not UTF-8."""
    (argument,) = node.expressions
    found = self.of_type(argument, t.STRING)
    return Value(f"try(decode({found.raw}))" if found.raw else found.sql, t.STRING)


@rule(exp.MapKeys, arguments="this")
def _keys(self: Expressions, node: exp.MapKeys) -> Value:
    found = self.value(node.this)
    if not pa.types.is_map(found.type):
        raise Unsupported(f"{kind(node)} of {found.type}")
    return Value(f"map_keys({found.sql})", pa.list_(found.type.key_type))

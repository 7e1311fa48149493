"""Infers struct types from JSON objects, and converts objects to them, with a column for the rest.

A member's type is boolean, int64, double, string, a list or a struct, where all of its values have it;
integers and reals together are doubles, as far as a double holds them. Where no type holds all, it is string.
What does not fit, then or later, or has another name, is kept in ``REST`` as JSON: an object of these
members, or a value that is no object. Null and a missing member are both null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

REST = "_rest"
_MOST_FIELDS = 1000  # of all objects of a value together: one with more is a map, and stays text
_MOST_LEVELS = 32
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
EXACT = 1 << 53  # a double holds every integer up to it


def inferred(values: Sequence[object]) -> pa.DataType | None:
    """Returns the struct type for JSON values; None where they are not all objects, or have too many members.

    Its last field, ``REST`` or that with "_" appended, is the JSON text of what does not fit the others.
    """
    if not values or not all(isinstance(value, dict) for value in values):
        return None
    type_ = _type(values, 0, [0])
    if not pa.types.is_struct(type_):
        return None
    names = {field.name.casefold() for field in type_}
    rest = REST
    while rest in names:
        rest += "_"
    return pa.struct([*type_, pa.field(rest, pa.string())])


def _type(values: Iterable[Any], level: int, count: list[int]) -> pa.DataType:
    held = [value for value in values if value is not None]
    kinds = {type(value) for value in held}
    if not kinds:
        return pa.string()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    if kinds <= {int, float}:
        return pa.float64()
    if kinds == {list} and level < _MOST_LEVELS:
        return pa.list_(_type((item for list_ in held for item in list_), level + 1, count))
    if kinds == {dict} and level < _MOST_LEVELS:
        return _struct(held, level, count)
    return pa.string()


def _struct(held: Sequence[dict[str, object]], level: int, count: list[int]) -> pa.DataType:
    members: dict[str, list[Any]] = {}
    folded: dict[str, str] = {}
    for object_ in held:
        for name, value in object_.items():
            if folded.setdefault(name.casefold(), name) == name:  # another spelling goes to the rest
                members.setdefault(name, []).append(value)
    count[0] += len(members)
    if not members or "" in members or count[0] > _MOST_FIELDS:
        return pa.string()
    return pa.struct([pa.field(name, _type(some, level + 1, count)) for name, some in members.items()])


def column(values: Sequence[object], type_: pa.StructType) -> pa.Array:
    """Converts values to a struct array of a type that ``inferred`` returned.

    What does not fit goes to the rest.
    """
    *fields, rest = type_
    members = pa.struct(fields)  # a member with the name of the rest is one of others
    rows = []
    for value in values:
        held, left = _fitted(value, members) if isinstance(value, dict) else ({}, value)
        is_left = left is not None or not isinstance(value, dict)
        rows.append({**held, rest.name: text(left) if is_left else None})
    return pa.array(rows, type_)


def _fitted(value: object, type_: pa.DataType) -> tuple[Any, Any]:
    """Splits a value, not null, into what a type can hold and what is left; None for nothing."""
    if pa.types.is_struct(type_):
        if not isinstance(value, dict):
            return None, value
        held, rest = {}, {}
        for name, member in value.items():
            index = type_.get_field_index(name)
            if member is None and index >= 0:
                continue
            held_one, left = (None, member) if index < 0 else _fitted(member, type_[index].type)
            if held_one is not None:
                held[name] = held_one
            if left is not None or index < 0:
                rest[name] = left
        return held, rest or None
    if pa.types.is_list(type_):
        if not isinstance(value, list):
            return None, value
        items = [(None, None) if item is None else _fitted(item, type_.value_type) for item in value]
        return (
            (None, value)
            if any(left is not None for _, left in items)
            else ([item for item, _ in items], None)
        )
    return _fitted_leaf(value, type_)


def _fitted_leaf(value: object, type_: pa.DataType) -> tuple[object, object]:
    if pa.types.is_string(type_):
        return (value, None) if isinstance(value, str) else (None, value)
    if isinstance(value, bool) != pa.types.is_boolean(type_) or not isinstance(value, int | float):
        return None, value
    is_held = pa.types.is_boolean(type_)
    is_held |= pa.types.is_int64(type_) and isinstance(value, int) and -(1 << 63) <= value < 1 << 63
    is_held |= pa.types.is_float64(type_) and (isinstance(value, float) or abs(value) <= EXACT)
    return (float(value) if pa.types.is_float64(type_) else value, None) if is_held else (None, value)


def text(value: object) -> str:
    """Returns a value of canonical JSON as compact JSON text."""
    return _ENCODER.encode(value)

"""Parses Avro schemas: JSON text to types (Avro 1.12, "Schema Declaration").

Names are resolved: a type that refers to a named one holds that very object, so that a recursive schema is a
graph with a cycle. A ``logicalType`` that is unknown, or that its type can't have, is left out, as the
specification asks of readers.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kafka_log_lake.udfs.values.schemas.payload import PayloadError

# A schema that says with few words that types lie in each other without end is none
MOST_TYPES = 100_000
# Of a decimal: Python writes no number of more than 4,300 digits, and takes the square of their number
MOST_DECIMAL_BYTES = 1 << 10
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_INSTANTS = {
    **dict.fromkeys(("date", "time-millis"), "int"),
    "time-micros": "long",
    **{f"{p}timestamp-{unit}": "long" for p in ("", "local-") for unit in ("millis", "micros", "nanos")},
}


@dataclass(eq=False)  # by identity: types may refer to themselves
class AvroField:
    """A field of a record.

    default: its JSON value where has_default, else None.
    """

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(eq=False)
class AvroType:
    """A type of Avro: a primitive, record, enum, array, map, fixed or union, as ``kind`` says.

    name: the full name of a named type, "" of others. logical: its logical type, "" for none. items: of an
    array or a map. branches: of a union. size: bytes of a fixed. precision, scale: of a decimal.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: list[AvroField] = field(default_factory=list)
    items: AvroType | None = None
    branches: list[AvroType] = field(default_factory=list)
    doc: str | None = None

    @property
    def branch_name(self) -> str:
        """Returns the name of the type as a branch of a union: its full name, or else its kind."""
        return self.name or self.kind

    @property
    def nullable(self) -> AvroType | None:
        """Returns the other type of a union of null and one type; None of anything else."""
        if self.kind == "union" and len(self.branches) == 2:
            others = [branch for branch in self.branches if branch.kind != "null"]
            return others[0] if len(others) == 1 else None
        return None

    def is_recursive(self) -> bool:
        """Says whether a value may hold another of the same type."""
        return _meets(self, set())


def _meets(type_: AvroType, above: set[int]) -> bool:
    if id(type_) in above:
        return True
    inner = [*type_.branches, *([type_.items] if type_.items else []), *(f.type for f in type_.fields)]
    return any(_meets(part, above | {id(type_)}) for part in inner)


def parse(text: str, references: Iterable[str] = ()) -> AvroType:
    """Parses the text of a schema, and returns the type that it declares.

    references: texts of the schemas whose named types it uses, each after those that it uses itself. Raises a
    PayloadError (unreadable_schema) for a text that is no Avro schema.
    """
    names: dict[str, AvroType] = {}
    try:
        for reference in references:
            _type(_loaded(reference), "", names)
        schema = _type(_loaded(text), "", names)
        check_size(schema, MOST_TYPES)
        return schema
    except PayloadError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise PayloadError("unreadable_schema", f"not an Avro schema: {reason}"[:300]) from None


def check_size(type_: AvroType, most: int) -> None:
    """Raises a PayloadError (unreadable_schema) for a schema of more types; one used twice counts twice."""
    left = most

    def count(part: AvroType, above: tuple[AvroType, ...]) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PayloadError("unreadable_schema", f"a schema of more than {most} types, one in another")
        if part not in above:
            parts = [
                *part.branches,
                *([part.items] if part.items else []),
                *(f.type for f in part.fields),
            ]
            for inner in parts:
                count(inner, (*above, part))

    count(type_, ())


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if text.strip() in PRIMITIVES:  # a bare name, as some registries store it
            return text.strip()
        raise


def _type(declared: Any, space: str, names: dict[str, AvroType]) -> AvroType:
    if isinstance(declared, list):
        return _union(declared, space, names)
    if isinstance(declared, str):
        if declared in PRIMITIVES:
            return AvroType(declared)
        for name in (declared if "." in declared or not space else f"{space}.{declared}", declared):
            if name in names:
                return names[name]
        raise ValueError(f"unknown type {declared}")
    kind = declared["type"]
    if isinstance(kind, dict | list) or kind not in (*PRIMITIVES, *_COMPLEX):
        return _type(kind, space, names)  # {"type": {"type": "string"}}
    type_ = AvroType(kind) if kind in PRIMITIVES else _COMPLEX[kind](declared, space, names)
    _set_logical(type_, declared)
    return type_


def _union(declared: list[object], space: str, names: dict[str, AvroType]) -> AvroType:
    """Returns a union; raises a ValueError for a type that stands in it twice.

    Nothing would tell the two apart (``Schema.UnionSchema``).
    """
    branches = [_type(branch, space, names) for branch in declared]
    counted = Counter(branch.branch_name for branch in branches)
    twice = [name for name, count in counted.items() if count > 1]
    if twice:
        raise ValueError(f"a union with {twice[0]} twice")
    return AvroType("union", branches=branches)


def _named(
    kind: str, declared: dict[str, Any], space: str, names: dict[str, AvroType]
) -> tuple[AvroType, str]:
    name, namespace = str(declared["name"]), declared.get("namespace")
    if "." in name:
        space = name.rpartition(".")[0]
    else:
        space = space if namespace is None else str(namespace)
        name = f"{space}.{name}" if space else name
    type_ = AvroType(kind, name=name, doc=declared.get("doc"))
    type_.aliases = tuple(_full(alias, space) for alias in declared.get("aliases") or ())
    names[name] = type_
    return type_, space


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _record(declared: dict[str, Any], space: str, names: dict[str, AvroType]) -> AvroType:
    record, space = _named("record", declared, space, names)
    for member in declared["fields"]:
        record.fields.append(
            AvroField(
                str(member["name"]),
                _type(member["type"], space, names),
                tuple(map(str, member.get("aliases") or ())),
                "default" in member,
                member.get("default"),
            )
        )
    return record


def _enum(declared: dict[str, Any], space: str, names: dict[str, AvroType]) -> AvroType:
    enum, _ = _named("enum", declared, space, names)
    enum.symbols = tuple(map(str, declared["symbols"]))
    return enum


def _fixed(declared: dict[str, Any], space: str, names: dict[str, AvroType]) -> AvroType:
    fixed, _ = _named("fixed", declared, space, names)
    fixed.size = int(declared["size"])
    if fixed.size < 0:
        raise ValueError(f"a fixed of {fixed.size} bytes")
    return fixed


def _array(declared: dict[str, object], space: str, names: dict[str, AvroType]) -> AvroType:
    return AvroType("array", items=_type(declared["items"], space, names))


def _map(declared: dict[str, object], space: str, names: dict[str, AvroType]) -> AvroType:
    return AvroType("map", items=_type(declared["values"], space, names))


_COMPLEX = {"record": _record, "error": _record, "enum": _enum, "fixed": _fixed, "array": _array, "map": _map}


def _set_logical(type_: AvroType, declared: dict[str, object]) -> None:
    """Sets the logical type, precision and scale that a type declares, if the type can have them."""
    logical = declared.get("logicalType")
    if logical == "decimal" and type_.kind in ("bytes", "fixed"):
        precision, scale = _int(declared.get("precision")), _int(declared.get("scale", 0))
        if not 0 <= scale <= precision <= _most_digits(MOST_DECIMAL_BYTES) or precision == 0:
            return
        if type_.kind == "fixed" and not precision <= _most_digits(type_.size) <= _most_digits(
            MOST_DECIMAL_BYTES
        ):
            return
        type_.logical, type_.precision, type_.scale = logical, precision, scale
    elif (
        (logical == "uuid" and (type_.kind == "string" or (type_.kind == "fixed" and type_.size == 16)))
        or (logical == "duration" and type_.kind == "fixed" and type_.size == 12)
        or (isinstance(logical, str) and _INSTANTS.get(logical) == type_.kind)
    ):
        type_.logical = logical


def _int(value: object) -> int:
    """Returns a whole number as it is; -1 for anything else, True and False too."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _most_digits(size: int) -> int:
    """Returns how many decimal digits any signed number of so many bytes can hold."""
    return math.floor(math.log10(2) * (8 * size - 1)) if size else 0

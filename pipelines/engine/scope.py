"""What a name means at a place of a statement: columns of relations, fields of structs, parameters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pipelines.command.errors import UserError
from pipelines.sql.errors import Unsupported


@dataclass(frozen=True)
class Value:
    """An expression of DuckDB. Its type in DuckDB is always that of ``type``.

    raw: for ``CAST(binary AS STRING)`` the SQL of the bytes. Spark keeps bytes that are not UTF-8 in a
    string, DuckDB cannot. literal: the value of a literal. is_literal: whether it is one.
    """

    sql: str
    type: pa.DataType
    raw: str | None = None
    literal: object = None
    is_literal: bool = False


@dataclass(frozen=True)
class Field:
    """A column: its name in Spark, its type, and its name in DuckDB."""

    name: str | None
    type: pa.DataType
    sql: str


@dataclass(frozen=True)
class Source:
    """A relation of a FROM clause, known by ``alias``."""

    alias: str | None
    fields: tuple[Field, ...]


@dataclass
class Scope:
    """The relations of one SELECT; ``values``: parameters of a view, or variables of a lambda, by name.

    outer: the scope of the statement around it, for which nothing here is translated.
    """

    sources: list[Source] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    outer: Scope | None = None

    def with_values(self, values: dict[str, Value]) -> Scope:
        return replace(self, values={**self.values, **values})

    def find(self, parts: Sequence[str]) -> Value | None:
        """The value of a name such as ``a``, ``relation.a`` or ``a.field``; None if there is none."""
        names = [part.lower() for part in parts]
        found = [
            (candidate, names[1:])
            for source in self.sources
            for candidate in source.fields
            if candidate.name is not None and candidate.name.lower() == names[0]
        ]
        if len(names) > 1:
            qualified = [
                (candidate, names[2:])
                for source in self.sources
                if source.alias is not None and source.alias.lower() == names[0]
                for candidate in source.fields
                if candidate.name is not None and candidate.name.lower() == names[1]
            ]
            found = qualified or found
        if len(found) > 1:
            raise Unsupported(f"the name {'.'.join(parts)}, which is ambiguous")
        if found:
            column, fields = found[0]
            return struct_field(Value(column.sql, column.type), fields)
        if len(names) == 1 and names[0] in self.values:
            return self.values[names[0]]
        if len(names) > 1 and names[0] in self.values:
            return struct_field(self.values[names[0]], names[1:])
        if self.outer is not None and self.outer.find(parts) is not None:
            raise Unsupported("a subquery that depends on the query around it")
        return None

    def columns(self) -> list[str]:
        """The names that may be written here."""
        return [one.name for source in self.sources for one in source.fields if one.name is not None]


def struct_field(value: Value, names: Iterable[str]) -> Value:
    """A field of a struct, or the field of a field; of an array of structs the array of the field."""
    for name in names:
        if pa.types.is_list(value.type) and pa.types.is_struct(value.type.value_type):
            of_one = struct_field(Value("e", value.type.value_type), [name])
            value = Value(f"list_transform({value.sql}, lambda e: {of_one.sql})", pa.list_(of_one.type))
            continue
        if not pa.types.is_struct(value.type):
            raise Unsupported(f"the field {name} of what is no struct")
        matching = [one for one in value.type if one.name.lower() == name.lower()]
        if len(matching) != 1:
            raise Unsupported(f"the field {name}, which is not there or ambiguous")
        value = Value(f"struct_extract({value.sql}, '{matching[0].name}')", matching[0].type)
    return value


def unknown_column(name: str, known: Iterable[str]) -> UserError:
    """The error for a name that no relation has, in the words of Spark."""
    words = list(dict.fromkeys(known))
    by_likeness = difflib.get_close_matches(name.lower(), words, n=5, cutoff=0.3) or words[:5]
    suggested = ", ".join(f"`{word}`" for word in by_likeness)
    return UserError(
        f"SQL: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `{name}` cannot be resolved. "
        f"Did you mean one of the following? [{suggested}]"
    )

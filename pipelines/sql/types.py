"""Translates types of Spark's DDL to DuckDB's."""

from __future__ import annotations

import re

_NAMES = {
    "string": "VARCHAR",
    "binary": "BLOB",
    "int": "INTEGER",
    "timestamp": "TIMESTAMPTZ",  # Spark's is an instant
}


def quoted(name: str) -> str:
    """Returns an identifier of DuckDB, in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def table_name(schema: str, name: str) -> str:
    """Returns a table of a schema as a person writes it: ``typed.orders``, ``typed."h.avro"``."""
    return f"{schema}.{name if re.fullmatch('[A-Za-z_][A-Za-z0-9_]*', name) else quoted(name)}"


def duckdb_type(ddl: str) -> str:
    """Translates a type: ``array<struct<key:string>>`` -> ``STRUCT("key" VARCHAR)[]``."""
    nested = re.fullmatch(r"(array|map|struct)<(.*)>", ddl.strip(), re.DOTALL)
    if nested is None:
        return _NAMES.get(ddl.strip(), ddl.strip().upper())
    kind, inner = nested[1], _parts(nested[2])
    if kind == "array":
        return f"{duckdb_type(inner[0])}[]"
    if kind == "map":
        return f"MAP({duckdb_type(inner[0])}, {duckdb_type(inner[1])})"
    fields = (part.replace("`", "").partition(":") for part in inner)
    return "STRUCT(" + ", ".join(f'"{name.strip()}" {duckdb_type(of)}' for name, _, of in fields) + ")"


def _parts(text: str) -> list[str]:
    """Splits a text at commas that are in no angle brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "<") - (character == ">")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts

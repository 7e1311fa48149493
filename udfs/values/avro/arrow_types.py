"""Maps Avro schemas to Arrow types, and values of canonical JSON to what ``pa.array`` takes for them.

=====================================  =================================================================
Avro                                   Arrow
=====================================  =================================================================
boolean, int, long, float, double      the same
bytes, fixed                           binary
string, enum, uuid                     string
null                                   null
date, timestamp-millis, -micros        date32, timestamp[us, UTC]: null outside of the years 1 to 9999
timestamp-nanos, local-timestamp-*,    the number, in its own unit: Delta has no column for them that every
time-millis, time-micros               reader knows
decimal                                decimal128 of its precision and scale; string above 38 digits
duration                               struct<months, days, millis: int64>
record; array; map                     struct; list; map<string, ...>
union of null and one type             that type, nullable
other unions                           a struct with a field a branch, one of them not null
a type that contains itself            the canonical JSON of the inner value, as string
=====================================  =================================================================

Fields whose names differ in case alone get a number at the end: Delta's names know no case.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kafka_log_lake.udfs.values.avro.schema import AvroType
from kafka_log_lake.udfs.values.schemas.merged_types import fields_of, safe_names

MOST_DIGITS = 38
DAY_MS = 86_400_000
# Years 1 to 9999
LEAST_DAY, MOST_DAY = -719_162, 2_932_896
DURATION = pa.struct([pa.field(name, pa.int64()) for name in ("months", "days", "millis")])
TIMESTAMP = pa.timestamp("us", "UTC")
NUMBERS = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}


def arrow_type(type_: AvroType, above: tuple[AvroType, ...] = ()) -> pa.DataType:
    """Returns the Arrow type for the values of a schema, as the table above says.

    above: the types that enclose this one; one of them again, a recursion, becomes a string of canonical
    JSON.
    """
    if type_ in above:
        return pa.string()
    inside = (*above, type_)
    if type_.nullable is not None:
        return arrow_type(type_.nullable, inside)
    if type_.kind == "union":
        held = [branch for branch in type_.branches if branch.kind != "null"]
        names = [branch_field(branch) for branch in held]
        types = [arrow_type(branch, inside) for branch in held]
        return pa.struct(fields_of(names, types, [branch.branch_name for branch in held]))
    if type_.kind == "record":
        names = [field.name for field in type_.fields]
        return pa.struct(fields_of(names, [arrow_type(field.type, inside) for field in type_.fields]))
    if type_.items is not None:
        items = arrow_type(type_.items, inside)
        return pa.list_(items) if type_.kind == "array" else pa.map_(pa.string(), items)
    return _leaf_type(type_)


def branch_field(type_: AvroType) -> str:
    """Returns the name of a union's branch as a field: its type's name without the namespace."""
    return type_.branch_name.rpartition(".")[2]


def _leaf_type(type_: AvroType) -> pa.DataType:
    logical = type_.logical
    if logical == "decimal":
        is_held = type_.precision <= MOST_DIGITS
        return pa.decimal128(type_.precision, type_.scale) if is_held else pa.string()
    if logical == "date":
        return pa.date32()
    if logical in ("timestamp-millis", "timestamp-micros"):
        return TIMESTAMP
    if logical == "duration":
        return DURATION
    if type_.kind in ("bytes", "fixed") and logical != "uuid":
        return pa.binary()
    return pa.null() if type_.kind == "null" else NUMBERS.get(type_.kind, pa.string())


def plain_value(type_: AvroType, value: Any, above: tuple[AvroType, ...] = ()) -> Any:
    """Converts canonical JSON to the Python value that ``pa.array`` takes for ``arrow_type(type_)``.

    None where a timestamp, date or decimal is out of the range of its Arrow type. above: as in
    ``arrow_type``.
    """
    if value is None:
        return None
    if type_ in above:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    inside = (*above, type_)
    if type_.nullable is not None:
        return plain_value(type_.nullable, value, inside)
    if type_.kind == "union":
        held = [member for member in type_.branches if member.kind != "null"]
        names = safe_names([branch_field(member) for member in held])
        if len(held) == 1:
            return {names[0]: plain_value(held[0], value, inside)}
        ((branch, inner),) = value.items()
        return {
            n: plain_value(member, inner, inside) if member.branch_name == branch else None
            for n, member in zip(names, held, strict=True)
        }
    if type_.kind == "record":
        names = safe_names([field.name for field in type_.fields])
        return {
            n: plain_value(f.type, value[f.name], inside) for n, f in zip(names, type_.fields, strict=True)
        }
    if type_.kind == "array":
        assert type_.items is not None
        return [plain_value(type_.items, item, inside) for item in value]
    if type_.kind == "map":
        assert type_.items is not None
        return [(name, plain_value(type_.items, item, inside)) for name, item in value.items()]
    return _plain_leaf(type_, value)


def _plain_leaf(type_: AvroType, value: Any) -> Any:
    if type_.logical == "decimal":
        if type_.precision > MOST_DIGITS:
            return value
        digits = value.lstrip("-").replace(".", "").lstrip("0")
        return Decimal(value) if len(digits) <= type_.precision else None
    if type_.logical == "duration":
        return dict(zip(("months", "days", "millis"), value["duration"], strict=True))
    if type_.kind in ("float", "double"):
        return float(value)
    if isinstance(value, dict):
        if type_.kind in ("bytes", "fixed"):
            return base64.b64decode(value["bytes"])
        ((unit, number),) = value.items()
        if unit == "date":
            held = LEAST_DAY <= number <= MOST_DAY
            return pa.scalar(number, pa.int32()).cast(pa.date32()).as_py() if held else None
        if unit in ("timestamp-millis", "timestamp-micros"):
            scale = 1000 if unit == "timestamp-millis" else 1
            day = number * scale // (DAY_MS * 1000)
            return number * scale if LEAST_DAY <= day <= MOST_DAY else None
        return number
    return value

"""Declares every function for SQL once: name, parameters, result. Plain values, without a kernel.

The driver registers from these declarations (``pipelines.views``); ``docs/functions.md`` describes them.
The module that each one names holds a function of its name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from kafka_log_lake.udfs.format.schema import BATCHES, RECORDS, Column, Table


@dataclass(frozen=True)
class Function:
    """A function of columns: one result a row.

    module: where its code is, below ``udfs``. takes, returns: SQL types. is_stream: whether it takes and
    gives an iterator of arrays, because its results may be much larger than its arguments: the arrays that
    it gives may be cut at other rows.
    """

    name: str
    module: str
    takes: tuple[str, ...]
    returns: str
    is_stream: bool = False


@dataclass(frozen=True)
class TableFunction:
    """A function of one binary value that returns rows.

    array: a function that returns the same rows as one array.
    """

    rows: Table
    array: Function

    @property
    def name(self) -> str:
        return self.rows.name

    def arrow_type(self) -> pa.DataType:
        """Returns the type of what ``array`` returns: a list of structs of the columns."""
        return pa.list_(pa.struct(list(self.rows.arrow_schema())))


# What no value tells: of which segment it is
_OF_A_SEGMENT = {"topic", "partition", "segment"}
_IN_THE_VALUE = {
    "position": "Byte where the batch, or the damaged range, starts in the value",
    "batch_position": "Byte where the batch starts in the value; joins to kafka_batches.position",
    "size_bytes": "Size of the batch, 12 + length, or of the damaged range",
    "status": "ok, suspect, corrupt, invalid or unsupported; quarantined: a range without a header; "
    "tail: zeros to the end of the value",
}


def _columns(table: Table, words: dict[str, str]) -> tuple[Column, ...]:
    kept = [column for column in table.columns if column.name not in _OF_A_SEGMENT]
    return tuple(replace(column, comment=words.get(column.name, column.comment)) for column in kept)


_RECORD_WORDS = {"batch_position": _IN_THE_VALUE["batch_position"]}


def _table_function(name: str, comment: str, columns: tuple[Column, ...]) -> TableFunction:
    rows = Table(name, comment, (), columns)
    array = Function(
        f"{name}_array", "functions.lists", ("binary",), f"array<{rows.struct_ddl()}>", is_stream=True
    )
    return TableFunction(rows, array)


KAFKA_BATCHES = _table_function(
    "kafka_batches",
    "Every record batch in the bytes, sound or not, and every damaged range",
    (
        *_columns(BATCHES, _IN_THE_VALUE),
        Column("reason", "string", "Null for ok and suspect; else as in quarantine, or zeros"),
        Column("next_position", "bigint", "Where decoding went on"),
    ),
)
KAFKA_RECORDS = _table_function(
    "kafka_records", "Every record of every sound batch in the bytes", _columns(RECORDS, _RECORD_WORDS)
)

TABLE_FUNCTIONS = (KAFKA_BATCHES, KAFKA_RECORDS)
FUNCTIONS = (
    Function("crc32c", "functions.scalars", ("binary",), "bigint"),
    Function("kafka_varint", "functions.scalars", ("binary",), "bigint"),
    Function("confluent_schema_id", "functions.scalars", ("binary",), "int"),
    Function("confluent_payload", "functions.scalars", ("binary",), "binary"),
    Function("kafka_partition", "functions.scalars", ("binary", "int"), "int"),
    Function("kafka_decompress", "functions.scalars", ("string", "binary"), "binary", is_stream=True),
    Function(
        "kafka_unproven_records",
        "functions.unproven",
        ("binary",),
        "array<struct<offset:bigint,key:binary,is_tombstone:boolean>>",
    ),
    *(function.array for function in TABLE_FUNCTIONS),
)

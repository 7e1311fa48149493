"""Turns a data file of ``records`` into a data file of a topic's typed table, and one of ``value_errors``.

This is a stage: a row in names a file, a row out says what was written. Typed columns grow with the schemas
that a file holds; where they grow while it is written, it is begun again with what is known by then.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_log_lake.udfs.format.hive import partition_folder
from kafka_log_lake.udfs.format.schema import HEADER_TYPE
from kafka_log_lake.udfs.storage.store import open_store
from kafka_log_lake.udfs.values.schemas.merged_types import safe_names
from kafka_log_lake.udfs.values.schemas.payload_arrays import rows_at
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import Registry
from kafka_log_lake.udfs.values.typed.columns import SideDecoder, TypedSide, add_type, column_type
from kafka_log_lake.udfs.values.typed.writer import TypedWriter, in_memory

SIDES = (KEY, VALUE)
# Rows of ``records`` that are decoded together
BATCH_ROWS = 32_768
_TIMESTAMP = pa.timestamp("us", "UTC")
RETRY = "retry"  # in the name of a file of errors: another registry may know better
_OF_REGISTRY = ("unknown_id", "unknown_guid", "deleted_id", "unreadable_schema", "ambiguous_id")
Types = Mapping[str, pa.DataType]

VALUE_ERRORS = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("segment", pa.string()),
        pa.field("side", pa.string()),
        pa.field("format", pa.string()),
        pa.field("schema_id", pa.int32()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("content", pa.binary()),
    ]
)
TASK = pa.schema([pa.field(name, pa.string()) for name in ("topic", "partition", "file", "types", "plain")])
DONE = pa.schema(
    [
        *(
            pa.field(name, pa.string())
            for name in ("topic", "partition", "file", "types", "path", "error_path")
        ),
        *(pa.field(name, pa.int64()) for name in ("rows", "errors", "bytes", "error_bytes")),
        pa.field("counts", pa.string()),
    ]
)


class Done(TypedDict):
    """A row of DONE. counts: ``TypedTopic.counts`` as JSON; error_path: "" without errors."""

    topic: str
    partition: str
    file: str
    types: str
    path: str
    error_path: str
    rows: int
    errors: int
    bytes: int
    error_bytes: int
    counts: str


@dataclass(frozen=True)
class TypedOptions:
    """The options and the registry of a run, which are the same for all of its files.

    lake: its address. registry_name: of the registry's content. infers, fills: see ``SideDecoder``. is_flat:
    whether the top-level fields of keys and values are columns of the table.
    """

    lake: str
    registry: Registry
    registry_name: str
    infers: bool = False
    fills: bool = False
    is_flat: bool = False

    @property
    def form(self) -> str:
        """Returns the name of the options that change the rows of a typed file; it is part of file names."""
        formats = self.registry.formats.text
        choices = "flat" * self.is_flat + "filled" * self.fills + "inferred" * self.infers
        return choices + (signature(formats) if formats else "")


def typed_schema(types: Mapping[str, Types], is_flat: bool = False) -> pa.Schema:
    """Returns the schema of a typed table's data files; ``partition`` is in the folder.

    types: side -> label -> type.
    """
    before = [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _TIMESTAMP),
        pa.field("headers", HEADER_TYPE),
        pa.field("segment", pa.string()),
    ]
    after = [
        pa.field("is_tombstone", pa.bool_()),
        *(pa.field(f"{side}_schema_id", pa.int32()) for side in SIDES),
    ]
    fields = [field for side in SIDES for field in _side_fields(side, column_type(types[side]), is_flat)]
    fixed = ["partition", *(column.name for column in (*before, *after))]
    names = safe_names([*fixed, *(field.name for field in fields)])[len(fixed) :]
    held = [pa.field(name, field.type) for name, field in zip(names, fields, strict=True)]
    return pa.schema([*before, *held, *after])


def _side_fields(side: str, type_: pa.DataType, is_flat: bool) -> list[pa.Field]:
    """Returns the columns of a side: its struct's fields as ``<side>_<field>`` if flat, else one column."""
    if is_flat and pa.types.is_struct(type_):
        return [pa.field(f"{side}_{field.name}", field.type) for field in type_]
    return [pa.field(side, type_)]


def types_text(types: Mapping[str, Types]) -> str:
    """Returns types as text; the same text for the same types."""
    fields = [pa.field(side, pa.struct([pa.field(n, t) for n, t in types[side].items()])) for side in SIDES]
    return base64.b64encode(pa.schema(fields).serialize().to_pybytes()).decode()


def types_of(text: str) -> dict[str, dict[str, pa.DataType]]:
    """Returns the types that ``types_text`` wrote; none for an empty text."""
    if not text:
        return {side: {} for side in SIDES}
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    return {field.name: {column.name: column.type for column in field.type} for field in schema}


def joined_types(one: str, other: str) -> str:
    """Returns the types of two texts of ``types_text``, merged, as text."""
    joined = types_of(one)
    for side, types in types_of(other).items():
        for label, type_ in types.items():
            add_type(joined[side], label, type_)
    return types_text(joined)


def signature(text: str) -> str:
    """Returns the first 16 hex digits of a text's SHA-256, for names of files."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def decode_files(options: TypedOptions) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the stage that decodes files: rows of TASK in, rows of DONE out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = PayloadReader(options.registry)
        for batch in batches:
            for task in batch.to_pylist():
                done = _FileDecoder(options, reader, task).decode()
                yield pa.RecordBatch.from_pylist([done], DONE)

    return run


class _TypesGrew(Exception):
    """Raised where a file holds a type that has no column in the file being written."""


class _FileDecoder:
    """Decodes one data file of ``records``. task: a row of TASK."""

    def __init__(self, options: TypedOptions, reader: PayloadReader, task: Mapping[str, str]) -> None:
        self._options, self._reader, self._task = options, reader, task
        self._types = types_of(task["types"])
        self._plain = dict(zip(SIDES, (task["plain"] or ",").split(","), strict=True))

    def decode(self) -> Done:
        """Writes the typed file and the file of errors; returns a row of DONE."""
        while True:
            before = types_text(self._types)
            try:
                return self._write()
            except _TypesGrew:
                if types_text(self._types) == before:
                    raise RuntimeError(f"the types of {self._task['file']} grow without end") from None

    def _write(self) -> Done:
        types = types_text(self._types)
        decoders = {}
        for side in SIDES:
            decoders[side] = SideDecoder(
                self._reader,
                self._task["topic"],
                side,
                self._plain[side],
                self._types[side],
                self._options.infers,
                self._options.fills,
            )
        schema = typed_schema(self._types, self._options.is_flat)
        totals = _FileTotals()
        errors: list[pa.Table] = []
        system, folder = open_store(f"{self._options.lake}/{table_folder(self._task['topic'])}")
        name = file_name(self._task["file"], signature(types + self._options.form))
        path = f"partition={self._task['partition']}/{name}"
        system.create_dir(f"{folder}/{os.path.dirname(path)}", recursive=True)
        with (
            system.open_output_stream(f"{folder}/{path}") as out,
            closing(TypedWriter(out, schema)) as writer,
        ):
            for rows in self._batches():
                typed = {
                    side: decoders[side].decode(rows.column(side), rows.column("headers")) for side in SIDES
                }
                self._types = {side: dict(decoders[side].types) for side in SIDES}
                if types_text(self._types) != types:
                    raise _TypesGrew
                writer.add(_typed_rows(rows, typed, self._types, schema))
                totals.add(rows.num_rows, typed)
                errors += [
                    _error_rows(rows, side, typed[side], self._task) for side in SIDES if typed[side].wrong
                ]
        error_path, error_bytes = self._write_errors(errors, totals)
        return {
            "topic": self._task["topic"],
            "partition": self._task["partition"],
            "file": self._task["file"],
            "types": types,
            "path": path,
            "error_path": error_path,
            "rows": totals.rows,
            "errors": totals.errors,
            "bytes": system.get_file_info(f"{folder}/{path}").size,
            "error_bytes": error_bytes,
            "counts": totals.text(),
        }

    def _batches(self) -> Iterator[pa.Table]:
        """Yields the data records of the file, BATCH_ROWS at most at a time."""
        system, folder = open_store(f"{self._options.lake}/records")
        columns = ["offset", "timestamp", "headers", "segment", KEY, VALUE, "is_control"]
        with system.open_input_file(f"{folder}/{self._task['file']}") as file:
            for batch in pq.ParquetFile(file, read_dictionary=["segment"]).iter_batches(
                BATCH_ROWS, columns=columns
            ):
                rows = pa.Table.from_batches([batch])
                data = np.flatnonzero(~rows.column("is_control").to_numpy())
                yield rows_at(rows.drop_columns(["is_control"]), data).combine_chunks()

    def _write_errors(self, errors: Sequence[pa.Table], totals: _FileTotals) -> tuple[str, int]:
        """Writes the file of errors; returns its path below the table and its bytes, or ("", 0)."""
        if not totals.errors:
            return "", 0
        system, folder = open_store(f"{self._options.lake}/value_errors")
        kind = f"{self._options.registry_name}-{RETRY if totals.retriable else 'final'}"
        path = f"{partition_folder({'topic': self._task['topic']})}/{file_name(self._task['file'], kind)}"
        system.create_dir(f"{folder}/{os.path.dirname(path)}", recursive=True)
        with system.open_output_stream(f"{folder}/{path}") as out:
            pq.write_table(pa.concat_tables(errors), out, compression="zstd", compression_level=1)
        return path, int(system.get_file_info(f"{folder}/{path}").size)


def file_name(records_file: str, kind: str) -> str:
    """Returns a new file name at each call: a file that a table version names is never written again.

    It begins with ``signature(records_file)``. kind: what else the next run asks of it.
    """
    return f"{signature(records_file)}-{kind}-{uuid.uuid4().hex}.parquet"


def made_of(path: str) -> str | None:
    """Returns ``signature`` of the ``records`` file that a file was made of; None for other names."""
    named = re.fullmatch(r"([0-9a-f]{16})-.+-[0-9a-f]{32}\.parquet", path.rpartition("/")[2])
    return named[1] if named else None


def table_folder(topic: str) -> str:
    """Returns the folder of a topic's typed table, relative to the lake."""
    return "typed/" + partition_folder({"topic": topic}).removeprefix("topic=")


@dataclass
class _FileTotals:
    """Counts of the rows and errors of a decoded file."""

    rows: int = 0
    errors: int = 0
    retriable: int = 0

    def __post_init__(self) -> None:
        self._counts: dict[tuple[str, str, int | None, str], int] = {}

    def add(self, rows: int, typed: Mapping[str, TypedSide]) -> None:
        self.rows += rows
        for side, side_rows in typed.items():
            self.errors += len(side_rows.wrong)
            self.retriable += sum(failure.decoded.reason in _OF_REGISTRY for failure in side_rows.wrong)
            for label, at, _ in side_rows.parts:
                self._count((side, label, None, ""), len(at))
            for failure in side_rows.wrong:
                of = failure.decoded
                self._count((side, of.format, of.schema_id, of.reason or ""), 1)

    def _count(self, key: tuple[str, str, int | None, str], more: int) -> None:
        self._counts[key] = self._counts.get(key, 0) + more

    def text(self) -> str:
        return json.dumps([[*key, count] for key, count in self._counts.items()])


def _typed_rows(
    rows: pa.Table, typed: Mapping[str, TypedSide], types: Mapping[str, Types], schema: pa.Schema
) -> pa.Table:
    columns = [rows.column(name) for name in ("offset", "timestamp", "headers", "segment")]
    for side in SIDES:
        column = typed[side].column(types[side])
        columns += [column] if side in schema.names else column.flatten()
    columns.append(rows.column(VALUE).is_null())
    columns += [typed[side].ids() for side in SIDES]
    return pa.table(columns, schema=in_memory(schema))


def _error_rows(rows: pa.Table, side: str, typed_side: TypedSide, task: Mapping[str, str]) -> pa.Table:
    at = pa.array([failure.row for failure in typed_side.wrong], pa.int64())
    taken = rows.select(["offset", "segment", side]).take(at)
    n = len(at)
    decoded = [failure.decoded for failure in typed_side.wrong]
    columns = [
        pa.repeat(pa.scalar(int(task["partition"]), pa.int32()), n),
        taken.column("offset"),
        taken.column("segment").cast(pa.string()),
        pa.repeat(side, n),
        pa.array([payload.format for payload in decoded], pa.string()),
        pa.array([payload.schema_id for payload in decoded], pa.int32()),
        pa.array([payload.reason for payload in decoded], pa.string()),
        pa.array([payload.detail for payload in decoded], pa.string()),
        taken.column(side),
    ]
    return pa.table(columns, schema=VALUE_ERRORS)

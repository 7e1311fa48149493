"""Compiles a schema to a reader of columns, with the names and defaults of the subject's latest version."""

from __future__ import annotations

from kafka_log_lake.udfs.values.avro import schema as avro_schema
from kafka_log_lake.udfs.values.avro.aliases import RenamedColumns
from kafka_log_lake.udfs.values.avro.columns import AvroColumns
from kafka_log_lake.udfs.values.avro.schema import AvroType
from kafka_log_lake.udfs.values.json import texts as json_texts
from kafka_log_lake.udfs.values.protobuf.columns import ProtobufColumns
from kafka_log_lake.udfs.values.protobuf.payload import MessageReader
from kafka_log_lake.udfs.values.schemas import defaults
from kafka_log_lake.udfs.values.schemas.defaults import ColumnReader, FilledColumns, Filling
from kafka_log_lake.udfs.values.schemas.payload import MOST_FIELDS, PayloadError
from kafka_log_lake.udfs.values.schemas.payloads import PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import Schema


def compiled(
    reader: PayloadReader,
    schema: Schema,
    message: MessageReader | None,
    index: tuple[int, ...] = (),
    fills: bool = False,
) -> tuple[str, ColumnReader]:
    """Returns a schema's record name ("" without one) and its compiled reader. Raises a PayloadError.

    message, index: of a schema of Protobuf. fills: whether fields that it does not have get the defaults of
    the latest version of its subject.
    """
    _check_readable(reader, schema)
    if message is not None:
        columns = ProtobufColumns(message)
        return message.full_name, _filled(
            columns, _of_message(reader, schema, message, index, columns, fills)
        )
    type_ = _parsed(reader, schema)
    latest = reader.latest(schema)
    try:
        later = None if latest is None else _parsed(reader, latest)
        if later is not None:
            avro_schema.check_size(later, MOST_FIELDS)
    except PayloadError:
        later = None
    of_type: ColumnReader
    if latest is not None and later is not None and _has_aliases(reader, latest):
        of_type = RenamedColumns(type_, later)
    else:
        of_type = AvroColumns(type_)
    filling = None if later is None or not fills else defaults.of_avro(type_, later, of_type.arrow_type)
    return type_.branch_name if type_.name else "", _filled(of_type, filling)


def compiled_texts(reader: PayloadReader, schema: Schema, message: MessageReader | None) -> ColumnReader:
    """Returns the reader that decodes a schema's payloads to canonical JSON texts. Raises a PayloadError."""
    _check_readable(reader, schema)
    return json_texts.of_avro(_parsed(reader, schema)) if message is None else json_texts.of_message(message)


def _check_readable(reader: PayloadReader, schema: Schema) -> None:
    if reader.payload_rule(schema) is not None:
        raise PayloadError("encrypted", "each payload says by which key")


def _filled(columns: ColumnReader, filling: Filling | None) -> ColumnReader:
    return FilledColumns(columns, filling) if filling else columns


def _parsed(reader: PayloadReader, schema: Schema) -> AvroType:
    return avro_schema.parse(schema.text, [text for _, text in reader.references(schema)])


def _has_aliases(reader: PayloadReader, schema: Schema) -> bool:
    texts = (schema.text, *(text for _, text in reader.references(schema)))
    return any('"aliases"' in text for text in texts)


def _of_message(
    reader: PayloadReader,
    schema: Schema,
    message: MessageReader,
    index: tuple[int, ...],
    columns: ProtobufColumns,
    fills: bool,
) -> Filling | None:
    latest = reader.latest(schema) if fills else None
    if latest is None:
        return None
    try:
        later = reader.messages(latest)(index)
    except PayloadError:
        return None
    is_same = later.full_name == message.full_name
    return defaults.of_protobuf(message, later, columns.arrow_type) if is_same else None

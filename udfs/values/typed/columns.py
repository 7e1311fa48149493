"""Decodes the keys or the values of a topic to one typed column: split by schema, decoded, joined again.

Most payloads of a topic have one of a few schema ids: those of an id are decoded together by a compiled
reader (``avro.columns``, ``protobuf.columns``). All else goes the exact way, payload by payload
(``payloads``), and so does each payload that a compiled reader refuses, to learn why.

A topic may hold several types (RecordNameStrategy), or text besides them: then the column is a struct with a
field a type, of which one is not null. Versions of one subject, and schemas of one record name, are one type
(``merged_types``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.kernels import texts
from kafka_log_lake.udfs.values.apps.payloads import SideReader
from kafka_log_lake.udfs.values.apps.plain_columns import plain_column
from kafka_log_lake.udfs.values.json import arrays as json_arrays
from kafka_log_lake.udfs.values.json import structs as json_columns
from kafka_log_lake.udfs.values.protobuf.payload import MessageReader
from kafka_log_lake.udfs.values.schemas.compiled import compiled
from kafka_log_lake.udfs.values.schemas.defaults import ColumnReader
from kafka_log_lake.udfs.values.schemas.merged_types import conformed, merged, own_name, safe_names, storable
from kafka_log_lake.udfs.values.schemas.payload import DecodedPayload, PayloadError
from kafka_log_lake.udfs.values.schemas.payload_arrays import bytes_at, rows_at
from kafka_log_lake.udfs.values.schemas.payload_heads import (
    ID_SIZE,
    by_index,
    confluent_ids,
    equal_rows,
    looks,
    pairs_at,
    unframed,
    with_schema_header,
)
from kafka_log_lake.udfs.values.schemas.payloads import FORMATS, PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import AVRO, JSON_SCHEMA, PROTOBUF, UNKNOWN_ID, Schema
from kafka_log_lake.udfs.values.schemas.wire_formats import CONFLUENT, Framing

TEXT, BYTES, JSON = "text", "bytes", "json"
_MOST_BYTES = (1 << 31) - 1  # of a payload
_LOOKS = {texts.JSON_LIKE: JSON, texts.TEXT: TEXT, texts.BYTES: BYTES}


class PayloadFailure(NamedTuple):
    """A payload that can't be decoded: its row, and the reason as ``DecodedPayload``."""

    row: int
    decoded: DecodedPayload


@dataclass
class TypedSide:
    """The decoded keys, or values, of n rows, in parts of one type each.

    parts: label, rows (int64[m], rising) and their values. schema_ids: rows and the id of their schema.
    formats: rows and what they are, as ``DecodedPayload.format``.
    """

    rows: int
    parts: list[tuple[str, np.ndarray, pa.Array]] = field(default_factory=list)
    schema_ids: list[tuple[np.ndarray, int]] = field(default_factory=list)
    formats: list[tuple[np.ndarray, str]] = field(default_factory=list)
    wrong: list[PayloadFailure] = field(default_factory=list)

    def column(self, types: Mapping[str, pa.DataType]) -> pa.Array:
        """Returns one array of all rows, of ``column_type(types)``; null where a row has no value."""
        if len(types) < 2:
            return self._scattered(next(iter(types), TEXT), column_type(types))
        target = column_type(types)
        arrays = [self._scattered(label, field.type) for label, field in zip(types, target, strict=True)]
        valid = np.zeros(self.rows, np.bool_)
        for _, rows, _ in self.parts:
            valid[rows] = True
        return pa.StructArray.from_arrays(arrays, fields=list(target), mask=pa.array(~valid))

    def _scattered(self, label: str, target: pa.DataType) -> pa.Array:
        """Returns the values of one label as an array of all rows, of type ``target``; null elsewhere."""
        pieces = [(rows, conformed(values, target)) for name, rows, values in self.parts if name == label]
        if len(pieces) == 1 and len(pieces[0][0]) == self.rows:
            return pieces[0][1]
        places = np.full(self.rows, -1, np.int64)
        at = 0
        for rows, _ in pieces:
            places[rows] = np.arange(at, at + len(rows))
            at += len(rows)
        if not at:
            return pa.nulls(self.rows, target)
        joined = pa.concat_arrays([values for _, values in pieces])
        return joined.take(pa.array(places, mask=places < 0))

    def ids(self) -> pa.Array:
        """Returns int32[n]: the schema id of each row; null for none."""
        schema_ids, known = np.zeros(self.rows, np.int32), np.zeros(self.rows, np.bool_)
        for rows, id_ in self.schema_ids:
            schema_ids[rows], known[rows] = id_, True
        return pa.array(schema_ids, mask=~known)


def column_type(types: Mapping[str, pa.DataType]) -> pa.DataType:
    """Returns the type of a side's column: that of its one label, else a struct with a field a label."""
    if not types:
        return pa.string()
    if len(types) == 1:
        return storable(next(iter(types.values())))
    names = safe_names(list(types))
    return pa.struct([pa.field(n, storable(type_)) for n, type_ in zip(names, types.values(), strict=True)])


def add_type(types: dict[str, pa.DataType], label: str, type_: pa.DataType) -> str:
    """Adds a type under its label, merged with the type there; returns the label that it got.

    Where no type holds both it is the label with the name of the type at its end.
    """
    for name in chain((label, own_name(label, type_)), (f"{label}_{number}" for number in count(2))):
        both = type_ if name not in types else merged(types[name], type_)
        if both is not None:
            types[name] = both
            return name
    raise AssertionError("labels without end")


class SideDecoder:
    """Decodes the keys, or the values, of one topic.

    types: label -> the merged type of all that it has met.
    """

    def __init__(
        self,
        reader: PayloadReader,
        topic: str,
        side: str,
        plain: str = "",
        types: Mapping[str, pa.DataType] = {},
        infers: bool = False,
        fills: bool = False,
    ) -> None:
        """Takes the payload reader of a topic's side, and the types that were learned before.

        infers: whether JSON becomes structs (``json.structs``); else it is text. fills: whether what a
        version does not have gets the latest one's defaults (``defaults``).
        """
        self._reader, self._topic, self._side, self._plain = reader, topic, side, plain
        self._known: dict[tuple[int, str], tuple[str, ColumnReader] | None] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self._infers, self._fills = infers, fills
        self._learned: set[int] = set()  # ids of schemas of Avro whose types are known
        self.types: dict[str, pa.DataType] = dict(types)

    def learn(self, payloads: pa.Array, headers: pa.Array | None = None) -> None:
        """Adds the types that ``decode`` would add, without decoding what has a schema that is known."""
        ids = confluent_ids(payloads)
        ids[with_schema_header(headers, self._side, len(payloads))] = -1
        is_new = ~np.isin(ids, list(self._learned))
        if is_new.any():
            rows = np.flatnonzero(is_new)
            self.decode(rows_at(payloads, rows), None if headers is None else rows_at(headers, rows))

    def decode(self, payloads: pa.Array, headers: pa.Array | None = None) -> TypedSide:
        """Decodes payloads (binary[n]). headers: list<struct<key, value>>[n] as in ``records``, or None."""
        payloads = payloads.combine_chunks() if isinstance(payloads, pa.ChunkedArray) else payloads
        decoded = TypedSide(len(payloads))
        reader = self._reader.side_reader(self._topic, self._side, self._plain)
        if reader is not None:
            self._decode_format(reader, payloads, decoded)
            return decoded
        one_by_one = np.zeros(len(payloads), np.bool_)
        ids = confluent_ids(payloads)
        in_headers = with_schema_header(headers, self._side, len(payloads))
        ids[in_headers] = -1
        for rows in equal_rows(ids):
            id_ = int(ids[rows[0]])
            if id_ < 0 or not self._decode_id(id_, rows, payloads, decoded, one_by_one):
                one_by_one[rows] = True
        self._add_plain(payloads, in_headers, decoded, one_by_one)
        self._decode_exactly(np.flatnonzero(one_by_one), payloads, headers, decoded)
        decoded.wrong.sort()
        return decoded

    def _decode_format(self, reader: SideReader, payloads: pa.BinaryArray, side: TypedSide) -> None:
        """Decodes payloads by the topic's format. What does not fit one that was recognised stays bytes."""
        label = reader.name.replace("-", "_")
        whole, column = plain_column(reader, payloads)
        self._add(side, label, None, whole, column, reader.name)
        fitting: list[int] = []
        values: list[Any] = []
        others: list[int] = []
        for row in np.setdiff1d(np.flatnonzero(payloads.is_valid()), whole, assume_unique=True).tolist():
            payload = self._reader.read(self._topic, self._side, bytes_at(payloads, row), (), self._plain)
            if payload.reason is not None:
                side.wrong.append(PayloadFailure(row, payload))
            elif payload.format == reader.name:
                fitting.append(row)
                values.append(payload.value)
            else:
                others.append(row)
        self._add(side, label, None, np.array(fitting, np.int64), self._column(reader, values), reader.name)
        rows = np.array(others, np.int64)
        self._add(side, BYTES, None, rows, rows_at(payloads, rows), BYTES)

    def _column(self, reader: SideReader, values: Sequence[object]) -> pa.Array:
        """Returns values that a format's reader gave as a column."""
        return reader.column(values)

    def _add_plain(
        self, payloads: pa.BinaryArray, in_headers: np.ndarray, side: TypedSide, one_by_one: np.ndarray
    ) -> None:
        """Decodes JSON, texts or bytes of a side without a schema by column, where no framing can be."""
        is_alike = self._plain in (JSON, TEXT, BYTES)
        if self._reader.has_files or (self._infers and not is_alike):
            return
        rows = np.flatnonzero(one_by_one & ~in_headers)
        if not len(rows):
            return
        rows = rows[unframed(payloads)[rows]]
        if is_alike:
            self._add_alike(side, self._plain, rows, payloads, one_by_one)
            return
        look = looks(payloads, rows)
        for code, plain in _LOOKS.items():
            self._add_alike(side, plain, np.flatnonzero(look == code), payloads, one_by_one)

    def _add_alike(
        self, side: TypedSide, plain: str, rows: np.ndarray, payloads: pa.Array, one_by_one: np.ndarray
    ) -> None:
        """Decodes unframed payloads that are all JSON, all texts or all bytes by column."""
        if not len(rows):
            return
        values = rows_at(payloads, rows)
        if plain == JSON:
            self._add_json(side, None, rows, values, one_by_one)
            return
        if plain == TEXT:
            try:
                values = values.cast(pa.string())
            except pa.ArrowInvalid:  # some are not UTF-8: which, the exact way says
                return
        self._add(side, plain, None, rows, values, plain)
        one_by_one[rows] = False

    def _add_json(
        self,
        side: TypedSide,
        schema: Schema | None,
        rows: np.ndarray,
        payloads: pa.BinaryArray,
        one_by_one: np.ndarray,
    ) -> None:
        """Decodes JSON payloads of ``rows``, none null, by column, except those left to the exact reader."""
        if not self._infers:
            values = json_arrays.texts(payloads, schema is not None)
            taken = np.flatnonzero(values.is_valid())
            values = rows_at(values, taken)
        elif JSON in self.types:
            values, taken = json_arrays.structs(payloads, self.types[JSON])
        else:  # the exact way says what the types are
            return
        self._add(side, JSON if self._infers else TEXT, schema, rows[taken], values, JSON)
        one_by_one[rows[taken]] = False

    def _decode_id(
        self, id_: int, rows: np.ndarray, payloads: pa.Array, side: TypedSide, one_by_one: np.ndarray
    ) -> bool:
        """Decodes the payloads of a schema id by column. Returns whether that can be done."""
        candidates = self._reader.candidates(self._topic, self._side, Framing(CONFLUENT, ID_SIZE, id=id_))
        held = [candidate for candidate in candidates if not candidate.is_gone]
        if len({(schema.text, schema.references) for schema in held}) != 1 or held[0].type not in FORMATS:
            return False
        taken = rows_at(payloads, rows)
        one_by_one[rows] = True
        if held[0].type == JSON_SCHEMA:
            if self._reader.payload_rule(held[0]) is None:
                self._add_json(side, held[0], rows, pc.binary_slice(taken, ID_SIZE, _MOST_BYTES), one_by_one)
            return True
        for index, some, starts in by_index(held[0], taken):
            compiled = self._compiled(held[0], index)
            if compiled is not None:
                label, columns = compiled
                values, failed = columns.decode(rows_at(taken, some), starts)
                sound = np.flatnonzero(~failed)
                self._add(side, label, held[0], rows[some][sound], rows_at(values, sound))
                one_by_one[rows[some][sound]] = False
        if held[0].type == AVRO and not one_by_one[rows].all():
            self._learned.add(id_)
        return True

    def _compiled(self, schema: Schema, index: tuple[int, ...]) -> tuple[str, ColumnReader] | None:
        """Returns the label and the compiled reader of a schema; None where it can't be compiled.

        index: of a message of Protobuf. What names none is not kept: there is no end of such lists.
        """
        try:
            message = self._reader.messages(schema)(index) if schema.type == PROTOBUF else None
        except PayloadError:
            return None
        place = (id(schema), message.full_name if message is not None else "")
        if place not in self._known:
            try:
                self._known[place] = self._compile(schema, message, index)
            except PayloadError:
                self._known[place] = None
        return self._known[place]

    def _compile(
        self, schema: Schema, message: MessageReader | None, index: tuple[int, ...]
    ) -> tuple[str, ColumnReader]:
        name, columns = compiled(self._reader, schema, message, index, self._fills)
        return self._label(schema, name), columns

    def _label(self, schema: Schema, name: str) -> str:
        """Returns the label of a schema's type: the same for all versions of a subject."""
        own_topic = schema.name == f"{self._topic}-{self._side}"
        is_of_topic = own_topic or schema.name in (f"{self._topic}-{name}", name)
        place = (schema.name, name if schema.type == PROTOBUF or not is_of_topic else "")
        if place not in self._labels:
            is_shared = self._reader.has_namesake(schema, name, "" if own_topic else self._topic)
            short = name.replace(".", "_") if is_shared else name.rpartition(".")[2]
            self._labels[place] = short or schema.type.lower()
        return self._labels[place]

    def _add(
        self,
        side: TypedSide,
        label: str,
        schema: Schema | None,
        rows: np.ndarray,
        values: pa.Array,
        format_: str = "",
    ) -> None:
        if not len(rows):
            return
        side.parts.append((add_type(self.types, label, values.type), rows, values))
        side.formats.append((rows, FORMATS[schema.type] if schema is not None else format_))
        if schema is not None and schema.id != UNKNOWN_ID:
            side.schema_ids.append((rows, schema.id))

    def _decode_exactly(
        self, rows: np.ndarray, payloads: pa.Array, headers: pa.Array | None, side: TypedSide
    ) -> None:
        groups: dict[tuple[str, int, str], tuple[Schema | None, pa.DataType, list[int], list[Any]]] = {}
        for row in rows[payloads.is_valid().to_numpy(zero_copy_only=False)[rows]].tolist():
            payload = bytes_at(payloads, row)
            pairs = pairs_at(headers, row)
            decoded = self._reader.read(self._topic, self._side, payload, pairs, self._plain)
            if decoded.reason is not None:
                side.wrong.append(PayloadFailure(row, decoded))
                continue
            label, type_, value = self._plain_value(decoded, payload, pairs)
            group = groups.setdefault(
                (label, id(decoded.schema), decoded.format), (decoded.schema, type_, [], [])
            )
            group[2].append(row)
            group[3].append(value)
        for (label, _, format_), (schema, type_, of, values) in groups.items():
            if label == JSON:
                label, column = self._json_column(values)
            else:
                column = pa.array(values, type_)
            self._add(side, label, schema, np.array(of, np.int64), column, format_)

    def _json_column(self, values: list[object]) -> tuple[str, pa.Array]:
        """Returns label and column of JSON values: structs where they are objects, else texts."""
        type_ = self.types.get(JSON) or json_columns.inferred(values)
        if type_ is None:
            return TEXT, pa.array(map(json_columns.text, values), pa.string())
        return JSON, json_columns.column(values, type_)

    def _plain_value(
        self, decoded: DecodedPayload, payload: bytes, headers: list[tuple[str, bytes | None]]
    ) -> tuple[str, pa.DataType, object]:
        """Returns label, Arrow type and value for ``pa.array`` of a payload that was decoded exactly."""
        if decoded.schema is not None and decoded.schema.type in (AVRO, PROTOBUF):
            index = (
                self._reader.index_of(self._side, payload, headers) if decoded.schema.type == PROTOBUF else ()
            )
            compiled = self._compiled(decoded.schema, index)
            if compiled is not None:
                return compiled[0], compiled[1].arrow_type, compiled[1].plain(decoded.value)
        if decoded.format == BYTES:
            return BYTES, pa.binary(), payload
        if decoded.format in ("text", "empty"):
            return TEXT, pa.string(), decoded.value
        if self._infers and decoded.format in ("json", "json-connect", FORMATS[JSON_SCHEMA]):
            return JSON, pa.string(), decoded.value
        return TEXT, pa.string(), json_columns.text(decoded.value)

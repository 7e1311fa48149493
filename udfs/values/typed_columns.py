"""The keys or the values of a topic as one typed column: split by schema, decoded, joined again.

Most payloads of a topic have one of a few schema ids: those of an id are decoded together by a compiled
reader (``avro_columns``, ``protobuf_columns``). All else goes the exact way, payload by payload
(``payloads``), and so does each payload that a compiled reader refuses, to learn why.

A topic may hold several types (RecordNameStrategy), or text beside them: then the column is a struct with a
field a type, of which one is not null. Versions of one subject, and schemas of one record name, are one type
(``merged_types``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.values import avro_schema, json_columns
from udfs.values.aliases import RenamedColumns
from udfs.values.avro_columns import AvroColumns
from udfs.values.merged_types import conformed, merged, own_name, safe_names, storable
from udfs.values.payload import PayloadError
from udfs.values.payloads import FORMATS, Decoded, PayloadReader
from udfs.values.protobuf import MessageReader
from udfs.values.protobuf_columns import ProtobufColumns
from udfs.values.registry import AVRO, JSON_SCHEMA, PROTOBUF, UNKNOWN_ID, Schema
from udfs.values.wire_formats import CONFLUENT, Framing, message_index

TEXT, BYTES, JSON = "text", "bytes", "json"
_ID_SIZE = 5  # the byte 0 and the id
# First bytes of framings (``wire_formats``); all but a container's head take more than 4 bytes
_CONTAINER = ord("O")
_FRAMINGS = (0, 1, 3, 0xC3, _CONTAINER)


class Columns(Protocol):
    """A compiled reader of payloads."""

    arrow_type: pa.DataType

    def decode(self, payloads: pa.BinaryArray, starts: np.ndarray) -> tuple[pa.Array, np.ndarray]: ...

    def plain(self, value: Any) -> Any:
        """A canonical value as ``pa.array`` takes it for ``arrow_type``."""


class Wrong(NamedTuple):
    """A payload that can't be decoded: its row, and what ``Decoded`` says of it."""

    row: int
    decoded: Decoded


@dataclass
class TypedSide:
    """The decoded payloads of n rows.

    parts: label, rows (int64[m], rising) and their values. schema_ids: rows and the id of their schema.
    formats: rows and what they are, as ``Decoded.format``.
    """

    rows: int
    parts: list[tuple[str, np.ndarray, pa.Array]] = field(default_factory=list)
    schema_ids: list[tuple[np.ndarray, int]] = field(default_factory=list)
    formats: list[tuple[np.ndarray, str]] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)

    def column(self, types: Mapping[str, pa.DataType]) -> pa.Array:
        """One array of all rows, as ``column_type(types)``; null where there is no value."""
        if len(types) < 2:
            return self._scattered(next(iter(types), TEXT), column_type(types))
        target = column_type(types)
        arrays = [self._scattered(label, one.type) for label, one in zip(types, target, strict=True)]
        valid = np.zeros(self.rows, np.bool_)
        for _, rows, _ in self.parts:
            valid[rows] = True
        return pa.StructArray.from_arrays(arrays, fields=list(target), mask=pa.array(~valid))

    def _scattered(self, label: str, target: pa.DataType) -> pa.Array:
        pieces = [(rows, conformed(values, target)) for name, rows, values in self.parts if name == label]
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
        """The schema id of each row, int32[n]; null for none."""
        found, known = np.zeros(self.rows, np.int32), np.zeros(self.rows, np.bool_)
        for rows, id_ in self.schema_ids:
            found[rows], known[rows] = id_, True
        return pa.array(found, mask=~known)


def column_type(types: Mapping[str, pa.DataType]) -> pa.DataType:
    """The type of the column of a side: that of its one label, else a struct with a field a label."""
    if not types:
        return pa.string()
    if len(types) == 1:
        return storable(next(iter(types.values())))
    names = safe_names(list(types))
    return pa.struct([pa.field(n, storable(one)) for n, one in zip(names, types.values(), strict=True)])


def add_type(types: dict[str, pa.DataType], label: str, type_: pa.DataType) -> str:
    """Adds a type under its label, merged with what is there; returns the label that it got.

    Where no type holds both it is the label with the name of the type behind.
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
    ) -> None:
        """infers: whether JSON becomes structs (``json_columns``); else it is text."""
        self._reader, self._topic, self._side, self._plain = reader, topic, side, plain
        self._known: dict[tuple[int, str], tuple[str, Columns] | None] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self._infers = infers
        self.types: dict[str, pa.DataType] = dict(types)

    def decode(self, payloads: pa.Array, headers: pa.Array | None = None) -> TypedSide:
        """payloads: binary[n]. headers: list<struct<key, value>>[n] as in ``records``; None for none."""
        payloads = payloads.combine_chunks() if isinstance(payloads, pa.ChunkedArray) else payloads
        found = TypedSide(len(payloads))
        one_by_one = np.zeros(len(payloads), np.bool_)
        ids = _confluent_ids(payloads)
        in_headers = _with_schema_header(headers, self._side, len(payloads))
        ids[in_headers] = -1
        for rows in _equal_rows(ids):
            id_ = int(ids[rows[0]])
            if id_ < 0 or not self._decode_id(id_, rows, payloads, found, one_by_one):
                one_by_one[rows] = True
        self._add_plain(payloads, in_headers, found, one_by_one)
        self._decode_exactly(np.flatnonzero(one_by_one), payloads, headers, found)
        found.wrong.sort()
        return found

    def _add_plain(
        self, payloads: pa.BinaryArray, in_headers: np.ndarray, found: TypedSide, one_by_one: np.ndarray
    ) -> None:
        """Takes texts, or bytes, of a topic's side that has no schema together, where no framing can be."""
        if self._plain not in (TEXT, BYTES) or self._reader.has_files:
            return
        rows = np.flatnonzero(one_by_one & ~in_headers & _unframed(payloads))
        values = payloads.take(pa.array(rows))
        if self._plain == TEXT:
            try:
                values = values.cast(pa.string())
            except pa.ArrowInvalid:  # some are not UTF-8: which, the exact way says
                return
        self._add(found, self._plain, None, rows, values, self._plain)
        one_by_one[rows] = False

    def _decode_id(
        self, id_: int, rows: np.ndarray, payloads: pa.Array, found: TypedSide, one_by_one: np.ndarray
    ) -> bool:
        """Decodes the payloads of a schema id together. Returns whether that can be done."""
        candidates = self._reader.candidates(self._topic, self._side, Framing(CONFLUENT, _ID_SIZE, id=id_))
        held = [one for one in candidates if not one.is_gone]
        if len({one.text for one in held}) != 1 or held[0].type not in (AVRO, PROTOBUF):
            return False
        taken = payloads.take(pa.array(rows))
        one_by_one[rows] = True
        for index, some, starts in _by_index(held[0], taken):
            compiled = self._compiled(held[0], index)
            if compiled is not None:
                label, columns = compiled
                values, failed = columns.decode(taken.take(pa.array(some)), starts)
                self._add(found, label, held[0], rows[some][~failed], values.filter(pa.array(~failed)))
                one_by_one[rows[some][~failed]] = False
        return True

    def _compiled(self, schema: Schema, index: tuple[int, ...]) -> tuple[str, Columns] | None:
        """The label and the compiled reader of a schema; None where it can't be compiled.

        index: of a message of Protobuf. What names none is not kept: there is no end of such lists.
        """
        try:
            message = self._reader.messages(schema)(index) if schema.type == PROTOBUF else None
        except PayloadError:
            return None
        place = (id(schema), message.full_name if message is not None else "")
        if place not in self._known:
            try:
                self._known[place] = self._compile(schema, message)
            except PayloadError:
                self._known[place] = None
        return self._known[place]

    def _compile(self, schema: Schema, message: MessageReader | None) -> tuple[str, Columns]:
        if self._reader.payload_rule(schema) is not None:
            raise PayloadError("encrypted", "each payload says by which key")
        if message is not None:
            return self._label(schema, message.full_name), ProtobufColumns(message)
        references = self._reader.references(schema)
        type_ = avro_schema.parse(schema.text, [text for _, text in references])
        name = type_.branch_name if type_.name else ""
        latest = self._reader.latest_with_aliases(schema)
        columns = AvroColumns(type_) if latest is None else RenamedColumns(type_, latest)
        return self._label(schema, name), columns

    def _label(self, schema: Schema, name: str) -> str:
        """The label of a schema's type: one for the versions of a subject, and for a record's name."""
        own = schema.name in (f"{self._topic}-{self._side}", f"{self._topic}-{name}", name)
        place = (schema.name, name if schema.type == PROTOBUF or not own else "")
        if place not in self._labels:
            self._labels[place] = name.rpartition(".")[2] or schema.type.lower()
        return self._labels[place]

    def _add(
        self,
        found: TypedSide,
        label: str,
        schema: Schema | None,
        rows: np.ndarray,
        values: pa.Array,
        format_: str = "",
    ) -> None:
        if not len(rows):
            return
        found.parts.append((add_type(self.types, label, values.type), rows, values))
        found.formats.append((rows, FORMATS[schema.type] if schema is not None else format_))
        if schema is not None and schema.id != UNKNOWN_ID:
            found.schema_ids.append((rows, schema.id))

    def _decode_exactly(
        self, rows: np.ndarray, payloads: pa.Array, headers: pa.Array | None, found: TypedSide
    ) -> None:
        groups: dict[tuple[str, int, str], tuple[Schema | None, pa.DataType, list[int], list[Any]]] = {}
        for row in rows.tolist():
            payload = payloads[row].as_py()
            if payload is None:
                continue
            pairs = _pairs(headers, row)
            one = self._reader.read(self._topic, self._side, payload, pairs, self._plain)
            if one.reason is not None:
                found.wrong.append(Wrong(row, one))
                continue
            label, type_, value = self._plain_value(one, payload, pairs)
            group = groups.setdefault((label, id(one.schema), one.format), (one.schema, type_, [], []))
            group[2].append(row)
            group[3].append(value)
        for (label, _, format_), (schema, type_, of, values) in groups.items():
            if label == JSON:
                label, column = self._json_column(values)
            else:
                column = pa.array(values, type_)
            self._add(found, label, schema, np.array(of, np.int64), column, format_)

    def _json_column(self, values: list[Any]) -> tuple[str, pa.Array]:
        """Label and column of JSON values: structs where they are objects, else texts."""
        type_ = self.types.get(JSON) or json_columns.inferred(values)
        if type_ is None:
            return TEXT, pa.array(map(json_columns.text, values), pa.string())
        return JSON, json_columns.column(values, type_)

    def _plain_value(
        self, one: Decoded, payload: bytes, headers: list[tuple[str, bytes | None]]
    ) -> tuple[str, pa.DataType, Any]:
        """Label, type and value of a payload that was decoded exactly, as ``pa.array`` takes them."""
        if one.schema is not None and one.schema.type in (AVRO, PROTOBUF):
            index = self._reader.index_of(self._side, payload, headers) if one.schema.type == PROTOBUF else ()
            compiled = self._compiled(one.schema, index)
            if compiled is not None:
                return compiled[0], compiled[1].arrow_type, compiled[1].plain(one.value)
        if one.format == BYTES:
            return BYTES, pa.binary(), payload
        if one.format in ("text", "empty"):
            return TEXT, pa.string(), one.value
        if self._infers and one.format in ("json", "json-connect", FORMATS[JSON_SCHEMA]):
            return JSON, pa.string(), one.value
        return TEXT, pa.string(), json_columns.text(one.value)


def _confluent_ids(payloads: pa.BinaryArray) -> np.ndarray:
    """int64[n]: the id of Confluent's framing, as its first bytes say; -1 for others."""
    n = len(payloads)
    ids = np.full(n, -1, np.int64)
    data = payloads.buffers()[2]
    if not n or data is None or data.size < _ID_SIZE:
        return ids
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + n + 1]
    raw = np.frombuffer(data, np.uint8)
    rows = np.flatnonzero(np.diff(offsets) >= _ID_SIZE)
    begins = offsets[:-1][rows].astype(np.int64)
    rows, begins = rows[raw[begins] == 0], begins[raw[begins] == 0]
    found = np.zeros(len(rows), np.int64)
    for at in range(1, _ID_SIZE):
        found = found << 8 | raw[begins + at]
    ids[rows] = np.where(found >> 31 == 0, found, -1)
    return ids


def _unframed(payloads: pa.BinaryArray) -> np.ndarray:
    """bool[n]: the payloads that are not null nor empty, and that no framing begins like."""
    first = np.full(len(payloads), -1, np.int64)
    sizes = pc.fill_null(pc.binary_length(payloads), 0).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(sizes)
    if len(rows):
        heads = pc.binary_slice(payloads.take(pa.array(rows)), 0, 1)
        first[rows] = np.frombuffer(heads.cast(pa.binary()).buffers()[2], np.uint8)[: len(rows)]
    is_short = (sizes > 0) & (sizes < _ID_SIZE) & (first != _CONTAINER)
    return is_short | ((first >= 0) & ~np.isin(first, _FRAMINGS))


def _equal_rows(numbers: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of each number, rising: one sort, however many numbers there are."""
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    yield from np.split(order, ends) if len(order) else ()


def _with_schema_header(headers: pa.Array | None, side: str, rows: int) -> np.ndarray:
    """bool[n]: the records with a header that may name a schema."""
    found = np.zeros(rows, np.bool_)
    if headers is None:
        return found
    headers = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
    keys = pc.struct_field(pc.list_flatten(headers), "key")
    names = pc.or_(pc.equal(keys, f"__{side}_schema_id"), pc.starts_with(keys, f"apicurio.{side}."))
    found[pc.list_parent_indices(headers).filter(names).to_numpy()] = True
    return found


def _pairs(headers: pa.Array | None, row: int) -> list[tuple[str, bytes | None]]:
    return pairs_of(None if headers is None else headers[row].as_py())


def pairs_of(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    """Headers as pairs of key and value; [] for null."""
    return [(one["key"], one["value"]) for one in headers or ()]


def _by_index(
    schema: Schema, payloads: pa.BinaryArray
) -> Iterator[tuple[tuple[int, ...], np.ndarray, np.ndarray]]:
    """Message indexes, the rows that have them, and where their values begin; rows without sound ones are in
    none.

    A schema of Avro has none: all rows, behind the id.
    """
    if schema.type != PROTOBUF:
        yield (), np.arange(len(payloads)), np.full(len(payloads), _ID_SIZE, np.int64)
        return
    heads = np.zeros((len(payloads), 2), np.int64)  # the first two bytes of the indexes, -1 past the end
    for at in range(2):
        byte = pc.binary_slice(payloads, _ID_SIZE + at, _ID_SIZE + at + 1)
        is_there = np.diff(np.frombuffer(byte.buffers()[1], np.int32)[byte.offset :][: len(payloads) + 1]) > 0
        heads[:, at] = -1
        heads[is_there, at] = np.frombuffer(byte.buffers()[2], np.uint8) if is_there.any() else ()
    is_short = (heads[:, 0] == 2) & (heads[:, 1] >= 0) & (heads[:, 1] < 0x80) & (heads[:, 1] & 1 == 0)
    known = np.where(heads[:, 0] == 0, 0, np.where(is_short, heads[:, 1] + 2, -1))
    for rows in _equal_rows(known):
        key = int(known[rows[0]])
        if key >= 0:  # 00 for the first message; 02 and one byte for another that is not nested
            start = _ID_SIZE + (1 if key == 0 else 2)
            yield (max(key - 2, 0) >> 1,), rows, np.full(len(rows), start, np.int64)
            continue
        groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for row in rows.tolist():
            with suppress(PayloadError):
                index, start = message_index(payloads[row].as_py(), _ID_SIZE)
                groups.setdefault(index, []).append((row, start))
        for index, places in groups.items():
            both = np.array(places, np.int64)
            yield index, both[:, 0], both[:, 1]

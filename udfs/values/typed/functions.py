"""The SQL functions of typed values: Arrow arrays of payloads to JSON texts, or to their formats.

They decode by the schemas of one registry, which the engine gives. Nothing here raises for bad bytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.format.schema import HEADER_TYPE
from kafka_log_lake.udfs.functions.typed import PAYLOAD, TOPIC_FORMAT
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormat
from kafka_log_lake.udfs.values.internal.topics import TOPICS
from kafka_log_lake.udfs.values.json.structs import text
from kafka_log_lake.udfs.values.schemas.compiled import compiled_texts
from kafka_log_lake.udfs.values.schemas.defaults import ColumnReader
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from kafka_log_lake.udfs.values.schemas.payload_arrays import bytes_at, rows_at
from kafka_log_lake.udfs.values.schemas.payload_heads import (
    ID_SIZE,
    are_numbers,
    confluent_ids,
    equal_rows,
    pairs_at,
)
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.plain_payloads import LOOK
from kafka_log_lake.udfs.values.schemas.registry import AVRO, Registry, Schema
from kafka_log_lake.udfs.values.schemas.topic_labels import topic_labels
from kafka_log_lake.udfs.values.schemas.wire_formats import CONFLUENT, PLAIN, Framing, framing_of
from kafka_log_lake.udfs.values.typed.columns import BYTES, JSON, TEXT, SideDecoder, TypedSide
from kafka_log_lake.udfs.values.typed.texts_and_looks import LookDecoder, TextDecoder

_CERTAINTIES = ("framing", "look", "schema")
_LOOKS = ("json", "json-connect", "text", "bytes", "empty", "number", "internal")


class TypedFunctions:
    """The SQL functions of typed values, by their names in SQL. Not for several threads at once."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._reader = registry, PayloadReader(registry)
        self._decoders: dict[tuple[type[SideDecoder], str, str, str], SideDecoder] = {}
        self._avro: dict[int, ColumnReader | None] = {}

    def kafka_value(self, values: pa.Array, topics: pa.Array) -> pa.Array:
        """Returns values in canonical JSON; null for null and for what can't be decoded."""
        return self.kafka_payload_json(topics, pa.repeat(VALUE, len(values)), values, None)

    def kafka_payload_json(
        self, topics: pa.Array, sides: pa.Array, payloads: pa.Array, headers: pa.Array | None
    ) -> pa.Array:
        """Returns keys or values in canonical JSON, as ``kafka_value``.

        headers: of their records, or None.
        """
        payloads = _whole(payloads).cast(pa.binary())
        headers = None if headers is None else _whole(headers).cast(HEADER_TYPE)
        parts: list[tuple[np.ndarray, pa.Array]] = []
        for (side, topic), rows in _places(sides, topics):
            decoder = self._decoder(TextDecoder, topic, side)
            some_headers = None if headers is None else rows_at(headers, rows)
            decoded = decoder.decode(rows_at(payloads, rows), some_headers)
            parts.append((rows, decoded.column({TEXT: pa.string()})))
        return _put_together(parts, len(payloads))

    def kafka_topic_format(self, topics: pa.Array, samples: pa.Array) -> pa.Array:
        """Returns what the keys and values of topics are, as TOPIC_FORMAT, by samples of their records.

        samples: lists of structs of key, value and headers. key, value: labels, as ``kafka_payload_as`` takes
        them. kind, certainty: of an application's topic (``TopicFormat``); null for others.
        """
        formats_of_topics = []
        for topic, sample in zip(_whole(topics).to_pylist(), _whole(samples).to_pylist(), strict=True):
            rows = [
                dict(zip((KEY, VALUE, "headers"), record.values(), strict=True)) for record in sample or ()
            ]
            labels = topic_labels(self._reader, topic, rows)
            formats = [
                format_
                for side in (VALUE, KEY)
                if (format_ := TopicFormat.of_label(labels[side])) is not None
            ]
            chosen = next(
                (format_ for format_ in formats if format_.kind != "plain"), next(iter(formats), None)
            )
            kind, certainty = (None, None) if chosen is None else (chosen.kind, chosen.certainty)
            formats_of_topics.append({"kind": kind, "certainty": certainty, **labels})
        return pa.array(formats_of_topics, TOPIC_FORMAT)

    def kafka_payload_as(
        self, labels: pa.Array, topics: pa.Array, sides: pa.Array, payloads: pa.Array
    ) -> pa.Array:
        """Returns keys or values in canonical JSON, read as labels say (``kafka_topic_format``).

        Null for null, and for what cannot be decoded.
        """
        columns = (_whole(column).to_pylist() for column in (labels, topics, sides, payloads))
        texts: list[str | None] = []
        for label, topic, side, payload in zip(*columns, strict=True):
            answer = None if payload is None else self._reader.read(topic, side, payload, (), label or "")
            texts.append(None if answer is None or answer.reason is not None else text(answer.value))
        return pa.array(texts, pa.string())

    def avro_to_json(self, payloads: pa.Array, ids: pa.Array) -> pa.Array:
        """Returns Avro payloads, framed or bare, as JSON by the schema id; null where it fails."""
        payloads, ids = _whole(payloads).cast(pa.binary()), _whole(ids)
        held = np.flatnonzero(ids.is_valid().to_numpy(zero_copy_only=False))
        parts = []
        for some in equal_rows(ids.drop_null().to_numpy(zero_copy_only=False)):
            rows = held[some]
            parts.append((rows, self._avro_of(ids[rows[0]].as_py(), payloads.take(pa.array(rows)))))
        return _put_together(parts, len(payloads))

    def schema_of(self, ids: pa.Array) -> pa.Array:
        """Returns the text of the schema with each id, the default context first; null for an unknown id."""
        known: dict[int | None, str | None] = {None: None}
        for id_ in pc.unique(ids).to_pylist():
            if id_ is not None:
                schemas = self._candidates(id_)
                known[id_] = schemas[0].text if schemas else None
        return pa.array([known[id_] for id_ in ids.to_pylist()], pa.string())

    def labels(self, topic: str, rows: pa.RecordBatch | pa.Table) -> dict[str, str]:
        """Returns what ``kafka_payload`` takes as ``plain`` for each side of a topic, by a sample of it.

        Of text and JSON each payload is looked at by itself.
        """
        if topic in TOPICS:
            return dict.fromkeys((KEY, VALUE), "")
        labels = topic_labels(self._reader, topic, rows.to_pylist())
        return {
            side: LOOK if label == BYTES else "" if label in (TEXT, JSON) else label
            for side, label in labels.items()
        }

    def kafka_payload(
        self,
        topics: pa.Array,
        sides: pa.Array,
        payloads: pa.Array,
        headers: pa.Array,
        plain: str = "",
    ) -> pa.Array:
        """Returns format, schema id, certainty and error reason of keys or values, as PAYLOAD.

        certainty: schema (a schema consumes every byte), framing (only the first bytes, or a header, say so),
        look (no framing: the bytes look like it). plain: as of ``SideDecoder``, for all of them.
        """
        if payloads.null_count:  # a log without keys is looked at once, not row by row
            held = payloads.is_valid()
            columns = [column.filter(held) for column in (topics, sides, payloads, headers)]
            decoded = self.kafka_payload(columns[0], columns[1], columns[2], columns[3], plain)
            return decoded.take(_places_of(np.flatnonzero(held), len(payloads)))
        payloads, headers = _whole(payloads).cast(pa.binary()), _whole(headers).cast(HEADER_TYPE)
        looks = _Looks(len(payloads))
        for (side, topic), rows in _places(sides, topics):
            if topic in TOPICS:
                looks.put(rows, "internal")
            else:
                some, of_some = rows_at(payloads, rows), rows_at(headers, rows)
                decoded = self._decoder(LookDecoder, topic, side, plain).decode(some, of_some)
                looks.add(side, rows, some, of_some, decoded)
        return looks.array()

    def _decoder(self, kind: type[SideDecoder], topic: str, side: str, plain: str = "") -> SideDecoder:
        place = (kind, topic, side, plain)
        if place not in self._decoders:
            self._decoders[place] = kind(self._reader, topic, side, plain)
        return self._decoders[place]

    def _candidates(self, id_: int) -> list[Any]:
        schemas = self._reader.candidates("", VALUE, Framing(CONFLUENT, 5, id=id_))
        return sorted(schemas, key=lambda schema: schema.is_gone)

    def _avro_of(self, id_: int, payloads: pa.BinaryArray) -> pa.Array:
        """Returns payloads as JSON texts by the schemas of an id; null for those that no schema consumes."""
        framed = (confluent_ids(payloads) == id_) & (id_ >= 0)
        texts = pa.nulls(len(payloads), pa.string())
        for schema in self._candidates(id_):
            if schema.type != AVRO:
                continue
            for start in (5, 0):  # bytes that begin with the id hardly do so by chance
                left = texts.is_null().to_numpy(zero_copy_only=False) & (framed if start else True)
                rows = np.flatnonzero(left & payloads.is_valid().to_numpy(zero_copy_only=False))
                if len(rows):
                    exact = self._texts_of(schema, payloads.take(pa.array(rows)), start)
                    mask = np.zeros(len(payloads), np.bool_)
                    mask[rows] = True
                    texts = pc.replace_with_mask(texts, pa.array(mask), exact)
        return texts

    def _texts_of(self, schema: Schema, payloads: pa.BinaryArray, start: int) -> pa.Array:
        """Returns payloads as JSON texts by one schema: by column, and those that fail there one by one."""
        if id(schema) not in self._avro:
            try:
                self._avro[id(schema)] = compiled_texts(self._reader, schema, None)
            except PayloadError:
                self._avro[id(schema)] = None
        columns = self._avro[id(schema)]
        if columns is not None:
            texts, failed = columns.decode(payloads, np.full(len(payloads), start, np.int64))
        else:
            texts, failed = pa.nulls(len(payloads), pa.string()), np.ones(len(payloads), np.bool_)
        read, rows = self._reader.reader(schema), np.flatnonzero(failed)
        exact: list[str | None] = []
        for payload in payloads.take(pa.array(rows)).to_pylist():
            try:
                exact.append(text(read(payload, Framing(PLAIN, start))))
            except PayloadError:
                exact.append(None)
        return pc.replace_with_mask(texts, pa.array(failed), pa.array(exact, pa.string()))


@cache
def typed_functions(registry: bytes) -> TypedFunctions:
    """Returns the functions by the schemas of a pickled ``Registry``; a worker keeps them."""
    known: Registry = pickle.loads(registry)
    return TypedFunctions(known)


class _Looks:
    """The columns of PAYLOAD for n rows, while they are filled."""

    def __init__(self, n: int) -> None:
        self._formats, self._reasons = _NameColumn(n), _NameColumn(n)
        self._ids, self._has_id = np.zeros(n, np.int32), np.zeros(n, np.bool_)

    def put(self, rows: np.ndarray, format_: str) -> None:
        self._formats.put(rows, format_)

    def add(
        self, side: str, rows: np.ndarray, payloads: pa.BinaryArray, headers: pa.Array, typed_side: TypedSide
    ) -> None:
        for some, format_ in typed_side.formats:
            self.put(rows[some], format_)
            if format_ == "bytes":
                self.put(rows[some[are_numbers(payloads)[some]]], "number")
        for some, id_ in typed_side.schema_ids:
            self._ids[rows[some]], self._has_id[rows[some]] = id_, True
        for at, wrong in typed_side.wrong:
            row = rows[at]
            self._formats.put(row, wrong.format)
            self._reasons.put(row, wrong.reason or "")
            named = wrong.schema_id
            if wrong.reason == "unknown_id":
                named = framing_of(side, bytes_at(payloads, at, ID_SIZE), pairs_at(headers, at)).id
            self._ids[row], self._has_id[row] = named or 0, named is not None

    def array(self) -> pa.Array:
        looks = np.array([*(name in _LOOKS for name in self._formats.names), True])  # -1 is the last one
        certainty = np.where(self._reasons.codes >= 0, 0, np.where(looks[self._formats.codes], 1, 2))
        columns = (
            self._formats.array(),
            pa.array(self._ids, mask=~self._has_id),
            # an array of a list is made here alone: for the first one in a process pyarrow imports pandas
            pa.array(_CERTAINTIES, pa.string()).take(pa.array(certainty)),
            self._reasons.array(),
        )
        return pa.StructArray.from_arrays(columns, fields=list(PAYLOAD))


class _NameColumn:
    """A column of n strings with few distinct values.

    codes: int32[n], indexes into ``names``; -1 for null, as at first.
    """

    def __init__(self, n: int) -> None:
        self.codes, self.names = np.full(n, -1, np.int32), dict[str, int]()

    def put(self, rows: object, name: str) -> None:
        self.codes[rows] = self.names.setdefault(name, len(self.names))

    def array(self) -> pa.Array:
        return pa.array([*self.names], pa.string()).take(pa.array(self.codes, mask=self.codes < 0))


def _whole(column: object) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # one is copied, too


def _places(sides: pa.Array, topics: pa.Array) -> Iterator[tuple[tuple[str, str], np.ndarray]]:
    """Yields ((side, topic), their rows) for each distinct pair."""
    coded = [_coded(column) for column in (sides, topics)]
    side_of, topic_of = (column.indices.to_numpy(zero_copy_only=False).astype(np.int64) for column in coded)
    names = [column.dictionary.to_pylist() for column in coded]
    if len(names[0]) == len(names[1]) == 1:
        yield (names[0][0] or VALUE, names[1][0]), np.arange(len(topics))
        return
    for rows in equal_rows(side_of << 32 | topic_of):
        first = rows[0]
        yield (names[0][side_of[first]] or VALUE, names[1][topic_of[first]]), rows


def _coded(texts: Any) -> pa.DictionaryArray:
    texts = _whole(texts)
    texts = texts if pa.types.is_string(texts.type) else texts.cast(pa.string())
    return (texts.fill_null("") if texts.null_count else texts).dictionary_encode()


def _put_together(parts: Sequence[tuple[np.ndarray, pa.Array]], n: int) -> pa.Array:
    """Returns texts[n] of parts (rows, their texts); null for rows of no part."""
    if not parts:
        return pa.nulls(n, pa.string())
    rows = np.concatenate([rows for rows, _ in parts])
    return pa.concat_arrays([texts for _, texts in parts]).take(_places_of(rows, n))


def _places_of(rows: np.ndarray, n: int) -> pa.Array:
    """Returns for each of n rows its index in ``rows``; null for rows that are not in it."""
    places = np.full(n, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return pa.array(places, mask=places < 0)

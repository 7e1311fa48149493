"""Arrow arrays of payloads -> JSON, and what they are: the SQL functions of typed values.

They decode by the schemas of one registry, which the engine gives. Nothing here raises for bad bytes.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from udfs.format.schema import HEADER_TYPE
from udfs.functions.typed import PAYLOAD
from udfs.values.internal_topics import TOPICS
from udfs.values.payload import PayloadError
from udfs.values.payloads import VALUE, Decoded, PayloadReader
from udfs.values.registry import AVRO, Registry
from udfs.values.typed_columns import SideDecoder, TypedSide, pairs_of
from udfs.values.wire_formats import CONFLUENT, PLAIN, Framing

_NUMBER_BYTES = (4, 8)
_LOOKS = ("json", "json-connect", "text", "bytes", "empty", "number", "internal")


class TypedFunctions:
    """The functions, by their names in SQL. Not for several threads at once."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._reader = registry, PayloadReader(registry)
        self._decoders: dict[tuple[str, str], SideDecoder] = {}

    def kafka_value(self, values: pa.Array, topics: pa.Array) -> pa.Array:
        """A topic's value in canonical JSON; null for null and for what can't be decoded."""
        pairs = zip(values.to_pylist(), topics.to_pylist(), strict=True)
        return pa.array([self._json(topic or "", VALUE, value, []) for value, topic in pairs], pa.string())

    def kafka_payload_json(
        self, topics: pa.Array, sides: pa.Array, payloads: pa.Array, headers: pa.Array
    ) -> pa.Array:
        """The same of a key or a value, with the headers of its record."""
        columns = (topics.to_pylist(), sides.to_pylist(), payloads.to_pylist(), headers.to_pylist())
        return pa.array(
            [self._json(t or "", s or VALUE, p, pairs_of(h)) for t, s, p, h in zip(*columns, strict=True)],
            pa.string(),
        )

    def avro_to_json(self, payloads: pa.Array, ids: pa.Array) -> pa.Array:
        """Avro's bytes, with or without Confluent's framing, by the schema of an id; null where it fails."""
        pairs = zip(payloads.to_pylist(), ids.to_pylist(), strict=True)
        return pa.array([self._avro(payload, id_) for payload, id_ in pairs], pa.string())

    def schema_of(self, ids: pa.Array) -> pa.Array:
        """The text of the schema with an id, of the default context first; null for an unknown id."""
        known: dict[int | None, str | None] = {None: None}
        for id_ in pc.unique(ids).to_pylist():
            if id_ is not None:
                found = self._candidates(id_)
                known[id_] = found[0].text if found else None
        return pa.array([known[id_] for id_ in ids.to_pylist()], pa.string())

    def kafka_payload(
        self, topics: pa.Array, sides: pa.Array, payloads: pa.Array, headers: pa.Array
    ) -> pa.Array:
        """What keys or values are, as PAYLOAD.

        certainty: schema (a schema consumes every byte), framing (only the first bytes, or a header, say so),
        look (no framing: the bytes look like it).
        """
        payloads, headers = _whole(payloads).cast(pa.binary()), _whole(headers).cast(HEADER_TYPE)
        places = zip(sides.to_pylist(), topics.to_pylist(), strict=True)
        rows_of: dict[tuple[str, str], list[int]] = {}
        for row, place in enumerate(places):
            rows_of.setdefault(place, []).append(row)
        looks = _Looks(len(payloads))
        for (side, topic), rows in rows_of.items():
            at = pa.array(rows)
            some = payloads.take(at)
            if topic in TOPICS:
                held = np.flatnonzero(some.is_valid().to_numpy(zero_copy_only=False))
                looks.put(looks.formats, np.array(rows), held, "internal")
            else:
                looks.add(np.array(rows), some, self._decoder(topic, side).decode(some, headers.take(at)))
        return looks.array()

    def _decoder(self, topic: str, side: str) -> SideDecoder:
        if (topic, side) not in self._decoders:
            self._decoders[topic, side] = SideDecoder(self._reader, topic, side, "")
        return self._decoders[topic, side]

    def _json(self, topic: str, side: str, payload: bytes | None, headers: Any) -> str | None:
        if payload is None:
            return None
        one: Decoded = self._reader.read(topic, side, payload, headers)
        return None if one.reason is not None else _text(one.value)

    def _candidates(self, id_: int) -> list[Any]:
        found = self._reader.candidates("", VALUE, Framing(CONFLUENT, 5, id=id_))
        return sorted(found, key=lambda one: one.is_gone)

    def _avro(self, payload: bytes | None, id_: int | None) -> str | None:
        if payload is None or id_ is None:
            return None
        starts = (0, 5) if _framed_id(payload) == id_ else (0,)
        for schema in self._candidates(id_):
            for start in starts if schema.type == AVRO else ():
                try:
                    return _text(self._reader.reader(schema)(payload, Framing(PLAIN, start)))
                except PayloadError:
                    continue
        return None


class _Looks:
    """PAYLOAD of n rows, while it is filled."""

    def __init__(self, n: int) -> None:
        self.formats: list[str | None] = [None] * n
        self._ids: list[int | None] = [None] * n
        self._reasons: list[str | None] = [None] * n

    @staticmethod
    def put(column: list[Any], rows: np.ndarray, some: np.ndarray, value: Any) -> None:
        for row in rows[some].tolist():
            column[row] = value

    def add(self, rows: np.ndarray, payloads: pa.Array, found: TypedSide) -> None:
        for some, format_ in found.formats:
            self.put(self.formats, rows, some, format_)
            if format_ == "bytes":
                numbers = [at for at in some.tolist() if _is_number(payloads[at].as_py())]
                self.put(self.formats, rows, np.array(numbers, np.int64), "number")
        for some, id_ in found.schema_ids:
            self.put(self._ids, rows, some, id_)
        for at, wrong in found.wrong:
            row = int(rows[at])
            self.formats[row], self._reasons[row] = wrong.format, wrong.reason
            self._ids[row] = wrong.schema.id if wrong.schema is not None else _framed_id(payloads[at].as_py())

    def array(self) -> pa.Array:
        looks = [
            None if one is None else "framing" if reason else "look" if one in _LOOKS else "schema"
            for one, reason in zip(self.formats, self._reasons, strict=True)
        ]
        columns = (self.formats, self._ids, looks, self._reasons)
        arrays = [pa.array(one, field.type) for one, field in zip(columns, PAYLOAD, strict=True)]
        mask = pa.array([one is None for one in self.formats], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(PAYLOAD), mask=mask)


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _framed_id(payload: bytes) -> int | None:
    """The id that Confluent's framing has; null without it."""
    if len(payload) < 5 or payload[0]:
        return None
    return int.from_bytes(payload[1:5], "big", signed=True)


def _is_number(payload: bytes) -> bool:
    """Whether bytes look like an integer of 4 or 8 bytes, big-endian, that is not large."""
    return len(payload) in _NUMBER_BYTES and payload[0] in (0, 0xFF)

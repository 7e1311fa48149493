"""Decoders of a side that keep no typed values: for its formats alone, or as JSON texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.values.apps.payloads import SideReader
from kafka_log_lake.udfs.values.json import structs as json_columns
from kafka_log_lake.udfs.values.protobuf.payload import MessageReader
from kafka_log_lake.udfs.values.schemas.compiled import compiled_texts
from kafka_log_lake.udfs.values.schemas.defaults import ColumnReader
from kafka_log_lake.udfs.values.schemas.payload import DecodedPayload
from kafka_log_lake.udfs.values.schemas.payload_arrays import rows_at
from kafka_log_lake.udfs.values.schemas.registry import Schema
from kafka_log_lake.udfs.values.typed.columns import JSON, TEXT, SideDecoder, TypedSide

_ESCAPED = r'["\\\x00-\x1f]'  # in a text of JSON


class LookDecoder(SideDecoder):
    """Finds the formats of payloads, and keeps no value of texts, bytes and those decoded exactly."""

    def _add_alike(
        self, side: TypedSide, plain: str, rows: np.ndarray, payloads: pa.Array, one_by_one: np.ndarray
    ) -> None:
        if plain == JSON:
            super()._add_alike(side, plain, rows, payloads, one_by_one)
        elif len(rows):
            side.formats.append((rows, plain))
            one_by_one[rows] = False

    def _column(self, reader: SideReader, values: Sequence[object]) -> pa.Array:
        return pa.nulls(len(values), reader.type)

    def _plain_value(
        self, decoded: DecodedPayload, payload: bytes, headers: list[tuple[str, bytes | None]]
    ) -> tuple[str, pa.DataType, object]:
        return TEXT, pa.string(), None


class TextDecoder(SideDecoder):
    """Decodes into canonical JSON texts."""

    def _add_alike(
        self, side: TypedSide, plain: str, rows: np.ndarray, payloads: pa.Array, one_by_one: np.ndarray
    ) -> None:
        if plain == JSON:
            super()._add_alike(side, plain, rows, payloads, one_by_one)
        if plain == TEXT and len(rows):  # what JSON escapes, and bytes, are for the exact way
            values = rows_at(payloads, rows).cast(pa.string())
            taken = np.flatnonzero(pc.invert(pc.match_substring_regex(values, _ESCAPED)))
            made = pc.binary_join_element_wise('"', rows_at(values, taken), '"', "")
            self._add(side, TEXT, None, rows[taken], made, TEXT)
            one_by_one[rows[taken]] = False

    def _compile(
        self, schema: Schema, message: MessageReader | None, index: tuple[int, ...]
    ) -> tuple[str, ColumnReader]:
        return TEXT, compiled_texts(self._reader, schema, message)

    def _plain_value(
        self, decoded: DecodedPayload, payload: bytes, headers: list[tuple[str, bytes | None]]
    ) -> tuple[str, pa.DataType, object]:
        return TEXT, pa.string(), json_columns.text(decoded.value)

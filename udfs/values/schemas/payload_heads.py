"""Reads what the first bytes of a column of payloads, and the headers next to it, say of its schemas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.kernels import texts
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from kafka_log_lake.udfs.values.schemas.payload_arrays import offsets_of
from kafka_log_lake.udfs.values.schemas.registry import PROTOBUF, Schema
from kafka_log_lake.udfs.values.schemas.wire_formats import message_index

ID_SIZE = 5  # the byte 0 and the id
# First bytes of framings (``wire_formats``); all but a container's head take more than 4 bytes
_CONTAINER = ord("O")
_IS_FRAMING = np.zeros(256, np.bool_)
_IS_FRAMING[[0, 1, 3, 0xC3, _CONTAINER]] = True


def confluent_ids(payloads: pa.BinaryArray) -> np.ndarray:
    """Returns int64[n]: the schema id by Confluent's framing; -1 for payloads that are not framed so."""
    ids = np.full(len(payloads), -1, np.int64)
    data = payloads.buffers()[2]
    if data is not None and data.size >= ID_SIZE:
        texts.framed_ids(np.frombuffer(data, np.uint8), offsets_of(payloads), ids)
    return ids


def unframed(payloads: pa.BinaryArray) -> np.ndarray:
    """Returns bool[n]: the payloads, not null nor empty, whose first bytes are those of no framing."""
    sizes, first = _heads(payloads)
    is_short = (sizes > 0) & (sizes < ID_SIZE) & (first != _CONTAINER)
    return is_short | ((first >= 0) & ~_IS_FRAMING[first])


def are_numbers(payloads: pa.BinaryArray) -> np.ndarray:
    """Returns bool[n]: the payloads that look like a small big-endian integer of 4 or 8 bytes."""
    sizes, first = _heads(payloads)
    return ((sizes == 4) | (sizes == 8)) & ((first == 0) | (first == 0xFF))


def _heads(payloads: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Returns int32[n] sizes, 0 for null, and int16[n] first bytes, -1 for none."""
    sizes = np.diff(offsets_of(payloads))
    if payloads.null_count:
        sizes[payloads.is_null().to_numpy(zero_copy_only=False)] = 0
    first = np.full(len(payloads), -1, np.int16)
    rows = np.flatnonzero(sizes)
    if len(rows):
        first[rows] = np.frombuffer(payloads.buffers()[2], np.uint8)[offsets_of(payloads)[:-1][rows]]
    return sizes, first


def looks(payloads: pa.BinaryArray, rows: np.ndarray) -> np.ndarray:
    """Returns uint8[n]: what the payloads at ``rows`` (int64[]) look like (``texts.looks``); else LEFT.

    rows: of payloads that no framing begins like.
    """
    kinds = np.zeros(len(payloads), np.uint8)
    if len(rows):
        texts.looks(np.frombuffer(payloads.buffers()[2], np.uint8), offsets_of(payloads), rows, kinds)
    return kinds


def equal_rows(numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the rows of each distinct number, rising; sorts once."""
    if len(numbers) and (numbers == numbers[0]).all():
        yield np.arange(len(numbers))
        return
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    yield from np.split(order, ends) if len(order) else ()


def with_schema_header(headers: pa.Array | None, side: str, rows: int) -> np.ndarray:
    """Returns bool[n]: the records with a header that may name a schema."""
    has_schema = np.zeros(rows, np.bool_)
    if headers is None or headers.null_count == rows:
        return has_schema
    headers = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
    offsets = offsets_of(headers)
    if offsets[0] == offsets[-1]:
        return has_schema
    keys = pc.struct_field(pc.list_flatten(headers), "key")
    names = pc.or_(pc.equal(keys, f"__{side}_schema_id"), pc.starts_with(keys, f"apicurio.{side}."))
    has_schema[pc.list_parent_indices(headers).filter(names).to_numpy()] = True
    return has_schema


def pairs_at(headers: pa.Array | None, row: int) -> list[tuple[str, bytes | None]]:
    """Returns the headers of a row as pairs of key and value; [] where there are none."""
    return pairs_of(None if headers is None else headers[row].as_py())


def pairs_of(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    """Returns headers as pairs of key and value; [] for null."""
    return [(header["key"], header["value"]) for header in headers or ()]


def by_index(
    schema: Schema, payloads: pa.BinaryArray
) -> Iterator[tuple[tuple[int, ...], np.ndarray, np.ndarray]]:
    """Yields message indexes, the rows that have them (int64[]), and the byte where their values begin.

    Rows without sound indexes are left out. A schema of Avro has no indexes: it gives all rows, with the byte
    after the id.
    """
    if schema.type != PROTOBUF:
        yield (), np.arange(len(payloads)), np.full(len(payloads), ID_SIZE, np.int64)
        return
    heads = np.zeros((len(payloads), 2), np.int64)  # the first two bytes of the indexes, -1 past the end
    for at in range(2):
        byte = pc.binary_slice(payloads, ID_SIZE + at, ID_SIZE + at + 1)
        is_there = np.diff(offsets_of(byte)) > 0
        heads[:, at] = -1
        heads[is_there, at] = np.frombuffer(byte.buffers()[2], np.uint8) if is_there.any() else ()
    is_short = (heads[:, 0] == 2) & (heads[:, 1] >= 0) & (heads[:, 1] < 0x80) & (heads[:, 1] & 1 == 0)
    known = np.where(heads[:, 0] == 0, 0, np.where(is_short, heads[:, 1] + 2, -1))
    for rows in equal_rows(known):
        key = int(known[rows[0]])
        if key >= 0:  # 00 for the first message; 02 and one byte for another that is not nested
            start = ID_SIZE + (1 if key == 0 else 2)
            yield (max(key - 2, 0) >> 1,), rows, np.full(len(rows), start, np.int64)
            continue
        groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for row in rows.tolist():
            with suppress(PayloadError):
                index, start = message_index(payloads[row].as_py(), ID_SIZE)
                groups.setdefault(index, []).append((row, start))
        for index, places in groups.items():
            both = np.array(places, np.int64)
            yield index, both[:, 0], both[:, 1]

"""Converts columns of JSON at once, as far as nothing in them is out of the ordinary.

Other payloads go through the exact way (``json.parse``, ``json.structs``), which alone judges them. What is
converted here must equal what the exact way returns.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from kafka_log_lake.udfs.kernels.json_texts import LEAST_REAL, canonical_texts
from kafka_log_lake.udfs.values.apps.connect import ENVELOPE
from kafka_log_lake.udfs.values.json.parse import parse_json
from kafka_log_lake.udfs.values.json.structs import EXACT, text
from kafka_log_lake.udfs.values.schemas.payload import MAX_DEPTH, PayloadError
from kafka_log_lake.udfs.values.schemas.payload_arrays import payload_spans

_MOST_NAMES = 512  # of the open objects of a JSON text together
_CHUNK = 512  # rows that are left together
_MOST_BYTES = 1 << 26  # that Arrow's reader gets at a time


def texts(payloads: pa.BinaryArray, is_framed: bool) -> pa.StringArray:
    """Returns each payload as canonical JSON text; null for null and for what is no JSON.

    is_framed: whether framing says that the payloads are JSON; if not, an envelope of Kafka Connect is null
    too.
    """
    data, starts, ends = payload_spans(payloads, np.zeros(len(payloads), np.int64))
    out = np.empty(max(1, payloads.total_values_length), np.uint8)
    offsets = np.empty(len(payloads) + 1, np.int32)
    names, levels = np.empty((_MOST_NAMES, 3), np.int64), np.empty(MAX_DEPTH + 1, np.int64)
    reals = np.empty((len(out) // LEAST_REAL + 2, 2), np.int64)
    count = canonical_texts(data, starts, ends, out, offsets, names, levels, reals)
    is_taken = np.diff(offsets) > 0
    if count:
        begins = reals[:count][~_are_shortest(out, reals[:count]), 0]
        is_taken[np.searchsorted(offsets, begins, side="right") - 1] = False
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    made = pa.Array.from_buffers(pa.string(), len(payloads), buffers)
    for name in () if is_framed else ENVELOPE:  # an envelope begins with one of its members
        is_taken &= ~pc.starts_with(made, f'{{"{name}":').to_numpy(zero_copy_only=False)
    if is_taken.all():
        return made
    others = pa.array(
        (_text(payload, is_framed) for payload in payloads.filter(~is_taken).to_pylist()), pa.string()
    )
    return pc.replace_with_mask(made, pa.array(~is_taken), others)


def _are_shortest(out: np.ndarray, reals: np.ndarray) -> np.ndarray:
    """Returns bool[n]: whether each real is written with the fewest digits that give the same double.

    reals: int64[n, 2], begin and end of their digits in ``out``.
    """
    sizes = reals[:, 1] - reals[:, 0]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    digits = out[np.arange(offsets[-1]) + np.repeat(reals[:, 0] - offsets[:-1], sizes)]
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(digits)]
    texts = pa.Array.from_buffers(pa.string(), len(reals), buffers)
    same: np.ndarray = pc.equal(texts.cast(pa.float64()).cast(pa.string()), texts).to_numpy(False)
    return same


def _text(payload: bytes | None, is_framed: bool) -> str | None:
    try:
        value = parse_json(payload) if payload else None
    except PayloadError:
        return None
    is_envelope = isinstance(value, dict) and not is_framed and value.keys() == ENVELOPE
    return None if value is None or is_envelope else text(value)


def structs(payloads: pa.BinaryArray, type_: pa.StructType) -> tuple[pa.Array, np.ndarray]:
    """Converts objects to a type of ``json.structs.inferred`` as far as Arrow's reader of JSON takes them.

    payloads: binary[n], none of them null. Returns m structs, and int64[m], the rows of ``payloads`` that
    they come from.
    """
    fields = pa.schema(list(type_)[:-1])
    is_taken = np.zeros(len(payloads), np.bool_)
    batches: list[pa.RecordBatch] = []
    if not ENVELOPE.issubset(fields.names):
        for step in (len(payloads), _CHUNK):
            for at in range(0, len(payloads) if not batches else 0, max(step, 1)):
                some = payloads.slice(at, step)
                made = _read(some, fields)
                if made is not None:
                    batches.append(made)
                    is_taken[at : at + len(some)] = True
    columns = pa.Table.from_batches(batches, fields).combine_chunks()
    rest = pa.nulls(len(columns), pa.string())
    arrays = [*(column.combine_chunks() for column in columns.columns), rest]
    return pa.StructArray.from_arrays(arrays, fields=list(type_)), np.flatnonzero(is_taken)


def _read(payloads: pa.BinaryArray, fields: pa.Schema) -> pa.RecordBatch | None:
    """Reads one object a payload; None where Arrow's reader can't take all of them, or not as they are."""
    if payloads.total_values_length > _MOST_BYTES:
        return None
    # each is an object, or several: then the count is wrong
    if not pc.all(pc.and_(pc.starts_with(payloads, b"{"), pc.ends_with(payloads, b"}"))).as_py():
        return None
    data = b"\n".join([*payloads.to_pylist(), b""])
    if not _is_utf8(data):
        return None
    try:
        table = arrow_json.read_json(
            pa.BufferReader(data),
            arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            arrow_json.ParseOptions(fields, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid:
        return None
    if len(table) != len(payloads) or not all(map(_is_exact, table.columns)):
        return None
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_exact(column: pa.ChunkedArray) -> bool:
    """Says whether reals hold what was written: no integer that is rounded, none above 2^53, no -0."""
    type_ = column.type
    if pa.types.is_struct(type_):
        return all(map(_is_exact, column.flatten()))
    if pa.types.is_list(type_):
        return _is_exact(pa.chunked_array([chunk.flatten() for chunk in column.chunks], type_.value_type))
    if not pa.types.is_float64(type_):
        return True
    numbers = column.drop_null().to_numpy()
    return bool(((np.abs(numbers) < EXACT) & ((numbers != 0) | ~np.signbit(numbers))).all())

"""Reads columns of keys and values that a plain serde wrote: numbers, texts and bytes without parts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.values.apps.payloads import SideReader
from kafka_log_lake.udfs.values.schemas.payload_arrays import offsets_of, rows_at

_BY_COLUMN = ("long", "integer", "short", "double", "float", "text", "bytes")


def plain_column(reader: SideReader, payloads: pa.BinaryArray) -> tuple[np.ndarray, pa.Array]:
    """Reads what has a plain serde by column. Returns rows (int64[m], rising) and their values.

    The other rows are for ``PayloadReader.read``, which says what is wrong with them.
    """
    none = np.zeros(0, np.int64), pa.array([], reader.type)
    if reader.name not in _BY_COLUMN or not len(payloads):
        return none
    rows = np.flatnonzero(payloads.is_valid())
    if reader.name in ("text", "bytes"):
        try:
            return rows, rows_at(payloads, rows).cast(reader.type)
        except pa.ArrowInvalid:  # some are not UTF-8
            return none
    number = np.dtype(reader.type.to_pandas_dtype())
    rows = rows[np.diff(offsets_of(payloads))[rows] == number.itemsize]
    if not len(rows):
        return none
    taken = rows_at(payloads, rows)
    begin = int(offsets_of(taken)[0])
    held = np.frombuffer(taken.buffers()[2], number.newbyteorder(">"), len(rows), begin)
    return rows, pa.array(held.astype(number), reader.type)

"""Reads offsets and keys from bytes that no checksum proves: the content of rows of ``quarantine``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.decoder.kafka_reader import Refused, records_of
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.functions.columns import binary_column
from kafka_log_lake.udfs.kernels.framing import BATCH, batch_size, read_header

MOST_RECORDS = 1_000_000  # of one value, which becomes one row
_RECORD = pa.struct([("offset", pa.int64()), ("key", pa.binary()), ("is_tombstone", pa.bool_())])


def kafka_unproven_records(column: pa.Array) -> pa.Array:
    """Returns for each value a list of the records that can be read in it, as structs.

    A struct has the offset, the key, and whether the value is null. Batches are read one after the other,
    whatever their checksums say, each up to its first fault, so any byte may be wrong. Null for null; an
    empty list where nothing can be read.
    """
    values = binary_column("kafka_unproven_records", column)
    results: list[list[dict[str, Any]] | None] = []
    for number, is_valid in enumerate(values.valid.tolist()):
        begin, end = values.offsets[number : number + 2].tolist()
        results.append(list(_records(values.data[begin:end])) if is_valid else None)
    return pa.array(results, pa.list_(_RECORD))


def _records(data: np.ndarray) -> Iterator[dict[str, object]]:
    at, read = 0, 0
    while at + f.HEADER_UP_TO_MAGIC <= len(data):
        size = int(batch_size(data, at, len(data)))
        is_v2 = data[at + f.MAGIC_POS] == f.MAGIC_V2
        if size < (f.V2_HEADER_SIZE if is_v2 else f.V1_KEY_LENGTH_POS) or at + size > len(data):
            return
        row = np.zeros(1, dtype=BATCH)
        read_header(data, at, size, at, row[0])
        is_control = is_v2 and bool(row["attributes"][0] & f.CONTROL_MASK)
        try:
            for record in records_of(row[0], data[at : at + size].tobytes(), MAX_BATCH_UNCOMPRESSED):
                read += 1
                if read > MOST_RECORDS:
                    return
                if not is_control:
                    key, is_tombstone = record.key, record.value is None
                    yield {"offset": record.offset, "key": key, "is_tombstone": is_tombstone}
        except Refused:
            pass  # the next batch may be sound: its length field led here
        at += size

"""Reads the records of a damaged batch with the cause of the damage undone; they are not stored so."""

from __future__ import annotations

from typing import Any

import numpy as np

from kafka_log_lake.pipelines.cli.generated import base64_text, header_pairs, utf8_text
from kafka_log_lake.pipelines.inspect_batch.fields import shown_bytes
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.storage.byte_source import ChunkSource

_COLUMNS = ("offset", "timestamp_ms", "key", "value", "headers", "control_type")


def mended_records(batch: bytes, limit: int, most: int) -> list[dict[str, object]]:
    """Returns the first records, at most ``most``, of a batch whose bytes are already corrected.

    limit: bytes that the batch may expand to. Key, value and the values of headers are bytes, or None.
    """
    data = np.frombuffer(batch, dtype=np.uint8)
    whole = Range(len(data), has_successor=True)
    decoder = SegmentDecoder(
        ChunkSource(iter([(0, data)])), whole, max_batch_uncompressed=limit, columns=_COLUMNS
    )
    mended: list[dict[str, Any]] = []
    for group in decoder:
        if group.records is not None:
            mended += group.records.slice(0, most - len(mended)).to_pylist()
        if len(mended) >= most:
            break
    return mended


def as_json(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record as ``find`` prints it, marked as mended: bytes in Base64; key, value also as text."""
    key, value = record["key"], record["value"]
    return {
        "mended": True,
        "offset": record["offset"],
        "timestamp_ms": record["timestamp_ms"],
        "key": base64_text(key),
        "value": base64_text(value),
        "key_text": utf8_text(key),
        "value_text": utf8_text(value),
        "headers": header_pairs(record["headers"]),
        "control_type": record["control_type"],
    }


def as_text(record: dict[str, Any]) -> str:
    """Returns a record as one line."""
    key, value = ("null" if side is None else shown_bytes(side) for side in (record["key"], record["value"]))
    headers = ", ".join(
        f"{header['key']}={'null' if header['value'] is None else shown_bytes(header['value'])}"
        for header in record["headers"] or ()
    )
    return f"mended  offset {record['offset']}  key {key}  value {value}" + (
        f"  headers {headers}" if headers else ""
    )

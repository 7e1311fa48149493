"""A broker's files as objects for JSON: one a batch, a record, a damaged range, an entry of an index.

Fields are named as the columns of the tables ``batches``, ``records`` and ``quarantine``. Bytes are Base64.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.cli.generated import base64_text, header_pairs
from kafka_log_lake.pipelines.dump_log.log_text import Prints
from kafka_log_lake.pipelines.dump_log.payloads import Parse
from kafka_log_lake.udfs.arrow.batch_columns import batch_columns
from kafka_log_lake.udfs.decoder.decoded import Damage, Range
from kafka_log_lake.udfs.decoder.kafka_reader import Record, Refused, records_of
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.indexes.files import DELETED, broker_file, decode_broker_file, decode_content
from kafka_log_lake.udfs.storage.byte_source import ByteSource

_COLUMNS = (
    *("offset", "timestamp_ms", "timestampType", "key", "value", "headers", "magic", "batch_position"),
    *("sequence", "producer_id", "producer_epoch", "is_transactional", "control_type", "size_bytes"),
)
# Of a batch, what is for tables alone
_LEFT_OUT = ("max_timestamp", "coordinator_epoch")
Object = dict[str, object]

# By kind of a broker's file: what its objects are called
_ENTRY_KINDS = {
    ".index": "offset_index",
    ".timeindex": "time_index",
    ".txnindex": "aborted_transaction",
    ".snapshot": "producer",
    ".checkpoint": "snapshot_record",
    "leader-epoch-checkpoint": "leader_epoch",
}


def log_objects(source: ByteSource, length: int, prints: Prints) -> Iterator[Object]:
    """Yields the objects of a segment or a snapshot, in the order of its bytes; goes on after damage."""
    decoder = SegmentDecoder(
        source,
        Range(length),
        max_batch_uncompressed=prints.max_batch_uncompressed,
        quarantine_content_bytes=0,
        columns=_COLUMNS if prints.records else (),
        content_crc=False,
    )
    parse = prints.parse if prints.is_decoded else None
    for group in decoder:
        records = _records(group.records, parse)
        held = next(records, None)
        damages = {damage.position: damage for damage in group.damages}
        for e, batch in zip(group.batches, _batches(group.batches), strict=True):
            yield batch
            position = batch["position"]
            while held is not None and held["batch_position"] == position:
                yield held
                held = next(records, None)
            if e["fault"] == faults.CRC_MISMATCH and prints.records:
                yield from _unproven(source, e, prints.max_batch_uncompressed, parse)
            if position in damages:
                yield _damage(damages.pop(position))
        while held is not None:  # of a batch that is too large to be given at once
            yield held
            held = next(records, None)
        yield from map(_damage, damages.values())
    if decoder.totals.tail_bytes:
        size = decoder.totals.tail_bytes
        yield {"kind": "tail", "tail": decoder.totals.tail, "position": length - size, "size_bytes": size}


def _batches(batches: np.ndarray) -> Iterator[Object]:
    columns = {name: column for name, column in batch_columns(batches).items() if name not in _LEFT_OUT}
    for row in pa.table(columns).to_pylist() if len(batches) else ():
        yield {"kind": "batch", **row}


def _records(records: pa.RecordBatch | None, parse: Parse | None) -> Iterator[Object]:
    for row in records.to_pylist() if records is not None else ():
        key, value = row["key"], row["value"]
        row["headers"] = header_pairs(row["headers"])
        row["key"], row["value"] = base64_text(key), base64_text(value)
        yield {"kind": "record", **row} | _parsed(parse, row["offset"], key, value, row["control_type"])


def _parsed(
    parse: Parse | None, offset: int, key: Any, value: Any, control_type: str | None = None
) -> Object:
    """Returns the decoded key and value as text, or the error; {} without decoder and for control records."""
    if parse is None or control_type is not None:
        return {}
    try:
        texts = parse(offset, key, value)
    except Refused as why:
        return {"decoded_key": None, "decoded_value": None, "decode_error": str(why)}
    shown = [None if text is None else text.decode(errors="replace") for text in texts]
    return {"decoded_key": shown[0], "decoded_value": shown[1]}


def _unproven(source: ByteSource, e: Any, limit: int, parse: Parse | None) -> Iterator[Object]:
    """Yields the records that can be read of a batch with a wrong checksum; any byte of it may be wrong."""
    content = np.empty(int(e["size"]), dtype=np.uint8)
    source.read_into(int(e["position"]), content)
    try:
        for record in records_of(e, content.tobytes(), limit):
            key, value = record.key, record.value
            headers = record.headers if isinstance(record, Record) else []
            yield {
                "kind": "record",
                "unproven": True,
                "offset": record.offset,
                "timestamp_ms": record.timestamp,
                "key": base64_text(key),
                "value": base64_text(value),
                "headers": [
                    [name.decode(errors="replace"), base64_text(header_value)]
                    for name, header_value in headers
                ],
                "magic": int(e["magic"]),
                "batch_position": int(e["position"]),
            } | _parsed(parse, record.offset, key, value)
    except Refused:
        return  # the damaged range that follows says why the batch is not read


def _damage(damage: Damage) -> Object:
    return {
        "kind": "damage",
        "position": damage.position,
        "size_bytes": damage.size,
        "base_offset": damage.base_offset,
        "reason": damage.reason,
        "detail": damage.detail,
        "next_position": damage.next_position,
    }


def content_objects(name: str, data: bytes) -> Iterator[Object]:
    """Yields the objects of an index, a producer snapshot or a checkpoint by its content. name: of the
    file.
    """
    file = broker_file(name)
    if file is not None:
        for row in decode_content(file, data).to_pylist():
            if row["error"] is None:
                del row["error"]
            yield {"kind": _ENTRY_KINDS.get(file.kind, "checkpoint"), **row}


def entry_objects(path: str | os.PathLike[str]) -> Iterator[Object]:
    """Yields the objects of an index, a producer snapshot or a checkpoint. Raises ValueError and OSError."""
    file = broker_file(os.fspath(path).removesuffix(DELETED))
    kind = _ENTRY_KINDS.get(file.kind, "checkpoint") if file else "entry"
    for batch in decode_broker_file(path):
        for row in batch.to_pylist():
            if row["error"] is None:
                del row["error"]
            yield {"kind": kind, **row}

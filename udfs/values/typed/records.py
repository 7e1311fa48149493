"""Converts rows of ``records`` of one topic to typed keys and values, without a lake."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.storage.byte_source import ByteSource, SourceError
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.storage.store import open_store
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import SCHEMAS_TOPIC, Registry
from kafka_log_lake.udfs.values.schemas.topic_labels import topic_labels
from kafka_log_lake.udfs.values.typed.columns import SideDecoder
from kafka_log_lake.udfs.values.typed.files import SIDES, Types

NEEDED = ("key", "value", "headers", "is_control")
# Columns after those of ``records``
ADDED = ("is_tombstone", "key_schema_id", "value_schema_id", "key_error", "value_error")
_COLUMNS = ["offset", KEY, VALUE, "headers", "is_control"]


def records_of(segments: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yields the data records of segments as dicts, as far as they can be read."""
    for uri in segments:
        with suppress(SourceError), closing(open_source(uri)) as source:
            for records in data_records(source, Range(source.size()), _COLUMNS):
                yield from records.to_pylist()


def data_records(source: ByteSource, range_: Range, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yields the data records of a range, no control records. ``columns`` must have is_control."""
    for group in SegmentDecoder(source, range_, columns=columns, content_crc=False):
        if group.records is not None:
            is_data = pc.invert(group.records.column("is_control"))
            # most groups have no control record, and a filter copies every payload
            yield group.records.filter(is_data) if is_data.false_count else group.records


def registry_of(segments: Iterable[str]) -> Registry:
    """Returns the registry that segments of ``_schemas`` hold; each folder is a copy."""
    by_folder: dict[str, list[str]] = {}
    for uri in segments:
        by_folder.setdefault(uri.rpartition("/")[0], []).append(uri)
    copies = (records_of(uris) for uris in by_folder.values())
    return Registry.joined(
        Registry.from_records((row["offset"], row[KEY], row[VALUE]) for row in copy) for copy in copies
    )


def schema_segments(segments: pa.Table) -> list[str]:
    """Returns the ``_schemas`` segments among segments (LISTING_SCHEMA), else those next to their folders."""
    is_own = pc.equal(segments.column("topic"), SCHEMAS_TOPIC)
    segments_of_topic: list[str] = (
        segments.filter(is_own).sort_by("file_base_offset").column("segment").to_pylist()
    )
    return segments_of_topic or schemas_next_to(set(segments.column("partition_dir").to_pylist()))


def schemas_next_to(folders: Iterable[str]) -> list[str]:
    """Returns the URIs of segments of ``_schemas-0`` next to partition folders, sorted."""
    segments: set[str] = set()
    for parent in {folder.rpartition("/")[0] for folder in folders}:
        system, path = open_store(parent)
        selector = fs.FileSelector(f"{path}/{SCHEMAS_TOPIC}-0", allow_not_found=True)
        names = (info.base_name for info in system.get_file_info(selector))
        segments.update(f"{parent}/{SCHEMAS_TOPIC}-0/{name}" for name in names if name.endswith(".log"))
    return sorted(segments)


def plain_of_sample(registry: Registry, topic: str, sample: pa.Table) -> str:
    """Returns what payloads of a topic without a schema are, as text. sample: see ``sample``."""
    labels = topic_labels(PayloadReader(registry), topic, sample.to_pylist())
    return ",".join(labels[side] for side in SIDES)


class TypedRecords:
    """Converts keys and values of one topic to typed columns.

    ``learn`` what there is, all of it, then ``convert`` it: so all rows have the same columns.
    """

    def __init__(
        self,
        registry: Registry,
        topic: str,
        plain: str,
        types: Mapping[str, Types] | None = None,
        infers: bool = False,
        fills: bool = False,
    ) -> None:
        """Takes the schemas, and the types that another reader of the topic learned.

        plain: what payloads without a schema are, see ``plain_of_sample``; "" if it is not known. infers,
        fills: see ``SideDecoder``.
        """
        self._infers, self._fills = infers, fills
        self._reader, self._topic, self.plain = PayloadReader(registry), topic, plain
        self._decoders: dict[str, SideDecoder] = {}
        self._known: dict[str, Types] = {side: (types or {}).get(side, {}) for side in SIDES}

    @property
    def types(self) -> dict[str, Types]:
        return {side: decoder.types for side, decoder in self._decoders.items()} or self._known

    def learn(self, rows: pa.RecordBatch) -> None:
        """Learns which types rows of ``records`` hold. No rows, as of markers alone, say nothing."""
        for side, decoder in self._of_sides().items() if rows.num_rows else ():
            decoder.learn(rows.column(side), rows.column("headers"))

    def _of_sides(self) -> dict[str, SideDecoder]:
        """Returns the decoder of each side."""
        if not self._decoders:
            for side, of_side in zip(SIDES, (self.plain or ",").split(","), strict=True):
                types = self._known[side]
                self._decoders[side] = SideDecoder(
                    self._reader, self._topic, side, of_side, types, self._infers, self._fills
                )
        return self._decoders

    def convert(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the data records of rows: their columns, key and value typed, and ADDED after them.

        Raises a ValueError for a type that ``learn`` has not seen.
        """
        rows = rows.filter(pc.invert(rows.column("is_control")))
        before = {side: dict(types) for side, types in self.types.items()} if self._decoders else self._known
        headers = rows.column("headers")
        decoded = {
            side: decoder.decode(rows.column(side), headers) for side, decoder in self._of_sides().items()
        }
        if any(before[side] != self.types[side] for side in SIDES if before[side]):
            raise ValueError(f"a payload of {self._topic} has a type that no earlier one has")
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns["is_tombstone"] = rows.column(VALUE).is_null()
        for side in SIDES:
            columns[side] = decoded[side].column(self.types[side])
            columns[f"{side}_schema_id"] = decoded[side].ids()
            reasons: list[str | None] = [None] * rows.num_rows
            for row, wrong in decoded[side].wrong:
                reasons[row] = wrong.reason
            columns[f"{side}_error"] = pa.array(reasons, pa.string())
        return pa.RecordBatch.from_pydict(columns)

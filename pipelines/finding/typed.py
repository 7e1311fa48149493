"""``find --typed``: keys and values of matches by the schema registry that lies beside the logs.

The registry is the topic ``_schemas`` of the sources, else the folder ``_schemas-0`` beside their partition
folders. What a topic's payloads without a schema are says a sample of its first segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from typing import Any

import pyarrow as pa
from pyarrow import fs

from udfs.decoded import Range
from udfs.segment_decoder import SegmentDecoder
from udfs.source.byte_source import SourceError, open_source
from udfs.source.store import open_store
from udfs.values.payloads import KEY, VALUE, PayloadReader, plain_of
from udfs.values.registry import SCHEMAS_TOPIC, Registry

# Added to the fields of a match
TYPED_FIELDS = (
    *("key_typed", "value_typed", "key_schema_id", "value_schema_id"),
    *("key_error", "value_error"),
)
_SAMPLE = 200
_COLUMNS = ["offset", KEY, VALUE, "headers", "is_control"]


class TypedValues:
    """Decodes keys and values of matches. segments: LISTING_SCHEMA, all that the sources have."""

    def __init__(self, segments: pa.Table) -> None:
        self._by_topic: dict[str, list[str]] = {}
        ordered = segments.sort_by([("partition", "ascending"), ("file_base_offset", "ascending")])
        for topic, uri in zip(*(ordered.column(n).to_pylist() for n in ("topic", "segment")), strict=True):
            self._by_topic.setdefault(topic, []).append(uri)
        folders = set(ordered.column("partition_dir").to_pylist())
        self._reader = PayloadReader(_registry(self._by_topic.get(SCHEMAS_TOPIC) or _beside(folders)))
        self._plain: dict[tuple[str, str], str] = {}

    def fields(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """TYPED_FIELDS of a match:

        values in canonical JSON, or classes of errors; null for control records.
        """
        found: dict[str, Any] = dict.fromkeys(TYPED_FIELDS)
        if row["control_type"] is not None:
            return found
        headers = _pairs(row["headers"])
        for side in (KEY, VALUE):
            one = self._reader.read(
                row["topic"], side, row[side], headers, self._plain_of(row["topic"], side)
            )
            found[f"{side}_typed"] = one.value if one.reason is None else None
            found[f"{side}_schema_id"] = one.schema.id if one.schema is not None else None
            found[f"{side}_error"] = one.reason
        return found

    def _plain_of(self, topic: str, side: str) -> str:
        if (topic, side) not in self._plain:
            sample = list(islice(_records(self._by_topic.get(topic, ())), _SAMPLE))
            for one in (KEY, VALUE):
                decoded = (self._reader.read(topic, one, row[one], _pairs(row["headers"])) for row in sample)
                self._plain[topic, one] = plain_of(decoded)
        return self._plain[topic, side]


def _pairs(headers: Iterable[Mapping[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(one["key"], one["value"]) for one in headers or ()]


def _records(segments: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The data records of segments, as far as they can be read: the search reports what can't."""
    for uri in segments:
        with suppress(SourceError), closing(open_source(uri)) as source:
            for group in SegmentDecoder(source, Range(source.size()), columns=_COLUMNS, content_crc=False):
                rows = [] if group.records is None else group.records.to_pylist()
                yield from (row for row in rows if not row["is_control"])


def _registry(segments: Iterable[str]) -> Registry:
    by_folder: dict[str, list[str]] = {}
    for uri in segments:
        by_folder.setdefault(uri.rpartition("/")[0], []).append(uri)
    copies = (_records(uris) for uris in by_folder.values())
    return Registry.joined(
        Registry.from_records((row["offset"], row[KEY], row[VALUE]) for row in copy) for copy in copies
    )


def _beside(folders: Iterable[str]) -> list[str]:
    """The segments of ``_schemas-0`` beside partition folders."""
    found: set[str] = set()
    for parent in {folder.rpartition("/")[0] for folder in folders}:
        system, path = open_store(parent)
        selector = fs.FileSelector(f"{path}/{SCHEMAS_TOPIC}-0", allow_not_found=True)
        names = (info.base_name for info in system.get_file_info(selector))
        found.update(f"{parent}/{SCHEMAS_TOPIC}-0/{name}" for name in names if name.endswith(".log"))
    return sorted(found)

"""``find --typed``, and conditions on values: the schema registry that lies beside the logs.

The registry is the topic ``_schemas`` of the sources, else the folder ``_schemas-0`` beside their partition
folders. What a topic's payloads without a schema are says a sample of its first segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from udfs.values.payload_heads import pairs_of
from udfs.values.payloads import KEY, VALUE, PayloadReader, plain_of
from udfs.values.registry import Registry
from udfs.values.typed_records import records_of, registry_of, schema_segments

# Added to the fields of a match
TYPED_FIELDS = (
    *("key_typed", "value_typed", "key_schema_id", "value_schema_id"),
    *("key_error", "value_error", "key_format", "value_format"),
)
_SAMPLE = 200


def registry_beside(segments: pa.Table, others: Sequence[Registry] = ()) -> Registry:
    """The registry that lies among segments (LISTING_SCHEMA) or beside their folders, and further schemas."""
    found = registry_of(schema_segments(segments))
    return Registry.joined([found, *others]) if others else found


class TypedValues:
    """Decodes keys and values of matches. segments: LISTING_SCHEMA, all that the sources have."""

    def __init__(self, segments: pa.Table, registry: Registry) -> None:
        self._by_topic: dict[str, list[str]] = {}
        ordered = segments.sort_by([("partition", "ascending"), ("file_base_offset", "ascending")])
        for topic, uri in zip(*(ordered.column(n).to_pylist() for n in ("topic", "segment")), strict=True):
            self._by_topic.setdefault(topic, []).append(uri)
        self._reader = PayloadReader(registry)
        self._plain: dict[tuple[str, str], str] = {}

    def fields(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """TYPED_FIELDS of a match:

        values in canonical JSON, or classes of errors; null for control records.
        """
        found: dict[str, Any] = dict.fromkeys(TYPED_FIELDS)
        if row["control_type"] is not None:
            return found
        headers = pairs_of(row["headers"])
        for side in (KEY, VALUE):
            one = self._reader.read(
                row["topic"], side, row[side], headers, self._plain_of(row["topic"], side)
            )
            found[f"{side}_typed"] = one.value if one.reason is None else None
            found[f"{side}_schema_id"] = one.schema.id if one.schema is not None else None
            found[f"{side}_error"] = one.reason
            found[f"{side}_format"] = one.format
        return found

    def _plain_of(self, topic: str, side: str) -> str:
        if (topic, side) not in self._plain:
            sample = list(islice(records_of(self._by_topic.get(topic, ())), _SAMPLE))
            for one in (KEY, VALUE):
                decoded = (
                    self._reader.read(topic, one, row[one], pairs_of(row["headers"])) for row in sample
                )
                self._plain[topic, one] = plain_of(decoded)
        return self._plain[topic, side]

"""Decodes typed matches for ``find --typed`` with the schema registry that lies next to the logs.

The registry is the topic ``_schemas`` of the sources, else the folder ``_schemas-0`` next to their partition
folders; of a lake what it knows. What a topic's payloads without a schema are says its sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from kafka_log_lake.udfs.values.apps import mirror
from kafka_log_lake.udfs.values.apps.payloads import error_headers
from kafka_log_lake.udfs.values.apps.topic_format import WHOLE_KINDS
from kafka_log_lake.udfs.values.schemas.payload import DecodedPayload
from kafka_log_lake.udfs.values.schemas.payload_heads import pairs_of
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import Registry
from kafka_log_lake.udfs.values.schemas.topic_labels import topic_labels

# Added to the fields of a match
TYPED_FIELDS = (
    *("key_typed", "value_typed", "key_schema_id", "value_schema_id"),
    *("key_error", "value_error", "key_format", "value_format", "record_typed"),
)


class TypedValues:
    """Decodes keys and values of matches. sample: gives the sample of a topic."""

    def __init__(self, sample: Callable[[str], pa.Table], registry: Registry) -> None:
        self._sample, self._reader = sample, PayloadReader(registry)
        self._plain: dict[str, dict[str, str]] = {}

    def fields(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns TYPED_FIELDS of a match: values in canonical JSON, or classes of errors.

        None for control records. record_typed: what key and value say together, where one object of the
        application has both (MirrorMaker's records), or the headers of a dead letter as text.
        """
        typed_fields: dict[str, Any] = dict.fromkeys(TYPED_FIELDS)
        if row["control_type"] is not None:
            return typed_fields
        headers = pairs_of(row["headers"])
        sides: dict[str, DecodedPayload] = {}
        for side in (KEY, VALUE):
            plain = self._plain_of(row["topic"], side)
            payload = sides[side] = self._reader.read(row["topic"], side, row[side], headers, plain)
            typed_fields[f"{side}_typed"] = payload.value if payload.reason is None else None
            typed_fields[f"{side}_schema_id"] = payload.schema_id
            typed_fields[f"{side}_error"] = payload.reason
            typed_fields[f"{side}_format"] = payload.format
        if _is_whole(sides):
            typed_fields["record_typed"] = mirror.record(
                typed_fields["key_typed"], typed_fields["value_typed"]
            )
            typed_fields["key_typed"] = typed_fields["value_typed"] = None
        elif errors := error_headers(headers):
            typed_fields["record_typed"] = {"headers": errors}
        format_ = self._reader.formats.of(row["topic"])
        if format_ is not None and format_.kind == "dlq":  # as received: whatever that was
            for side, serde in ((KEY, format_.key), (VALUE, format_.value)):
                if serde in ("", "bytes"):
                    typed_fields[f"{side}_typed"] = None
        return typed_fields

    def _plain_of(self, topic: str, side: str) -> str:
        if topic not in self._plain:
            self._plain[topic] = topic_labels(self._reader, topic, self._sample(topic).to_pylist())
        return self._plain[topic][side]


def _is_whole(sides: Mapping[str, DecodedPayload]) -> bool:
    """Returns whether key and value say one thing together; a value of another format stands alone."""
    key, value = sides[KEY].format, sides[VALUE].format
    return key in WHOLE_KINDS and value in (key, "null")

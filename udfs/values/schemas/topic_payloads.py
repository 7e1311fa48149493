"""Decodes the values of one topic by a registry's schemas, for conditions that look into values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kafka_log_lake.udfs.values.schemas.payloads import VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import UNKNOWN_ID, Registry
from kafka_log_lake.udfs.values.schemas.wire_formats import Headers

_FIRST_BYTES = b"\x00\x01\xc3O"  # of a payload that names its schema, or has it


@dataclass(frozen=True)
class TopicPayloads:
    """Decodes values of a topic. Pickled for worker processes, each of which makes its own reader."""

    registry: Registry
    topic: str

    def document(self, value: bytes, headers: Headers) -> object:
        """Returns a value in canonical JSON; None where no schema consumes it."""
        if value[0] not in _FIRST_BYTES and not headers and not self.registry.by_id(UNKNOWN_ID):
            return None
        payload = self._reader.read(self.topic, VALUE, value, headers)
        is_known = payload.schema is not None or payload.format == "avro-container"
        return payload.value if payload.reason is None and is_known else None

    @cached_property
    def _reader(self) -> PayloadReader:
        return PayloadReader(self.registry)

    def __getstate__(self) -> dict[str, object]:
        return {"registry": self.registry, "topic": self.topic}

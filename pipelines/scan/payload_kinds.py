"""Tells what the keys and values of topics are, by a sample of each and the registry among the logs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from kafka_log_lake.udfs.values.apps.topic_format import TopicFormats
from kafka_log_lake.udfs.values.schemas.payloads import VALUE
from kafka_log_lake.udfs.values.schemas.profile import PayloadKind, count_looks
from kafka_log_lake.udfs.values.schemas.registry import Registry
from kafka_log_lake.udfs.values.typed.functions import TypedFunctions
from kafka_log_lake.udfs.values.typed.records import registry_of
from kafka_log_lake.udfs.values.typed.sample import sample_of_segments


@dataclass(frozen=True)
class SchemaSegments:
    """The segments of ``_schemas``, from which each worker reads the registry once in a scan.

    uris: of the segments of ``_schemas``. formats: what a person says of topics. scan: no other scan of a
    process has it, as segments grow.
    """

    uris: tuple[str, ...] = ()
    formats: TopicFormats = field(default_factory=TopicFormats)
    scan: int = field(default_factory=time.monotonic_ns)


def kinds_of_topic(segments: tuple[str, list[str]], schemas: SchemaSegments) -> Counter[PayloadKind]:
    """Counts what the payloads in a topic's sample are. segments: the topic, and ``segments_by_topic``."""
    topic, uris = segments
    rows = sample_of_segments(uris)
    if not rows.num_rows:
        return Counter()
    try:
        return count_looks(_functions(schemas), topic, rows)
    except ModuleNotFoundError as error:  # the extra typed is not installed
        return Counter(
            {PayloadKind(VALUE, "protobuf", None, f"needs the package {error.name}"): rows.num_rows}
        )


@lru_cache(maxsize=1)
def _functions(schemas: SchemaSegments) -> TypedFunctions:
    said = Registry(formats=schemas.formats)
    return TypedFunctions(Registry.joined([registry_of(schemas.uris), said]))

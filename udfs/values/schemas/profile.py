"""Counts the keys and values of topics by format and schema.

The view ``payload_profile`` says it of every payload of a lake; here it is said of those that a scan or a
report looks at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import pyarrow as pa

from kafka_log_lake.udfs.values.apps.topic_format import TopicFormat
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE
from kafka_log_lake.udfs.values.typed.functions import TypedFunctions

_SHOWN = 8  # ids of schemas in a line for people


class PayloadKind(NamedTuple):
    """The format, the schema id and the error reason of a key or value.

    side: key or value. format, schema_id, reason: see ``TypedFunctions.kafka_payload``. certainty: of a topic
    of an application, ``TopicFormat.certainty``; "" for others.
    """

    side: str
    format: str
    schema_id: int | None
    reason: str | None
    certainty: str = ""


@dataclass(frozen=True)
class PayloadFormat:
    """The payloads of a topic's side that have one format.

    schema_ids: rising, none without a schema. payloads: how many were looked at, nulls left out. decoded: how
    many of these decode. reasons: why others do not, as in ``value_errors``. certainty: as of PayloadKind.
    """

    topic: str
    side: str
    format: str
    schema_ids: list[int]
    payloads: int
    decoded: int
    reasons: list[str]
    certainty: str = ""

    @property
    def words(self) -> str:
        """Returns a line for people, such as ``avro by schemas 3, 4; 97.5% decode``."""
        ids = ", ".join(map(str, self.schema_ids[:_SHOWN]))
        if len(self.schema_ids) > _SHOWN:
            ids += f" and {len(self.schema_ids) - _SHOWN:,} more"
        by = f" by schema{'' if len(self.schema_ids) == 1 else 's'} {ids}" if ids else ""
        share = min(99.9, round(100 * self.decoded / self.payloads, 1))
        said = f", {self.certainty}" if self.certainty else ""
        return f"{self.format}{said}{by}" + ("" if self.decoded == self.payloads else f"; {share:g}% decode")


def count_looks(
    functions: TypedFunctions, topic: str, rows: pa.RecordBatch | pa.Table
) -> Counter[PayloadKind]:
    """Counts the payloads of data records by kind. rows: of one topic, with key, value and headers."""
    counts: Counter[PayloadKind] = Counter()
    topics = pa.repeat(topic, rows.num_rows)
    labels = functions.labels(topic, rows)
    for side in (KEY, VALUE):
        sides = pa.repeat(side, rows.num_rows)
        label = labels[side]
        looks = functions.kafka_payload(topics, sides, rows.column(side), rows.column("headers"), label)
        format_ = TopicFormat.of_label(label)
        certainty = "" if format_ is None else format_.certainty
        columns = (looks.field(name).to_pylist() for name in ("format", "schema_id", "reason"))
        held = compress(zip(*columns, strict=True), looks.is_valid().to_pylist())
        for (name, schema_id, reason), count in Counter(held).items():
            counts[PayloadKind(side, name, schema_id, reason, certainty)] = count
    return counts


def payload_formats(looks: Mapping[str, Counter[PayloadKind]]) -> list[PayloadFormat]:
    """Returns the formats of each topic, keys first, the most frequent first. looks: by topic."""
    listed = []
    for topic, counts in sorted(looks.items()):
        formats: dict[tuple[str, str], list[tuple[PayloadKind, int]]] = defaultdict(list)
        for look, count in counts.items():
            formats[look.side, look.format].append((look, count))
        ordered = sorted(
            formats.items(), key=lambda item: (item[0][0], -sum(n for _, n in item[1]), item[0][1])
        )
        listed += [_format(topic, *place, some) for place, some in ordered]
    return listed


def _format(topic: str, side: str, format_: str, some: Iterable[tuple[PayloadKind, int]]) -> PayloadFormat:
    some = list(some)
    return PayloadFormat(
        topic,
        side,
        format_,
        sorted({look.schema_id for look, _ in some if look.schema_id is not None}),
        sum(count for _, count in some),
        sum(count for look, count in some if look.reason is None),
        sorted({look.reason for look, _ in some if look.reason is not None}),
        max(look.certainty for look, _ in some),
    )

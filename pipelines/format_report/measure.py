"""Measures the bytes of a lake's data batches in each format: sums by topic, partition and magic.

Only batches with status ok or suspect count, in segments of the given ledger. ``records`` is read
twice: once for lengths, offsets and timestamps of all records, once for whole records of the sampled batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from kafka_log_lake.pipelines.cli.errors import RunFailed
from kafka_log_lake.pipelines.format_report.stages import (
    MOST_BYTES,
    SAMPLED_COLUMNS,
    SIZED_COLUMNS,
    recompress,
    size_records,
)
from kafka_log_lake.pipelines.format_report.statements import Statements
from kafka_log_lake.pipelines.rules import COUNTED
from kafka_log_lake.udfs.format.levels import CodecLevel
from kafka_log_lake.udfs.format.sizes import V2_OVERHEAD, V3_FIXED_OVERHEAD, VARINT_BOUNDS, Sizes

Key = tuple[str, int, int]  # topic, partition, magic

_MOST_RECORDS = 100_000  # of a sampled batch that are compressed


def varint_sql(number: str) -> str:
    """Returns SQL that computes ``udfs.format.sizes.varint_size`` of an integer expression."""
    cases = " ".join(
        f"WHEN {number} BETWEEN -{bound} AND {bound - 1} THEN {size}"
        for size, bound in enumerate(VARINT_BOUNDS, 1)
    )
    return f"CASE {cases} WHEN {number} IS NOT NULL THEN {len(VARINT_BOUNDS) + 1} END"


def _sized_sql(length: str) -> str:
    """Returns SQL for the bytes of a value of this length with its varint in front; 1 for a null value."""
    size = f"CAST({length} AS BIGINT)"
    return f"coalesce(({varint_sql(size)}) + {size}, 1)"


def _delta_sql(number: str, base: str) -> str:
    """Returns SQL for the bytes of a difference as a varint; one that exceeds int64 counts as the longest."""
    return f"coalesce({varint_sql(f'(CAST({number} AS DECIMAL(20, 0)) - {base})')}, {len(VARINT_BOUNDS) + 1})"


_CONTENT = " + ".join(_sized_sql(f"octet_length(r.{name})") for name in ("key", "value"))
# bit_length, as octet_length of DuckDB takes no text
_HEADER = " + ".join(_sized_sql(size) for size in ("bit_length(h.key) / 8", "octet_length(h.value)"))
_OF_WHOLE = """JOIN {{ledger}} s ON s.topic = {0}.topic AND s.partition = {0}.partition
  AND s.segment = {0}.segment"""

_SOUND_BATCHES = f"""SELECT b.*
FROM {{batches}} b {_OF_WHOLE.format("b")}
WHERE {COUNTED}"""

_STORED = f"""SELECT topic, partition, magic, is_control,
  count(*) AS batches, count(CASE WHEN record_count > 0 THEN 1 END) AS filled,
  CAST(sum(record_count) AS BIGINT) AS records, CAST(sum(size_bytes) AS BIGINT) AS bytes,
  CAST(sum(key_bytes + value_bytes) AS BIGINT) AS content, CAST(sum(header_bytes) AS BIGINT) AS headers,
  CAST(sum({V3_FIXED_OVERHEAD} + ({varint_sql("base_timestamp_ms")})
    + {_delta_sql("last_offset", "base_offset")}
    + {_delta_sql("max_timestamp_ms", "base_timestamp_ms")}) AS BIGINT) AS v3_headers
FROM {{sound}} GROUP BY ALL"""

_SIZED = f"""SELECT s.number AS segment, r.magic, r.batch_position, r."offset",
  r.timestamp_ms, {_CONTENT} AS content, list_transform(r.headers, lambda h: {_HEADER}) AS header_sizes,
  r.size_bytes
FROM {{records}} r {_OF_WHOLE.format("r")}
WHERE NOT r.is_control"""

# Evenly spread: of n batches the k-th is taken where k * size / n passes a whole number
_SAMPLE = """SELECT topic, partition, segment, position FROM (
  SELECT topic, partition, segment, position,
    count(*) OVER (PARTITION BY topic, partition, magic) AS n,
    row_number() OVER (PARTITION BY topic, partition, magic ORDER BY segment, position) AS k
  FROM {sound} WHERE record_count > 0 AND NOT is_control)
WHERE k * {size} % n < {size}"""

_SAMPLED = f"""SELECT * FROM (
  SELECT {", ".join(f'r."{name}"' for name in SAMPLED_COLUMNS)},
    row_number() OVER (PARTITION BY r.segment, r.batch_position ORDER BY r."offset") AS record
  FROM {{records}} r JOIN {{sample}} s ON s.topic = r.topic AND s.partition = r.partition
    AND s.segment = r.segment AND s.position = r.batch_position
  WHERE r.size_bytes <= {MOST_BYTES})
WHERE record <= {_MOST_RECORDS}"""


@dataclass(frozen=True)
class Compressed:
    """Sizes of the sampled batches in one format, before and after a codec: bytes without batch headers."""

    layout: str
    how: CodecLevel
    batches: int
    bytes_in: int
    bytes_out: int
    seconds: float


@dataclass
class Measured:
    """Sums over the batches of one topic, partition and magic.

    batches, records, bytes: data batches on disk; filled: those that hold a record. content: bytes of keys
    and values; headers: bytes of header keys and values. sizes: as V2 and V3, by number of records in a
    batch; key None: batched as on disk. compressed: sizes of the sample. control_batches, control_records,
    control_bytes: of control batches on disk, which nothing else here counts.
    """

    batches: int = 0
    filled: int = 0
    records: int = 0
    bytes: int = 0
    content: int = 0
    headers: int = 0
    control_batches: int = 0
    control_records: int = 0
    control_bytes: int = 0
    sizes: dict[int | None, Sizes] = field(default_factory=dict)
    compressed: list[Compressed] = field(default_factory=list)


def parts_of(sample_batches: int) -> dict[str, str | int]:
    """Returns the parts that the statements name in braces (see ``Statements``)."""
    return {"sound": _SOUND_BATCHES, "size": sample_batches, "sample": _SAMPLE}


def numbered(ledger: pa.Table) -> pa.Table:
    """Returns the ledger with a column ``number``: 0, 1, ... by which ``measure`` identifies a segment."""
    return ledger.append_column("number", pa.array(range(ledger.num_rows), pa.int32()))


def measure(statements: Statements, ledger: pa.Table, levels: Sequence[CodecLevel]) -> dict[Key, Measured]:
    """Returns the sums by topic, partition and magic. ledger: rows of ``segments``, as from ``numbered``.

    levels: codecs to try. Raises a RunFailed if ``records`` and ``batches`` count different records.
    """
    changed = RunFailed("a job changed the lake while the report read it: run the report again")
    by_key = _stored(statements)
    places = ledger.select(["topic", "partition"]).to_pylist()
    sized = statements.staged(_SIZED, SIZED_COLUMNS[:4], size_records)
    for row in sized.to_pylist():
        key = (*places[row.pop("segment")].values(), row.pop("magic"))
        if key not in by_key:
            raise changed
        by_key[key].sizes.setdefault(row.pop("batch_records"), Sizes()).add(Sizes(**row))
    if any(measured.records != measured.sizes.get(None, Sizes()).records for measured in by_key.values()):
        raise changed
    order = ("segment", "batch_position", "offset")
    compressed = statements.staged(_SAMPLED, order, recompress(levels))
    sums = [(name, "sum") for name in ("batches", "bytes_in", "bytes_out", "seconds")]
    keys = [name for name in compressed.column_names if (name, "sum") not in sums]
    for row in compressed.group_by(keys).aggregate(sums).to_pylist():
        how = CodecLevel(row["codec"], row["level"])
        total = Compressed(row["layout"], how, *(row[f"{name}_sum"] for name, _ in sums))
        by_key[row["topic"], row["partition"], row["magic"]].compressed.append(total)
    return by_key


def _stored(statements: Statements) -> dict[Key, Measured]:
    """Returns the sums over ``batches``; for magic 2 also the sizes of the headers as V2 and V3."""
    by_key: dict[Key, Measured] = {}
    for row in statements.rows(_STORED).to_pylist():
        measured = by_key.setdefault((row["topic"], row["partition"], row["magic"]), Measured())
        sums = row["batches"], row["records"], row["bytes"]
        if row["is_control"]:
            measured.control_batches, measured.control_records, measured.control_bytes = sums
            continue
        measured.batches, measured.records, measured.bytes = sums
        measured.filled, measured.content, measured.headers = row["filled"], row["content"], row["headers"]
        if row["magic"] == 2:
            overhead, headers = V2_OVERHEAD * measured.batches, row["v3_headers"]
            measured.sizes[None] = Sizes(0, measured.batches, overhead, headers, headers)
    return by_key

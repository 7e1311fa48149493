"""What the data batches of a lake take in each format: sums by topic, partition and magic, computed by Spark.

Only batches with status ok or suspect count, of segments that the ledger given has. ``records`` is read
twice: once for lengths, offsets and timestamps of all records, once for whole records of the sampled batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.command.errors import RunFailed
from pipelines.command.session import configured
from pipelines.lake.address import table_path
from pipelines.rules import COUNTED
from pipelines.source.hadoop import open_to_spark
from udfs.format.levels import CodecLevel
from udfs.format.schema import BATCHES, RECORDS
from udfs.format.sizes import V2_OVERHEAD, V3_FIXED_OVERHEAD, VARINT_BOUNDS, Sizes
from udfs.spark.format_sizes import (
    COMPRESSED_DDL,
    SAMPLED_COLUMNS,
    SIZED_COLUMNS,
    SIZES_DDL,
    recompress,
    size_records,
)

Key = tuple[str, int, int]  # topic, partition, magic

# Rows of an Arrow batch; bytes of one, for records that are large
_ARROW = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
}


# Of a sampled batch the records up to these are compressed, none that is larger: a task holds them in memory
_MOST_RECORDS = 100_000
_MOST_BYTES = 16 << 20


def varint_sql(number: str) -> str:
    """SQL of ``udfs.format.sizes.varint_size`` for an expression of integers."""
    cases = " ".join(
        f"WHEN {number} BETWEEN -{bound} AND {bound - 1} THEN {size}"
        for size, bound in enumerate(VARINT_BOUNDS, 1)
    )
    return f"CASE {cases} WHEN {number} IS NOT NULL THEN {len(VARINT_BOUNDS) + 1} END"


def _sized_sql(binary: str) -> str:
    """SQL: bytes of a nullable binary behind the varint of its length."""
    size = f"CAST(octet_length({binary}) AS BIGINT)"
    return f"coalesce(({varint_sql(size)}) + {size}, 1)"


def _delta_sql(number: str, base: str) -> str:
    """SQL: bytes of a difference as a varint; one past int64 counts as the longest."""
    return f"coalesce({varint_sql(f'try_subtract({number}, {base})')}, {len(VARINT_BOUNDS) + 1})"


_HEADER = f"total + {_sized_sql('header.key')} + {_sized_sql('header.value')}"
_CONTENT = f"""{_sized_sql("r.key")} + {_sized_sql("r.value")}
  + coalesce(aggregate(r.headers, CAST(({varint_sql("size(r.headers)")}) AS BIGINT),
      (total, header) -> {_HEADER}), 1)"""
_OF_WHOLE = """JOIN {{ledger}} s ON s.topic = {0}.topic AND s.partition = {0}.partition
  AND s.segment = {0}.segment"""

_SOUND_BATCHES = f"""SELECT /*+ BROADCAST(s) */ b.*
FROM {{batches}} b {_OF_WHOLE.format("b")}
WHERE {COUNTED}"""

_STORED = f"""SELECT topic, partition, magic, is_control,
  count(*) AS batches, count_if(record_count > 0) AS filled, CAST(sum(record_count) AS BIGINT) AS records,
  CAST(sum(size_bytes) AS BIGINT) AS bytes, CAST(sum(key_bytes + value_bytes) AS BIGINT) AS content,
  CAST(sum(header_bytes) AS BIGINT) AS headers,
  CAST(sum({V3_FIXED_OVERHEAD} + ({varint_sql("base_timestamp_ms")})
    + {_delta_sql("last_offset", "base_offset")}
    + {_delta_sql("max_timestamp_ms", "base_timestamp_ms")}) AS BIGINT) AS v3_headers
FROM {{sound}} GROUP BY ALL"""

_SIZED = f"""SELECT /*+ BROADCAST(s) */ s.number AS segment, r.magic, r.batch_position, r.offset,
  r.timestamp_ms, {_CONTENT} AS content, r.size_bytes
FROM {{records}} r {_OF_WHOLE.format("r")}
WHERE NOT r.is_control"""

# Evenly spread: of n batches the k-th is taken where k * size / n passes a whole number
_SAMPLE = """SELECT topic, partition, segment, position FROM (
  SELECT topic, partition, segment, position,
    count(*) OVER (PARTITION BY topic, partition, magic) AS n,
    row_number() OVER (PARTITION BY topic, partition, magic ORDER BY segment, position) AS k
  FROM {sound} WHERE record_count > 0 AND NOT is_control)
WHERE k * {size} DIV n > (k - 1) * {size} DIV n"""

_SAMPLED = f"""SELECT * FROM (
  SELECT /*+ BROADCAST(s) */ {", ".join(f"r.{name}" for name in SAMPLED_COLUMNS)},
    row_number() OVER (w) AS record, sum(r.size_bytes) OVER (w) - r.size_bytes AS bytes_before
  FROM {{records}} r JOIN {{sample}} s ON s.topic = r.topic AND s.partition = r.partition
    AND s.segment = r.segment AND s.position = r.batch_position
  WHERE r.size_bytes <= {_MOST_BYTES}
  WINDOW w AS (PARTITION BY r.segment, r.batch_position ORDER BY r.offset ROWS UNBOUNDED PRECEDING))
WHERE record <= {_MOST_RECORDS} AND bytes_before < {_MOST_BYTES}"""


@dataclass(frozen=True)
class Compressed:
    """The sampled batches in one format, before and after a codec: bytes without batch headers."""

    layout: str
    how: CodecLevel
    batches: int
    bytes_in: int
    bytes_out: int
    seconds: float


@dataclass
class Measured:
    """The data batches of one topic, partition and magic.

    batches, records, bytes: on disk; filled: batches that hold a record. content: bytes of keys and values;
    headers: those of header keys and values. sizes: as V2 and V3, by records in a batch; None for the batches
    on disk. compressed: of the sample. control_batches, control_records, control_bytes: of control batches on
    disk, which nothing else here counts.
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


def measure(
    spark: SparkSession,
    address: str,
    versions: Mapping[str, int],
    ledger: pa.Table,
    sample_batches: int,
    levels: Sequence[CodecLevel],
) -> dict[Key, Measured]:
    """By topic, partition and magic. versions: of the tables. ledger: columns of ``segments``."""
    numbered = ledger.append_column("number", pa.array(range(ledger.num_rows), pa.int32()))
    published = spark.createDataFrame(numbered)
    open_to_spark(spark, address)
    records, batches = (
        spark.read.format("delta").option("versionAsOf", versions[name]).load(table_path(address, name))
        for name in (RECORDS.name, BATCHES.name)
    )
    sound = spark.sql(_SOUND_BATCHES, batches=batches, ledger=published)
    found = _stored(spark, sound)
    with configured(spark, _ARROW):
        rows = spark.sql(_SIZED, records=records, ledger=published).select(*SIZED_COLUMNS)
        ordered = rows.repartition("segment").sortWithinPartitions(*SIZED_COLUMNS[:4])
        places = ledger.select(["topic", "partition"]).to_pylist()
        for row in ordered.mapInArrow(size_records, SIZES_DDL).collect():
            one = found.get((*places[row.segment].values(), row.magic))
            if one is None:
                raise _changed()
            sizes = Sizes(row.records, row.batches, row.v2, row.v3, row.v3_headers)
            one.sizes.setdefault(row.batch_records, Sizes()).add(sizes)
        _check(found)
        for row in _recompressed(spark, records, sound, sample_batches, levels).collect():
            how = CodecLevel(row.codec, row.level)
            sums = Compressed(row.layout, how, row.batches, row.bytes_in, row.bytes_out, row.seconds)
            found[row.topic, row.partition, row.magic].compressed.append(sums)
    return found


def _changed() -> RunFailed:
    return RunFailed("a job changed the lake while the report read it: run the report again")


def _check(found: dict[Key, Measured]) -> None:
    """Raises a RunFailed if ``records`` and ``batches`` do not tell of the same records."""
    for one in found.values():
        if one.records != one.sizes.get(None, Sizes()).records:
            raise _changed()


def _recompressed(
    spark: SparkSession,
    records: DataFrame,
    sound: DataFrame,
    sample_batches: int,
    levels: Sequence[CodecLevel],
) -> DataFrame:
    """Rows of COMPRESSED_DDL: one for each topic, partition, magic, layout, codec and level."""
    sample = spark.sql(_SAMPLE, sound=sound, size=sample_batches)
    rows = spark.sql(_SAMPLED, records=records, sample=sample).select(*SAMPLED_COLUMNS)
    batch = ["segment", "batch_position"]
    ordered = rows.repartition(*batch).sortWithinPartitions(*batch, "offset")
    sums = ("batches", "bytes_in", "bytes_out", "seconds")
    compressed = ordered.mapInArrow(recompress(levels), COMPRESSED_DDL)
    keys = [name for name in compressed.columns if name not in sums]
    return compressed.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in sums))


def _stored(spark: SparkSession, sound: DataFrame) -> dict[Key, Measured]:
    """What ``batches`` tells. Of magic 2, also the batches on disk as V2 and V3, but for the V3 records."""
    found: dict[Key, Measured] = {}
    for row in spark.sql(_STORED, sound=sound).collect():
        one = found.setdefault((row.topic, row.partition, row.magic), Measured())
        if row.is_control:
            one.control_batches, one.control_records, one.control_bytes = row.batches, row.records, row.bytes
            continue
        one.batches, one.filled, one.records = row.batches, row.filled, row.records
        one.bytes, one.content, one.headers = row.bytes, row.content, row.headers
        if row.magic == 2:
            overhead = V2_OVERHEAD * row.batches
            one.sizes[None] = Sizes(0, row.batches, overhead, row.v3_headers, row.v3_headers)
    return found

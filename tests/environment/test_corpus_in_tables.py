"""The bundled segments through the whole job: every way in, and what a consumer gets of them.

Field by field against Kafka's own reading: what the README says of exactness is what these tests hold.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.dataframes.register import register_views
from tests.support import corpus
from tests.support.cluster import ROOT
from tests.support.logs import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Every segment by these three ways, a mixed sample by the others
WHOLE = ("processes", "direct", "landed")
WAYS = (*WHOLE, "binary", "in parts", "raw")
SAMPLE = {
    *("v0-codec-gzip", "v1-codec-snappy", "v2-codec-zstd", "mixed-magic", "v2-txn-abort", "v2-txn-open"),
    *("v2-compacted", "v2-headers", "v2-nulls", "v2-timestamps"),
}
Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Made:
    """A lake, and the sound segments that it holds."""

    lake: str
    paths: list[Path]


@pytest.fixture(scope="module", params=WAYS)
def made(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    lake_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Made:
    """processes: by a command without Spark. landed: such a command lands, Spark decodes what it landed."""
    cases = None if request.param in WHOLE else SAMPLE
    paths = [path for path in corpus.segments() if cases is None or corpus.case(path) in cases]
    lake = str(tmp_path_factory.mktemp("corpus") / "lake")
    shutil.copytree(lake_template, lake)
    _decode(spark, lake, sorted({str(corpus.ROOT / corpus.case(path)) for path in paths}), request.param)
    return Made(lake, paths)


def _decode(spark: SparkSession, made: str, sources: list[str], way: str) -> None:
    if way == "processes":
        printed = command("decode_batches", made, sources)
        assert (printed["damaged"], "starting Spark" in printed["phases"]) == (0, False)
        return
    if way in ("raw", "landed"):
        if way == "landed":
            command("ingest_raw", made, sources)
        else:
            ingest_raw.run(spark, Settings(lake=made, source=tuple(sources)))
        summary = decode_batches.run(spark, Settings(lake=made, from_raw=True))
    else:
        settings = Settings(lake=made, source=tuple(sources), read="direct" if way == "direct" else "binary")
        if way == "in parts":
            settings = replace(settings, max_content=1000, slice_bytes=4000)
        summary = decode_batches.run(spark, settings)
    assert summary.damaged == 0


def command(name: str, lake: str, sources: Sequence[str]) -> dict[str, Any]:
    """Runs a command in a separate process; what it prints."""
    words = ["-m", f"pipelines.{name}", "--json", "--lake", lake, *(f"--source={one}" for one in sources)]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def by_segment(lake: str, table: str) -> Rows:
    """Rows of each segment by its URI, timestamps as microseconds."""
    found: pa.Table = DeltaTable(f"{lake}/{table}").to_pyarrow_table()
    for at, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type):
            found = found.set_column(at, field.name, found.column(at).cast(pa.int64()))
    printed: Rows = defaultdict(list)
    for row in found.to_pylist():
        printed[row["segment"]].append(row)
    return printed


def compared(row: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in like}


def test_batches_equal_kafka_s_reading(made: Made) -> None:
    found = by_segment(made.lake, "batches")
    assert set(found) == {f"file://{path}" for path in made.paths}
    for path in made.paths:
        topic, partition = corpus.topic_partition(path)
        printed = sorted(found[f"file://{path}"], key=lambda row: row["position"])
        expected = [corpus.batch_columns(line) for line in corpus.oracle_batches(path)]
        assert [compared(row, want) for row, want in zip(printed, expected, strict=True)] == expected, path
        assert {(row["topic"], row["partition"], row["status"]) for row in printed} == {
            (topic, partition, "ok")
        }


def test_records_equal_kafka_s_reading(made: Made) -> None:
    found = by_segment(made.lake, "records")
    for path in made.paths:
        place = dict(zip(("topic", "partition"), corpus.topic_partition(path), strict=True))
        expected = [row | place for row in corpus.expected_records(path)]
        printed = sorted(found[f"file://{path}"], key=lambda row: (row["batch_position"], row["offset"]))
        printed = [
            row | {"headers": row["headers"] and [(h["key"], h["value"]) for h in row["headers"]]}
            for row in printed
        ]
        printed = corpus.like_the_oracle(printed, path)
        assert [compared(row, want) for row, want in zip(printed, expected, strict=True)] == expected, path
    assert sum(map(len, found.values())) == sum(len(corpus.oracle_records(path)) for path in made.paths)


def test_the_ledger_accounts_for_every_byte(made: Made) -> None:
    found = {row["segment"]: row for row in rows(made.lake, "segments")}
    for path in made.paths:
        row = found[f"file://{path}"]
        assert row["length"] == path.stat().st_size
        assert row["decoded_bytes"] + row["tail_bytes"] == row["length"]
        assert row["records"] == len(corpus.oracle_records(path))


def consumed() -> Iterator[tuple[str, int, list[int]]]:
    """Partition folders, their log start offsets, the offsets that a READ_COMMITTED consumer got of them."""
    for path in sorted(corpus.ORACLE.glob("*/*/read_committed.jsonl")):
        start = json.loads((path.parent / "offsets.json").read_text())["logStartOffset"]
        offsets = [json.loads(line)["offset"] for line in path.read_text().splitlines()]
        yield f"file://{corpus.ROOT / path.parent.relative_to(corpus.ORACLE)}", start, offsets


def test_committed_records_are_what_consumers_got(spark: SparkSession, made: Made) -> None:
    register_views(spark, made.lake, "committed_records")
    found: dict[str, list[int]] = defaultdict(list)
    statement = "SELECT regexp_replace(segment, '/[^/]*$', '') AS folder, offset FROM committed_records"
    for folder, offset in spark.sql(statement).toArrow().to_pandas().itertuples(index=False):
        found[folder].append(offset)
    there, is_whole = {f"file://{path.parent}" for path in made.paths}, made.paths == corpus.segments()
    partitions = [one for one in consumed() if is_whole or one[0] in there]  # some have no record
    assert len(partitions) == (143 if is_whole else 17)
    for folder, start, offsets in partitions:
        # A broker hides records before the log start offset, which it keeps next to the segments
        assert sorted(offset for offset in found[folder] if offset >= start) == offsets, folder

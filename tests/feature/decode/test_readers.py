"""Readers that know nothing of this project: each version of each table, opened plainly, is right."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from kafka_log_lake.pipelines import decode_batches
from tests.support.logs import batch, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "orders.v1-a"
Rows = Counter[tuple[str, int, int, int, bytes]]
COLUMNS = ("topic", "partition", "magic", "offset", "value")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Rows]]:
    """A lake after a log grew, was rewritten and decoded again, and the states that its runs published."""
    root = tmp_path_factory.mktemp("life")
    folder, other = root / "logs" / f"{TOPIC}-0", root / "logs" / f"{TOPIC}-1"
    states: list[Rows] = [Counter()]

    def run(*options: str) -> None:
        argv = ["--source", str(root / "logs"), "--lake", str(root / "lake"), *options]
        assert decode_batches.main(argv) == 0
        states.append(plain(root / "lake"))

    put(folder, 0, batch(0), batch(3))
    put(other, 0, batch(0, text="o"))
    run()
    put(folder, 0, batch(0), batch(3), batch(6))
    run()
    path = put(folder, 0, batch(0, 1), batch(6, text="w"))  # what the cleaner leaves, under the same name
    os.utime(path, (1_700_000_000,) * 2)
    run()
    run("--redecode", ".*")
    return root / "lake", states


def counted(rows: Any) -> Rows:
    return Counter(tuple(row[name] for name in COLUMNS) for row in rows)


def plain(lake: Path, version: int | None = None) -> Rows:
    return counted(DeltaTable(lake / "records", version=version).to_pyarrow_table().to_pylist())


def by_every_reader(lake: Path, version: int) -> Iterator[tuple[str, Rows]]:
    table = DeltaTable(lake / "records", version=version)
    yield "pyarrow", counted(table.to_pyarrow_table().to_pylist())
    yield "pandas", counted(table.to_pandas()[list(COLUMNS)].to_dict("records"))
    query = QueryBuilder().register("r", table).execute("SELECT * FROM r")
    yield "DataFusion", counted(pa.RecordBatchReader.from_stream(query).read_all().to_pylist())
    yield "Polars", counted(pl.scan_delta(str(lake / "records"), version=version).collect().to_dicts())
    over = duckdb.connect()
    over.register("d", table.to_pyarrow_dataset())
    yield "DuckDB over deltalake", counted(over.sql("SELECT * FROM d").to_arrow_table().to_pylist())
    files = [uri.removeprefix("file://") for uri in table.file_uris()]
    if files:
        hive = over.sql(f"SELECT * FROM read_parquet({files!r}, hive_partitioning = true)")
        yield "DuckDB by Hive folders", counted(hive.to_arrow_table().to_pylist())


def test_each_version_is_a_state_that_a_run_published_for_every_reader(life: tuple[Path, list[Rows]]) -> None:
    lake, states = life
    for version in range(DeltaTable(lake / "records").version() + 1):
        expected = plain(lake, version)
        assert expected in states, version
        for reader, found in by_every_reader(lake, version):
            assert found == expected, (version, reader)


@pytest.mark.parametrize("table", ["batches", "segments", "quarantine", "transactions"])
def test_no_version_of_another_table_has_a_row_twice(life: tuple[Path, list[Rows]], table: str) -> None:
    lake, _ = life
    place = ["segment", "position"] if table in ("batches", "quarantine") else ["segment"]
    for version in range(DeltaTable(lake / table).version() + 1):
        rows = DeltaTable(lake / table, version=version).to_pyarrow_table()
        if "segment" in rows.column_names:
            places = rows.select(place).to_pylist()
            assert len(places) == len({tuple(one.values()) for one in places})


def test_a_filter_of_polars_finds_a_topic_by_its_folder(life: tuple[Path, list[Rows]]) -> None:
    lake, states = life
    found = pl.scan_delta(str(lake / "records")).filter(pl.col("topic") == TOPIC).collect()
    assert found.height == states[-1].total() > 0
    folders = {path.name for path in (lake / "records").iterdir()} - {"_delta_log"}
    assert folders == {f"topic={TOPIC}"}


@pytest.mark.spark
def test_spark_reads_the_same_at_once_by_version_and_as_a_stream(
    spark: SparkSession, life: tuple[Path, list[Rows]], tmp_path: Path
) -> None:
    lake, states = life
    path = str(lake / "records")
    for version in range(DeltaTable(path).version() + 1):
        frame = spark.read.format("delta").option("versionAsOf", version).load(path)
        rows = ({**row.asDict(), "value": bytes(row["value"])} for row in frame.collect())
        assert counted(rows) == plain(lake, version)
    # the first two runs only append: a stream that ends there sees each row once
    stream = spark.readStream.format("delta").option("ignoreChanges", "true").load(path)
    query = (
        stream.writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seen = spark.sql("SELECT count(*) AS n FROM seen").first()
    assert seen is not None
    assert seen["n"] == states[-1].total()

"""The sample of a topic is read in parts: large records must not lie in memory all at once."""

import os
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from kafka_log_lake import connect
from kafka_log_lake.pipelines.typed.records_files import lake_sample, sampled_formats
from kafka_log_lake.udfs.format.schema import RECORDS
from kafka_log_lake.udfs.values.schemas.registry import Registry

_SCHEMA = RECORDS.arrow_schema()


def _records(folder: Path, size: int, headers: int) -> DeltaTable:
    """Writes 30 segments of 20 records in files out of order. headers: bytes that a record has besides."""
    for number in (*range(29, 0, -2), *range(0, 30, 2)):
        rows = [
            {
                "topic": "big",
                "partition": number % 2,
                "segment": f"big-{number % 2}/{number:020d}.log",
                "batch_position": row,
                "offset": row,
                "key": b"%d/%d" % (number, row),
                "value": bytes(size),
                "is_control": row == 0,
                "size_bytes": size + headers,
            }
            for row in range(20)
        ]
        write_deltalake(folder, pa.Table.from_pylist(rows, _SCHEMA), mode="append")
    return DeltaTable(folder)


def _in_order(count: int) -> list[bytes]:
    keys = [b"%d/%d" % (number, row) for of in (0, 1) for number in range(of, 30, 2) for row in range(1, 20)]
    return keys[:count]


def test_records_of_several_parts_come_in_their_order_and_each_once(tmp_path: Path) -> None:
    sample = lake_sample(_records(tmp_path, 10, headers=3 << 20), "big")
    assert sample.column("key").to_pylist() == _in_order(500)


def test_large_values_end_the_sample(tmp_path: Path) -> None:
    sample = lake_sample(_records(tmp_path, 1 << 20, headers=0), "big")
    assert sample.column("key").to_pylist() == _in_order(16)


def test_the_view_has_the_same_sample(lake: str) -> None:
    sample = lake_sample(_records(Path(lake, "records"), 100_000, headers=0), "big").column("key").to_pylist()
    assert sample == _in_order(168)
    seen = connect(lake).sql("SELECT key FROM topic_samples WHERE topic = 'big'").fetchall()
    assert sorted(key for (key,) in seen) == sorted(sample)


def test_a_file_that_is_gone_costs_the_formats_of_its_topic_alone(tmp_path: Path) -> None:
    for topic in ("gone", "there"):
        row: dict[str, object] = {
            "topic": topic,
            "partition": 0,
            "segment": f"{topic}-0/{0:020d}.log",
            "batch_position": 0,
        }
        row |= {"offset": 0, "value": b"text", "is_control": False, "size_bytes": 4}
        rows = pa.Table.from_pylist([row], _SCHEMA)
        write_deltalake(tmp_path, rows, mode="append", partition_by=["topic", "partition"])
    (file,) = tmp_path.glob("topic=gone/**/*.parquet")
    os.remove(file)
    found = sampled_formats(DeltaTable(tmp_path), Registry())
    assert {of_topic.topic for of_topic in found} == {"there"}

"""What Spark lists of a source that only its JVM opens: the same files, by the same names, as elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.listing import hadoop, stores
from kafka_log_lake.pipelines.listing.list_segments import list_segments
from tests.support import swap_cases
from tests.support.logs import put

# Names that Spark's recursive listing drops, takes for partitions or patterns, or that look encoded
NAMES = [
    "plain-0",
    "__consumer_offsets-7",
    "_schemas-0",
    "k=v-1",
    "with blank-0",
    "br[a-c]{x,y}-0",
    "q?*-0",
    "pct%2F%41-0",
    "quo'te\"`-0",
    "ünï💡-2147483647",
]


def test_a_uri_that_spark_cannot_open_is_reported(spark: SparkSession) -> None:
    with pytest.raises(UserError, match="can't be opened"):
        list_segments("nosuch://host/logs", on_demand=SparkOnDemand(Settings(), given=spark))


def test_files_that_spark_lists_are_named_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Another file system than the local one, as ``file://`` through Hadoop."""
    root = tmp_path / "logs %41 [a] it's"
    paths = [put(root / name, 0, b"x") for name in NAMES]
    files, named = hadoop.list_files(spark, f"file:{root}")
    assert sorted(files.column("path").to_pylist()) == sorted(f"file:{path}" for path in paths)
    assert named == set()
    one, named = hadoop.list_files(spark, f"file:{paths[0]}")
    assert (one.num_rows, named) == (1, {f"file:{paths[0]}"})


def test_file_systems_list_swap_files_alike(spark: SparkSession, tmp_path: Path) -> None:
    """The local one, object stores (here the files as pyarrow lists them), and those that Spark lists."""
    for case in swap_cases.CASES:
        case(tmp_path / f"{case.__name__}-0")
    suffixes = (".log", ".log.swap", ".cleaned")
    expected = sorted(str(p) for p in tmp_path.rglob("*") if p.name.endswith(suffixes))
    by_spark, _ = hadoop.list_files(spark, f"file:{tmp_path}", suffixes)
    by_arrow, _ = stores.list_files(f"file://{tmp_path}", suffixes)
    for found in (by_spark, by_arrow):
        assert (
            sorted(path.partition(":")[2].replace("//", "") for path in found.column("path").to_pylist())
            == expected
        )
    one = tmp_path / "only_copy-0" / f"{15:020d}.log"
    assert hadoop.list_files(spark, f"file:{one}", suffixes)[0].num_rows == 2

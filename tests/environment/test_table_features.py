"""What others do to the tables: features of Delta that deltalake can't write, and readers without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.lake.address import sql_table
from kafka_log_lake.pipelines.lake.create import add_rows
from kafka_log_lake.udfs.format.report_tables import QUALITY_METRICS
from tests.support import as_command
from tests.support.logs import batches, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("feature", "table", "turned_on_by"),
    [
        ("columnMapping", "records", "'delta.columnMapping.mode' = 'name'"),
        ("rowTracking", "segments", "'delta.enableRowTracking' = 'true'"),
        ("inCommitTimestamp", "quarantine", "'delta.enableInCommitTimestamps' = 'true'"),
    ],
)
def test_a_feature_that_deltalake_lacks_is_refused(
    spark: SparkSession, lake: str, tmp_path: Path, feature: str, table: str, turned_on_by: str
) -> None:
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    spark.sql(f"ALTER TABLE {sql_table(lake, table)} SET TBLPROPERTIES ({turned_on_by})")
    with pytest.raises(UserError, match=rf"/{table} has Delta's feature {feature} .*DROP FEATURE {feature}"):
        as_command.decode(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake))
    assert rows(lake, "segments") == []


def test_a_report_that_its_table_does_not_take_says_why(spark: SparkSession, lake: str) -> None:
    measured = pa.Table.from_pylist([{}], schema=QUALITY_METRICS.arrow_schema())
    add_rows(lake, QUALITY_METRICS, measured)
    spark.sql(
        f"ALTER TABLE {sql_table(lake, QUALITY_METRICS.name)} "
        "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    with pytest.raises(CommitFailedError, match="Unsupported table features required"):
        add_rows(lake, QUALITY_METRICS, measured)


READERS = {
    "polars": """
import polars
frame = polars.read_delta(path, use_pyarrow=True)
print(len(frame), frame["offset"].sum())
""",
    "pandas": """
from deltalake import DeltaTable
frame = DeltaTable(path).to_pandas()
print(len(frame), frame["offset"].sum())
""",
    "duckdb": """
import duckdb
from deltalake import DeltaTable
frame = DeltaTable(path).to_pyarrow_dataset()
print(*duckdb.sql("SELECT count(*), sum(\\"offset\\") FROM frame").fetchall()[0])
""",
}


@pytest.fixture(scope="module")
def decoded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("read")
    lake = str(folder / "lake")
    for topic in ("a", "b", "c"):
        put(folder / "logs" / f"{topic}-0", 0, *batches(0, 3))
        as_command.decode(spark, Settings(source=(str(folder / "logs"),), lake=lake))
    return lake


@pytest.mark.parametrize("reader", READERS)
def test_tables_are_read_by(decoded: str, reader: str) -> None:
    code = f"path = {decoded + '/records'!r}\n{READERS[reader]}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["27", str(3 * sum(range(9)))], done.stderr

"""Tables and views on real Delta tables: what is made, what is refused, and what the views answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import pipelines
from pipelines.command.errors import UserError
from pipelines.lake.address import sql_table
from pipelines.lake.create import create_tables
from pipelines.views.register import VIEWS
from tests.support.lake_rows import insert
from udfs.format.schema import RECORDS, TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def versions(lake: str) -> dict[str, int]:
    return {table.name: DeltaTable(f"{lake}/{table.name}").version() for table in TABLES}


def test_tables_are_as_declared(spark: SparkSession, lake: str) -> None:
    for table in TABLES:
        detail = spark.sql(f"DESCRIBE DETAIL {sql_table(lake, table.name)}").first()
        assert detail is not None
        assert detail["description"] == table.comment
        assert tuple(detail["partitionColumns"]) == table.partitioned_by
        assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 2)
        fields = spark.table(sql_table(lake, table.name)).schema.fields
        found = [(field.name, field.dataType.simpleString(), field.metadata["comment"]) for field in fields]
        assert found == [(column.name, column.sql_type, column.comment) for column in table.columns]


def test_a_second_making_commits_nothing(spark: SparkSession, lake: str) -> None:
    create_tables(spark, lake)
    assert set(versions(lake).values()) == {0}


def test_a_making_cut_short_is_completed(spark: SparkSession, lake: str) -> None:
    before = versions(lake)
    for name in ("segments", "transactions"):
        shutil.rmtree(Path(lake, name))
    assert create_tables(spark, lake) == lake
    assert versions(lake) == before


def test_folder_with_something_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=r"holds photos\) and is no lake"):
        create_tables(spark, str(tmp_path))


def test_foreign_delta_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).write.format("delta").save(str(tmp_path / "records"))
    with pytest.raises(UserError, match="cannot make the table"):
        create_tables(spark, str(tmp_path))


@pytest.mark.parametrize("name", ["a[1]", "a%20b", "a\\b", "a\nb"])
def test_name_that_delta_libraries_read_differently_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(UserError, match="which deltalake reads otherwise"):
        create_tables(spark, f"/tmp/{name}")


def test_file_in_the_way_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        create_tables(spark, str(tmp_path / "file" / "lake"))


def test_unknown_file_system_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UserError, match="cannot"):
        create_tables(spark, "nosuch://bucket/lake")


def test_newer_lake_is_refused(spark: SparkSession, lake: str) -> None:
    spark.sql(
        f"ALTER TABLE {sql_table(lake, 'segments')} SET TBLPROPERTIES ('kafkaLogLake.schemaVersion'='9')"
    )
    with pytest.raises(UserError, match="schema version 9"):
        create_tables(spark, lake)


def test_register_refuses_what_is_no_lake(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no lake"):
        pipelines.register(spark, str(tmp_path))


def test_catalog_schema_needs_a_catalog_that_stays(spark: SparkSession, lake: str) -> None:
    with pytest.raises(UserError, match="in memory"):
        create_tables(spark, lake, catalog_schema="kafka")


REGISTER = """
import sys
from pipelines.command.options import exit_code_of
from pipelines.command.session import session
from pipelines.command.settings import Settings
from pipelines.lake.create import create_tables

def job():
    with session(Settings(catalog_schema="kafka")) as spark:
        create_tables(spark, sys.argv[1], "kafka")
        create_tables(spark, sys.argv[1], "kafka")
        print([row["tableName"] for row in spark.sql("SHOW TABLES IN kafka").collect()])
        print(spark.sql("SELECT count(*) FROM kafka.latest_by_key").collect())
        create_tables(spark, sys.argv[2], "kafka")

sys.exit(exit_code_of(job))
"""


def test_catalog_schema_holds_tables_and_views_of_one_lake(
    spark: SparkSession, lake: str, lake_template: str, tmp_path: Path
) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    (folder / "register.py").write_text(REGISTER)
    submit = str(Path(sys.executable).with_name("spark-submit"))
    conf = ["--conf", "spark.sql.catalogImplementation=hive", "--conf", f"spark.sql.warehouse.dir={folder}/w"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    done = subprocess.run(
        [submit, *conf, "register.py", lake, lake_template],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    names = sorted([*(table.name for table in TABLES), *(view.name for view in VIEWS)])
    refused = "error: --catalog-schema: `kafka`.`records` is there already and belongs to another lake"
    assert done.stdout.splitlines() == [str(names), "[Row(count(1)=0)]", refused]
    assert done.returncode == 2


SEGMENT = "file:///logs/t-0/00000000000000000000.log"
REPLICA = "file:///other/t-0/00000000000000000000.log"


def record(offset: int, **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": "t",
        "partition": 0,
        "magic": 2,
        "segment": SEGMENT,
        "producer_id": -1,
        "is_transactional": False,
        "is_control": False,
        "key": b"k",
        "value": b"v",
    }
    return {**row, "offset": offset, **values}


def transaction(producer_id: int, first: int | None, marker: int | None, outcome: str) -> dict[str, Any]:
    return {
        "topic": "t",
        "partition": 0,
        "log_dir": "file:///logs/t-0",
        "producer_id": producer_id,
        "first_offset": first,
        "marker_offset": marker,
        "outcome": outcome,
    }


def offsets(spark: SparkSession, lake: str, view: str, where: str = "true") -> list[int]:
    pipelines.register(spark, lake)
    return [row[0] for row in spark.sql(f"SELECT offset FROM {view} WHERE {where} ORDER BY offset").collect()]


def test_without_transactions_all_but_control_records_are_committed(spark: SparkSession, lake: str) -> None:
    insert(spark, lake, "records", [record(0), record(1, is_control=True), record(2)])
    assert offsets(spark, lake, "committed_records") == [0, 2]
    columns = spark.table("committed_records").columns
    assert columns == [column.name for column in RECORDS.columns]


def test_aborted_data_are_left_out_by_producer(spark: SparkSession, lake: str) -> None:
    own = {"producer_id": 7, "is_transactional": True}
    other = {"producer_id": 8, "is_transactional": True}
    rows = [record(0, **own), record(1, **other), record(2), record(3, **own)]
    rows += [record(4, **own, is_control=True), record(5, **own), record(6, producer_id=7)]
    insert(spark, lake, "records", rows)
    insert(spark, lake, "transactions", [transaction(7, 0, 4, "aborted"), transaction(8, 1, 9, "committed")])
    assert offsets(spark, lake, "committed_records") == [1, 2, 5, 6]


def test_idempotent_records_amid_an_aborted_transaction_stay(spark: SparkSession, lake: str) -> None:
    rows = [record(0, producer_id=7, is_transactional=True), record(1, producer_id=7)]
    insert(spark, lake, "records", rows)
    insert(spark, lake, "transactions", [transaction(7, 0, 2, "aborted"), transaction(9, None, 3, "aborted")])
    assert offsets(spark, lake, "committed_records") == [1]


def test_nothing_at_or_past_the_first_open_transaction_of_its_own_log(spark: SparkSession, lake: str) -> None:
    rows = [record(offset) for offset in range(4)] + [record(offset, segment=REPLICA) for offset in range(4)]
    insert(spark, lake, "records", rows)
    insert(spark, lake, "transactions", [transaction(7, 3, None, "open"), transaction(8, 2, None, "open")])
    assert offsets(spark, lake, "committed_records", f"segment = '{SEGMENT}'") == [0, 1]
    assert offsets(spark, lake, "committed_records", f"segment = '{REPLICA}'") == [0, 1, 2, 3]


def test_latest_by_key_is_what_compaction_would_keep(spark: SparkSession, lake: str) -> None:
    rows = [record(0, key=b"a"), record(1, key=b"a"), record(1, key=b"a", segment=REPLICA)]
    rows += [record(2, key=b"gone"), record(3, key=b"gone", value=None), record(4, key=None)]
    rows += [
        record(5, key=b"", value=b""),
        record(6, key=b"a", is_control=True),
        record(7, key=b"a", partition=1),
    ]
    insert(spark, lake, "records", rows)
    assert offsets(spark, lake, "latest_by_key") == [1, 5, 7]


def test_crc_report_counts_failures_and_damage(spark: SparkSession, lake: str) -> None:
    batch = {"topic": "t", "partition": 0, "magic": 2, "segment": SEGMENT, "size_bytes": 100}
    insert(
        spark,
        lake,
        "batches",
        [
            {**batch, "position": 0, "crc_ok": True},
            {**batch, "position": 100, "crc_ok": False},
            {**batch, "position": 300, "crc_ok": True, "magic": 1},
        ],
    )
    damage = {"topic": "t", "partition": 0, "segment": SEGMENT, "size_bytes": 100}
    insert(spark, lake, "quarantine", [{**damage, "position": 100}, {**damage, "position": 200}])
    pipelines.register(spark, lake)
    report = [tuple(row) for row in spark.sql("SELECT * FROM crc_report ORDER BY magic").collect()]
    assert report == [
        ("t", 0, None, 0, 0, 0, None, 100),
        ("t", 0, 1, 1, 100, 0, 0.0, 0),
        ("t", 0, 2, 2, 200, 1, 0.5, 100),
    ]

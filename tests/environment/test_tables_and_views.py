"""Tables and views on real Delta tables: what is made, what is refused, and what the views answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.dataframes.register import register_views
from kafka_log_lake.pipelines.engine.session import ONLY_PLANS
from kafka_log_lake.pipelines.lake.address import sql_table
from kafka_log_lake.pipelines.lake.create import create_tables
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.pipelines.views.declared import VIEWS
from kafka_log_lake.pipelines.views.permanent import register_in_catalog
from kafka_log_lake.udfs.format.schema import RECORDS, TABLES
from tests.support.lake_rows import insert

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


def test_a_second_making_commits_nothing(lake: str) -> None:
    create_tables(lake)
    assert set(versions(lake).values()) == {0}


def test_a_making_cut_short_is_completed(lake: str) -> None:
    before = versions(lake)
    for name in ("segments", "transactions"):
        shutil.rmtree(Path(lake, name))
    create_tables(lake)
    assert versions(lake) == before


def test_folder_with_something_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=r"holds photos\) and is not a lake"):
        create_tables(str(tmp_path))


def test_foreign_delta_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).write.format("delta").save(str(tmp_path / "records"))
    with pytest.raises(UserError, match="cannot create the table"):
        create_tables(str(tmp_path))


@pytest.mark.parametrize("name", ["a[1]", "a%20b", "a\\b", "a\nb", "a|b", "a^b"])
def test_name_that_delta_libraries_read_differently_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(UserError, match="which deltalake does not read as it is"):
        create_tables(f"/tmp/{name}")


def test_file_in_the_way_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        create_tables(str(tmp_path / "file" / "lake"))


def test_unknown_file_system_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UserError, match="cannot"):
        create_tables("nosuch://bucket/lake")


@pytest.mark.parametrize(("version", "how"), [(9, "use a newer release"), (1, "decode into a new --lake")])
def test_a_lake_of_another_release_is_refused(spark: SparkSession, lake: str, version: int, how: str) -> None:
    spark.sql(
        f"ALTER TABLE {sql_table(lake, 'segments')} "
        f"SET TBLPROPERTIES ('kafkaLogLake.schemaVersion'='{version}')"
    )
    with pytest.raises(UserError, match=f"schema version {version}.*{how}"):
        create_tables(lake)


def test_catalog_schema_needs_a_catalog_that_stays(spark: SparkSession, lake: str) -> None:
    with pytest.raises(UserError, match="in memory"):
        register_in_catalog(spark, lake, "kafka")


REGISTER = """
import sys
from kafka_log_lake.pipelines.cli.options import exit_code_of
from kafka_log_lake.pipelines.engine.session import session
from kafka_log_lake.pipelines.cli.settings import (Settings)
from kafka_log_lake.pipelines.views.permanent import register_in_catalog

def job():
    with session(Settings(catalog_schema="kafka")) as spark:
        register_in_catalog(spark, sys.argv[1], "kafka")
        spark.range(1).createOrReplaceTempView("records")  # of the same name, as register_views() makes them
        register_in_catalog(spark, sys.argv[1], "kafka")
        spark.sql("DROP VIEW kafka.messages")
        register_in_catalog(spark, sys.argv[1], "kafka")
        found = spark.sql("SHOW TABLES IN kafka").where("NOT isTemporary")
        print([row["tableName"] for row in found.collect()])
        print(spark.sql("SELECT count(*) FROM kafka.latest_by_key").collect())
        register_in_catalog(spark, sys.argv[2], "kafka")

sys.exit(exit_code_of(job))
"""


def test_hive_holds_the_comments_of_columns() -> None:
    """Its metastore has room for 256 characters. It tries ten times, two seconds apart, to store more."""
    too_long = [f"{v.name}.{column.name}" for v in VIEWS for column in v.columns if len(column.comment) > 256]
    assert too_long == []


def test_catalog_schema_holds_tables_and_views_of_one_lake(
    spark: SparkSession, lake: str, lake_template: str, tmp_path: Path
) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    (folder / "register.py").write_text(REGISTER)
    submit = str(Path(sys.executable).with_name("spark-submit"))
    kept = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{folder}/w",
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    }
    conf = [word for pair in {**ONLY_PLANS, **kept}.items() for word in ("--conf", "=".join(pair))]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(
        [submit, *conf, "register.py", lake, lake_template],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    names = sorted([*(table.name for table in TABLES), *(view.name for view in VIEWS)])
    refused = "error: --catalog-schema: `kafka`.`records` already exists and belongs to another lake"
    assert done.stdout.splitlines() == [str(names), "[Row(count(1)=0)]", refused]
    assert done.returncode == 2


SEGMENT = "file:///logs/t-0/00000000000000000000.log"
REPLICA = "file:///other/t-0/00000000000000000000.log"


def published(lake: str, *segments: str, **values: Any) -> None:
    """The ledger names these segments."""
    rows = [
        LedgerRow(
            topic="t",
            partition=0,
            partition_dir=name.rpartition("/")[0],
            segment=name,
            file_base_offset=0,
            decoded_bytes=1000,
        )
        for name in segments
    ]
    made = ledger.to_arrow([replace(row, **values) for row in rows])
    write_deltalake(f"{lake}/segments", made, mode="append")


def record(offset: int, **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": "t",
        "partition": 0,
        "magic": 2,
        "segment": SEGMENT,
        "batch_position": offset,
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
        "partition_dir": "file:///logs/t-0",
        "producer_id": producer_id,
        "first_offset": first,
        "last_offset": first if marker is None else marker - 1,
        "marker_offset": marker,
        "outcome": outcome,
        "holds_last_stable_offset": outcome == "open",
    }


def offsets(spark: SparkSession, lake: str, view: str, where: str = "true") -> list[int]:
    register_views(spark, lake, view)
    return [row[0] for row in spark.sql(f"SELECT offset FROM {view} WHERE {where} ORDER BY offset").collect()]


def test_without_transactions_all_but_control_records_are_committed(spark: SparkSession, lake: str) -> None:
    published(lake, SEGMENT)
    insert(lake, "records", [record(0), record(1, is_control=True), record(2)])
    assert offsets(spark, lake, "committed_records") == [0, 2]
    columns = spark.table("committed_records").columns
    assert columns == [column.name for column in RECORDS.columns]


def test_aborted_data_are_left_out_by_producer(spark: SparkSession, lake: str) -> None:
    published(lake, SEGMENT)
    own = {"producer_id": 7, "is_transactional": True}
    other = {"producer_id": 8, "is_transactional": True}
    rows = [record(0, **own), record(1, **other), record(2), record(3, **own)]
    rows += [record(4, **own, is_control=True), record(5, **own), record(6, producer_id=7)]
    insert(lake, "records", rows)
    insert(lake, "transactions", [transaction(7, 0, 4, "aborted"), transaction(8, 1, 9, "committed")])
    assert offsets(spark, lake, "committed_records") == [1, 2, 5, 6]


def test_idempotent_records_amid_an_aborted_transaction_stay(spark: SparkSession, lake: str) -> None:
    published(lake, SEGMENT)
    rows = [record(0, producer_id=7, is_transactional=True), record(1, producer_id=7)]
    insert(lake, "records", rows)
    insert(lake, "transactions", [transaction(7, 0, 2, "aborted"), transaction(9, None, 3, "aborted")])
    assert offsets(spark, lake, "committed_records") == [1]


def test_nothing_at_or_past_the_first_open_transaction_of_its_own_log(spark: SparkSession, lake: str) -> None:
    published(lake, SEGMENT, REPLICA)
    rows = [record(offset) for offset in range(4)] + [record(offset, segment=REPLICA) for offset in range(4)]
    insert(lake, "records", rows)
    insert(lake, "transactions", [transaction(7, 3, None, "open"), transaction(8, 2, None, "open")])
    assert offsets(spark, lake, "committed_records", f"segment = '{SEGMENT}'") == [0, 1]
    assert offsets(spark, lake, "committed_records", f"segment = '{REPLICA}'") == [0, 1, 2, 3]


def test_a_view_that_holds_a_small_table_is_what_spark_reads_of_it(spark: SparkSession, lake: str) -> None:
    """Also its comments, its times, and a column that somebody added."""
    published(lake, SEGMENT, modified=1_767_323_045_678)
    published(lake, REPLICA)
    insert(lake, "transactions", [transaction(7, 0, 4, "aborted"), transaction(8, 1, None, "open")])
    spark.sql(f"ALTER TABLE {sql_table(lake, 'transactions')} ADD COLUMN note STRING COMMENT 'by hand'")
    found = []
    for live in (True, False):
        register_views(spark, lake, "FROM segments, transactions, quarantine", live=live)
        tables = [spark.table(name) for name in ("segments", "transactions", "quarantine")]
        found.append([(one.schema.json(), sorted(map(str, one.collect()))) for one in tables])
    assert found[0] == found[1]
    assert "by hand" in found[1][1][0]


def test_a_view_of_few_rows_holds_what_spark_computes_from_the_live_tables(
    spark: SparkSession, lake: str
) -> None:
    published(lake, SEGMENT, modified=1_767_323_045_678)
    published(lake, REPLICA)
    insert(lake, "transactions", [transaction(7, 0, 4, "aborted"), transaction(8, 1, None, "open")])
    of_log = {"topic": "t", "partition": 0, "partition_dir": SEGMENT.rpartition("/")[0]}
    insert(lake, "offset_findings", [{**of_log, "segment": SEGMENT, "kind": "compacted"}])
    insert(lake, "checkpoints", [{**of_log, "log_start_offset": 3, "read_at": 1_767_323_045_678_901}])
    names = ["current_transactions", "undelivered_offsets", "last_stable_offsets", "log_starts"]
    names += ["log_clusters", "log_ends", "log_stretches", "current_checkpoints", "compacted_logs"]
    found = []
    for live in (True, False):
        register_views(spark, lake, ", ".join(names), live=live)
        views = [spark.table(name) for name in names]
        columns = [[(c.name, c.dataType, c.metadata.get("comment")) for c in view.schema] for view in views]
        found.append((columns, [sorted(map(str, view.collect())) for view in views]))
    assert found[0] == found[1]
    assert [len(rows) for rows in found[1][1]] == [2, 1, 1, 2, 0, 2, 2, 1, 1]
    (plan,) = spark.sql("EXPLAIN SELECT * FROM log_starts").collect()
    assert "LocalTableScan" in plan[0]
    assert "Aggregate" not in plan[0]


def test_a_transaction_of_unknown_outcome_is_left_out_and_holds_nothing_back(
    spark: SparkSession, lake: str
) -> None:
    published(lake, SEGMENT)
    own = {"producer_id": 7, "is_transactional": True}
    insert(lake, "records", [record(0), record(1, **own), record(2, **own), record(3), record(4, **own)])
    unknown = transaction(7, 1, None, "open") | {"holds_last_stable_offset": False, "last_offset": 2}
    insert(lake, "transactions", [unknown])
    assert offsets(spark, lake, "committed_records") == [0, 3, 4]


def test_latest_by_key_is_what_compaction_would_keep(spark: SparkSession, lake: str) -> None:
    other = "file:///logs/t-1/00000000000000000000.log"
    published(lake, SEGMENT, REPLICA)
    published(lake, other, partition=1)
    rows = [record(0, key=b"a"), record(1, key=b"a"), record(1, key=b"a", segment=REPLICA)]
    rows += [record(2, key=b"gone"), record(3, key=b"gone", value=None), record(4, key=None)]
    rows += [
        record(5, key=b"", value=b""),
        record(6, key=b"a", is_control=True),
        record(7, key=b"a", partition=1, segment=other),
    ]
    insert(lake, "records", rows)
    assert offsets(spark, lake, "latest_by_key") == [1, 5, 7]
    columns = spark.table("latest_by_key").columns
    assert columns == [column.name for column in RECORDS.columns]


def test_messages_are_text_where_the_bytes_are_text(spark: SparkSession, lake: str) -> None:
    published(lake, SEGMENT)
    repeated = [{"key": "h", "value": b"old"}, {"key": "h", "value": b"new"}, {"key": "n", "value": None}]
    odd = [{"key": "h", "value": b"\xff"}]
    rows = [
        record(0, key="clé".encode(), value=b'{"a": 1}', headers=repeated),
        record(1, key=b"\xff\xfe", value=None, headers=odd),
        record(2, key=b"", value=b"a\xc3", headers=None),
        record(3, is_control=True),
    ]
    insert(lake, "records", rows)
    register_views(spark, lake, "messages")
    found = spark.table("messages").orderBy("offset").collect()
    assert [(r.key_text, r.value_text, r.headers_text) for r in found] == [
        ("clé", '{"a": 1}', {"h": "new", "n": None}),
        (None, None, {"h": None}),
        ("", None, None),
    ]
    assert [r.key for r in found] == ["clé".encode(), b"\xff\xfe", b""]
    assert [header.value for header in found[0].headers] == [b"old", b"new", None]


def test_crc_report_counts_failures_and_damage(spark: SparkSession, lake: str) -> None:
    published(lake, SEGMENT)
    batch = {"topic": "t", "partition": 0, "magic": 2, "segment": SEGMENT, "size_bytes": 100}
    found = [
        {**batch, "position": 0, "crc_ok": True, "status": "ok"},
        # its length field lies
        {**batch, "position": 100, "crc_ok": False, "status": "corrupt", "size_bytes": 5000},
        {**batch, "position": 300, "crc_ok": True, "status": "ok", "magic": 1},
    ]
    insert(lake, "batches", found)
    damage = {"topic": "t", "partition": 0, "segment": SEGMENT, "size_bytes": 100}
    insert(lake, "quarantine", [{**damage, "position": 100}, {**damage, "position": 200}])
    register_views(spark, lake, "crc_report")
    report = [tuple(row) for row in spark.sql("SELECT * FROM crc_report ORDER BY magic").collect()]
    assert report == [
        ("t", 0, None, 0, 0, 0, None, 100),
        ("t", 0, 1, 1, 100, 0, 0.0, 0),
        ("t", 0, 2, 2, 200, 1, 0.5, 100),
    ]

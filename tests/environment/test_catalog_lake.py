"""``--sink catalog``: the tables of a catalog get the rows of a folder's, by name, through Spark alone.

The catalog is Spark's own with Delta's tables. Its managed tables lie in the warehouse, where they are looked
at by their paths.
"""

from __future__ import annotations

import pydoc
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import kafka_log_lake
from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.delta import sql_in
from kafka_log_lake.pipelines.lake.catalog_lake import CatalogLake, spark_condition
from kafka_log_lake.pipelines.lake.catalog_schema import CatalogSchema
from tests.support import corpus
from tests.support.logs import TABLES, batch, batches, contents, data, marker, put, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_log_lake.pipelines.decode.summary import Summary

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ("v0-codec-gzip", "v2-txn-interleaved", "v2-headers", "hostile/bitflip-crc-v2-none-0")


def decode(spark: SparkSession, schema: str, source: Iterable[Path | str], **settings: Any) -> Summary:
    sources = tuple(map(str, source))
    return decode_batches.run(spark, Settings(source=sources, lake=schema, sink="catalog", **settings))


def folder(spark: SparkSession, schema: str) -> str:
    """Where the tables of a schema lie."""
    (row,) = spark.sql(f"DESCRIBE DETAIL {schema}.segments").collect()
    return str(Path(row["location"].removeprefix("file:")).parent)


def in_folder(spark: SparkSession, lake: Path, source: Iterable[Path | str]) -> dict[str, Any]:
    """What a lake in a folder holds after one run over the source."""
    decode_batches.run(spark, Settings(source=tuple(map(str, source)), lake=str(lake)))
    return contents(str(lake))


def test_rows_are_those_of_a_lake_in_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    sources = [corpus.ROOT / case for case in SAMPLE]
    summary = decode(spark, "sample", sources)
    lake = folder(spark, "sample")
    expected = in_folder(spark, tmp_path / "lake", sources)
    assert contents(lake) == expected
    assert summary.records == len(expected["records"]) > 100
    assert spark.table("sample.runs").count() == 1
    before = versions(lake)
    assert decode(spark, "sample", sources).segments == 0
    assert versions(lake) == before
    (counts,) = spark.sql(
        "SELECT (SELECT count(*) FROM sample.committed_records) AS committed, "
        "(SELECT count(*) FROM sample.published_records) AS published"
    ).collect()
    assert 0 < counts.committed < counts.published == summary.records


def test_logs_are_landed_and_segments_go(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "it's % logs [1]"
    path = put(logs / "a-0", 0, *batches(0, 3), batch(9)[:40])
    put(logs / "a-0", 100, *batches(100, 1))
    (logs / "replication-offset-checkpoint").write_text("0\n1\na 0 105\n")
    decode(spark, "going", [logs])
    query = "SELECT first_lost, last_lost, is_certain FROM going.lost_offsets WHERE cause = 'missing_end'"
    assert [tuple(row) for row in spark.sql(query).collect()] == [(103, 104, True)]
    (logs / "a-0" / "00000000000000000100.log").unlink()
    path.write_bytes(b"".join(batches(0, 40)))  # the cleaner merged the second segment into the first
    settings = Settings(source=(str(logs),), lake="going", sink="catalog")
    assert ingest_raw.run(spark, settings).segments == 1
    assert ingest_raw.run(spark, settings).segments == 0
    decode_batches.run(spark, Settings(from_raw=True, lake="going", sink="catalog"))
    found = contents(folder(spark, "going"))
    assert found == in_folder(spark, tmp_path / "two", [logs])
    assert len(found["segments"]) == 1


def test_register_gives_the_views_of_a_folder_over_the_tables_of_a_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also those that no catalog holds, and under a prefix."""
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3), batch(9)[:-9] + b"\xff" * 9)
    decode(spark, "spark_catalog.registered.new", [tmp_path / "logs"])
    kafka_log_lake.register(spark, "spark_catalog.registered.new")
    assert spark.table("committed_records").count() == 9
    assert [row.damaged_bytes > 0 for row in spark.table("crc_report").collect()] == [True]
    assert [
        row.format for row in spark.sql("SELECT format FROM payload_profile WHERE side = 'value'").collect()
    ] == ["text"]
    with pytest.raises(UserError, match=r"^there is no lake in spark_catalog\.nowhere: "):
        kafka_log_lake.register(spark, "spark_catalog.nowhere")
    with pytest.raises(UserError, match=r"^log and at are for a lake in a folder"):
        kafka_log_lake.register(spark, "spark_catalog.registered.new", at="2026-01-31")


class Dies(BaseException):
    """As a kill: no handler of errors sees it."""


# The method after whose n-th call a run dies
STEPS = (
    (CatalogLake, "replace_rows", 2),  # records, then batches
    (CatalogLake, "replace_computed", 1),  # transactions
    (CatalogLake, "replace_computed", 2),  # offset_findings
    (CatalogLake, "replace_ledger", 1),
)


def test_runs_that_die_are_finished_or_taken_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, each in a run that replaces one segment, continues one and finds a new one."""
    rewritten = put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    grown = put(tmp_path / "logs" / "b-0", 0, data(0, 7), marker(1, 7), data(2, 7))
    decode(spark, "dying", [tmp_path / "logs"])
    for at, (owner, name, times) in enumerate(STEPS):
        rewritten.write_bytes(b"".join(batches(0, 4 + at, text=f"other{at}")))
        with grown.open("ab") as more:
            more.write(marker(3 + 2 * at, 7) + data(4 + 2 * at, 7))
        put(tmp_path / "logs" / f"c-{at}", 0, *batches(0, 2), batch(6)[:-9] + b"\xff" * 9)
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, _dying(getattr(owner, name), times))
            with pytest.raises(Dies):
                decode(spark, "dying", [tmp_path / "logs"])
        assert len(staged_tables(spark, "dying")) == 1, name
    decode(spark, "dying", [tmp_path / "logs"])
    assert contents(folder(spark, "dying")) == in_folder(spark, tmp_path / "lake", [tmp_path / "logs"])
    assert not staged_tables(spark, "dying")


def staged_tables(spark: SparkSession, schema: str) -> list[str]:
    """The tables of runs that have not ended."""
    return [row.tableName for row in spark.sql(f"SHOW TABLES IN {schema} LIKE 'staged_rows_*'").collect()]


# Methods that give Spark a statement each
STATEMENTS = {
    "sql.SparkSession": ("sql",),
    "sql.classic.dataframe.DataFrame": ("collect", "toArrow"),
    "sql.readwriter.DataFrameWriter": ("saveAsTable",),
    "sql.readwriter.DataFrameWriterV2": ("append", "overwrite"),
    "sql.catalog.Catalog": ("tableExists", "databaseExists", "getDatabase"),
}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that this process gives to Spark; what sql() gives is collected as a part of it."""
    said: list[str] = []

    def counted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not getattr(self, "_is_counted", False):
                said.append(f"{name} {args[0] if args else ''}")
            done = method(self, *args, **kwargs)
            if name == "sql":
                done._is_counted = True
            return done

        return call

    for path, names in STATEMENTS.items():
        owner: Any = pydoc.locate(f"pyspark.{path}")
        for name in names:
            monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    return said


def test_runs_make_few_statements_and_commit_each_table_once(
    spark: SparkSession, tmp_path: Path, statements: list[str]
) -> None:
    grown = put(tmp_path / "logs" / "b-0", 0, data(0, 7), marker(1, 7), data(2, 7))
    (tmp_path / "logs" / "meta.properties").write_text("version=1\ncluster.id=shop-1\nnode.id=1\n")
    decode(spark, "often", [tmp_path / "logs"])
    assert len(statements) <= 40, statements
    lake = folder(spark, "often")
    before = versions(lake)
    with grown.open("ab") as more:
        more.write(marker(3, 7) + data(4, 7))
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    statements.clear()
    summary = decode(spark, "often", [tmp_path / "logs"])
    assert len(statements) <= 15, statements
    assert summary.records == 11
    assert sum(summary.phases.values()) == pytest.approx(summary.seconds)
    assert summary.phases["other"] < summary.seconds / 10
    changed = ("records", "batches", "transactions", "segments", "runs")
    assert versions(lake) == {name: version + (name in changed) for name, version in before.items()}
    statements.clear()
    assert decode(spark, "often", [tmp_path / "logs"]).segments == 0
    assert len(statements) <= 4, statements


def _dying(method: Callable[..., Any], times: int) -> Callable[..., Any]:
    """The method, after whose n-th call its process would be dead."""
    left = [times]

    def call(*args: Any, **kwargs: Any) -> Any:
        done = method(*args, **kwargs)
        left[0] -= 1
        if not left[0]:
            raise Dies
        return done

    return call


def rows_of(spark: SparkSession, begin: str, table: str) -> list[str]:
    """The rows of a table, without what names the run that wrote them."""
    rows = spark.table(f"{begin}{table}").drop("run_id", "decoded_at")
    return sorted(map(repr, rows.select(sorted(rows.columns)).collect()))


def test_clustered_tables_with_features_of_delta_beside_another_lake_of_the_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "logs"
    grown = put(source / "b-0", 0, data(0, 7), marker(1, 7), data(2, 7))
    rewritten = put(source / "a-0", 0, *batches(0, 3), batch(9)[:40])
    features = "delta.enableDeletionVectors=true,delta.columnMapping.mode=name"
    lakes = {"spark_catalog.shared.new": {"clustered": True, "table_properties": features}, "shared": {}}
    for schema, settings in lakes.items():
        decode(spark, schema, [source], **settings)
    with grown.open("ab") as more:
        more.write(marker(3, 7) + data(4, 7))
    damaged = batch(6)[:-9] + b"\xff" * 9
    rewritten.write_bytes(b"".join([*batches(0, 4, text="other"), damaged]))
    for schema in lakes:
        assert decode(spark, schema, [source]).segments == 2
    for name in ("records", "batches", "quarantine", "transactions", "segments", "committed_records"):
        assert rows_of(spark, "shared.new_", name) == rows_of(spark, "shared.", name) != [], name
    (detail,) = spark.sql("DESCRIBE DETAIL shared.new_records").collect()
    assert (detail["partitionColumns"], detail["clusteringColumns"]) == ([], ["topic", "partition", "offset"])
    assert {"deletionVectors", "columnMapping", "clustering"} <= {*detail["tableFeatures"]}
    (plain,) = spark.sql("DESCRIBE DETAIL shared.records").collect()
    assert plain["partitionColumns"] == ["topic", "partition", "magic"]


def test_names_and_values_in_a_condition() -> None:
    condition = sql_in("topic", ["it's", "a\\b", "${x}"]) + ' AND "partition" IN (0)'
    assert spark_condition(condition) == (r"`topic` IN ('\u0024{x}', 'a\\b', 'it\'s') AND `partition` IN (0)")


def test_what_cannot_work_is_said_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    for settings, line in (
        ({"lake": "/a/folder"}, "--lake: with --sink catalog it is a schema"),
        ({"lake": "a.b.c.d"}, "--lake: with --sink catalog it is a schema"),
        ({"lake": "a", "table_properties": "a=b"}, "--table-properties must be properties of Delta"),
        (
            {"lake": "a", "catalog_schema": "b"},
            "--catalog-schema: with --sink catalog, --lake names the schema",
        ),
    ):
        with pytest.raises(UserError, match=line):
            Settings(sink="catalog", **settings)  # type: ignore[arg-type]
    spark.sql("CREATE SCHEMA taken")
    spark.sql("CREATE TABLE taken.segments (a int) USING delta")
    with pytest.raises(UserError, match=r"taken\.segments is not a ledger of schema version"):
        decode(spark, "taken", [tmp_path])
    arguments = ["--source", str(tmp_path), "--lake", "a.b", "--sink", "catalog"]
    alone = subprocess.run(
        [sys.executable, "-m", "pipelines.decode_batches", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert alone.returncode == 2
    assert "--sink catalog needs a catalog that outlives this process" in alone.stderr


def test_a_schema_on_s3_gets_no_table_by_the_log_store_of_delta() -> None:
    said: list[str] = []
    settings = {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}

    def sql(statement: str) -> Any:
        said.append(statement)
        rows = [("Location", "s3a://bucket/kafka.db")] if statement.startswith("DESCRIBE") else []
        return SimpleNamespace(collect=lambda: rows)

    catalog = SimpleNamespace(currentCatalog=lambda: "spark_catalog")
    session = SimpleNamespace(catalog=catalog, conf=settings, sql=sql)
    on_demand: Any = SimpleNamespace(spark=session, settings=Settings())
    with pytest.raises(UserError, match=r"^--sink catalog can't write to s3://bucket/kafka\.db: on S3 "):
        CatalogSchema(on_demand, "kafka").create_lake()
    assert said == ["CREATE SCHEMA IF NOT EXISTS `kafka`", "DESCRIBE SCHEMA EXTENDED `kafka`"]
    settings["spark.delta.logStore.s3a.impl"] = "io.delta.storage.S3DynamoDBLogStore"
    CatalogSchema(on_demand, "kafka").create_lake()
    assert [one.startswith("CREATE TABLE") for one in said].count(True) == len(TABLES)

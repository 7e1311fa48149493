"""Views are computed once in a database, before the statement that needs them."""

import signal
import threading

import duckdb
import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.sql import kept
from kafka_log_lake.pipelines.sql.kept import KeptViews
from kafka_log_lake.pipelines.sql.statements import KEPT, LAKE
from tests.support.answers import answer
from tests.support.lake_rows import insert


def test_ctrl_c_stops_a_view_that_is_computed() -> None:
    database = duckdb.connect()
    database.execute(f"CREATE SCHEMA {KEPT}")
    database.execute(f"CREATE SCHEMA {LAKE}")
    many = "SELECT sum(a * b % 7) FROM range(400000) a(a), range(100000) b(b)"
    database.execute(f"CREATE VIEW {LAKE}.segments AS {many}")
    views = KeptViews(database)
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        views.before("FROM segments")
    assert database.execute("SELECT table_name FROM duckdb_tables()").fetchall() == []


@pytest.fixture
def one_log(lake: str) -> str:
    insert(
        lake, "segments", [{"topic": "t", "partition": 0, "partition_dir": "/t-0", "segment": "/t-0/0.log"}]
    )
    return lake


@pytest.mark.parametrize("begin", ["BEGIN", "/* a comment */ start transaction", "by its method"])
def test_a_user_changes_views_in_a_transaction_that_has_read_them(one_log: str, begin: str) -> None:
    with connect(one_log) as database:
        database.begin() if begin == "by its method" else database.execute(begin)
        assert database.sql("SELECT topic FROM logs").fetchall() == [("t",)]
        database.execute("CREATE TABLE own(topic text); CREATE OR REPLACE VIEW logs AS FROM own")
        database.commit()
        assert database.sql("FROM logs").fetchall() == []
        database.execute("INSERT INTO own VALUES ('mine')")
        assert database.sql("FROM logs").fetchall() == [("mine",)]
        assert database.sql("SELECT topic, partition FROM log_ends").fetchall() == [("t", 0)]
        assert {"segments", "log_ends"} <= kept_in(database)


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_a_temporary_table_of_a_user_stays_out_of_the_views(one_log: str, kind: str) -> None:
    with connect(one_log) as database:
        for name in ("segments", "batches", "record_counts", "offset_gaps"):
            database.execute(f"CREATE TEMP {kind} {name} AS SELECT 1 AS own")
        assert database.sql("SELECT topic, segments FROM logs").fetchall() == [("t", 1)]
        assert database.sql("SELECT topic FROM topic_overview").fetchall() == [("t",)]
        assert database.sql("FROM offset_gaps").fetchall() == [(1,)]


def test_show_all_tables_shows_what_a_user_can_ask(one_log: str) -> None:
    with connect(one_log) as database:
        database.sql("FROM logs").fetchall()
        shown = {(schema, name) for _, schema, name, *_ in database.sql("SHOW ALL TABLES").fetchall()}
    assert {("main", "logs"), ("internal", "log_ends")} <= shown
    assert KEPT not in {schema for schema, _ in shown}


def test_a_view_of_too_many_rows_is_not_kept(one_log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST_KEPT", 0)
    with connect(one_log) as database:
        assert database.sql("SELECT topic FROM logs").fetchall() == [("t",)]
        assert kept_in(database) & {"segments", "logs"} == set()


def test_a_view_that_reads_no_table_is_asked_alone(lake: str) -> None:
    assert answer(lake, "SELECT count(*) AS n FROM timestamp_units", "csv") == ["n", "4"]


def kept_in(database: duckdb.DuckDBPyConnection) -> set[str]:
    tables = database.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = ?", [KEPT])
    return {name for (name,) in tables.fetchall()}

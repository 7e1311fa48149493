"""Views are computed once in a database, before the statement that needs them."""

import signal
import threading

import duckdb
import pytest

from kafka_log_lake.pipelines.sql.kept import SCHEMA, KeptViews


def test_ctrl_c_stops_a_view_that_is_computed() -> None:
    database = duckdb.connect()
    database.execute(f"CREATE SCHEMA {SCHEMA}")
    database.execute(
        "CREATE VIEW segments AS SELECT sum(a * b % 7) FROM range(400000) a(a), range(100000) b(b)"
    )
    kept = KeptViews(database)
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        kept.before("FROM segments")
    assert database.execute("SELECT table_name FROM duckdb_tables()").fetchall() == []

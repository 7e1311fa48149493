"""``connect``: a lake as a connection of DuckDB, in one state, read-only; the functions there."""

from __future__ import annotations

import copy
import os
import re
import signal
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.query import command as query
from kafka_log_lake.pipelines.sql import answers
from kafka_log_lake.pipelines.sql.kept import MOST_ROWS
from kafka_log_lake.pipelines.sql.small_views import small_views
from tests.support import as_command
from tests.support.answers import answer
from tests.support.docs import ROOT, blocks
from tests.support.lake_rows import insert
from tests.support.logs import batch, put

SEGMENT = f"/d/t-0/{0:020d}.log"
COUNT = "SELECT count(*) AS n FROM records"
SHOWN = re.compile(r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_same_rows_as_pandas_polars_and_arrow(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"topic": t, "partition": 0, "magic": 2, "offset": n} for n, t in enumerate("aab")]
    insert(lake, "records", rows)
    found = connect(Path(lake)).sql("SELECT topic, r.offset FROM records r ORDER BY ALL")
    expected = {"topic": ["a", "a", "b"], "offset": [0, 1, 2]}
    assert found.df().to_dict("list") == expected
    assert found.pl().to_dict(as_series=False) == expected
    assert found.to_arrow_table().to_pydict() == expected
    monkeypatch.chdir(Path(lake).parent)
    Path("lake").symlink_to(lake)
    (shown,) = [one for one in blocks(ROOT / "docs" / "commands.md", "python") if "connect(" in one]
    names: dict[str, Any] = {}
    exec(shown, names)
    assert list(names["topics"].columns) == ["topic", "records"]


@pytest.fixture(scope="module")
def connection(lake_template: str) -> duckdb.DuckDBPyConnection:
    return connect(lake_template)


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '/tmp/x.csv'",
        "ATTACH '/tmp/x.db'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')",
        "SET enable_external_access = true",
        "SET threads = 1",
        "INSTALL httpfs",
        "LOAD httpfs",
        "INSERT INTO records SELECT * FROM records",
        "DELETE FROM records",
    ],
)
def test_a_connection_writes_nothing_and_reads_nothing_else(
    connection: duckdb.DuckDBPyConnection, statement: str
) -> None:
    with pytest.raises(duckdb.Error):
        connection.execute(statement)


def test_offset_needs_no_quotes_and_an_offset_clause_stays_one(lake: str) -> None:
    insert(lake, "records", [{"topic": "a", "partition": 0, "magic": 2, "offset": n} for n in range(4)])
    with connect(lake) as database:
        assert database.sql("SELECT offset FROM records ORDER BY offset LIMIT 2 OFFSET 1").fetchall() == [
            (1,),
            (2,),
        ]
        assert database.execute("SELECT max(offset) FROM records WHERE offset < ?", [3]).fetchone() == (2,)
        assert database.cursor().execute("SELECT min(offset) FROM records").fetchone() == (0,)
        assert isinstance(database, duckdb.DuckDBPyConnection)


def test_group_needs_no_quotes_and_clauses_with_it_stay(lake: str) -> None:
    made = "(SELECT unnest([1, 1, 2]) AS group) AS made"
    with connect(lake) as database:
        for statement, rows in (
            (
                f"SELECT made.group, count(*) FROM {made} GROUP /* a */ BY group ORDER BY group",
                [(1, 2), (2, 1)],
            ),
            (f"SELECT mode() WITHIN GROUP (ORDER BY group) FROM {made}", [(1,)]),
            (
                f"SELECT sum(group) OVER (ORDER BY group ROWS UNBOUNDED PRECEDING EXCLUDE GROUP) FROM {made}",
                [(None,), (None,), (2,)],
            ),
            ("SELECT group FROM group_lag", []),
        ):
            assert database.sql(statement).fetchall() == rows, statement


def test_every_method_that_takes_a_statement_takes_offset_without_quotes(lake: str) -> None:
    insert(lake, "records", [{"topic": "a", "partition": 0, "magic": 2, "offset": n} for n in range(4)])
    database = connect(lake)
    below = "SELECT max(offset) FROM records WHERE offset < ?"
    assert database.execute(query=below, parameters=[3]).fetchone() == (2,)
    assert database.executemany(below, [[3], [2]]).fetchone() == (1,)
    assert database.from_query("SELECT max(offset) FROM records").fetchall() == [(3,)]
    assert database.begin().commit().sql("SELECT min(offset) FROM records").fetchall() == [(0,)]
    assert copy.copy(database).sql("SELECT min(offset) FROM records").fetchall() == [(0,)]


def test_show_tables_lists_views_by_task_and_the_rest_in_internal(lake: str) -> None:
    write_deltalake(f"{lake}/typed/h.avro", pa.table({"offset": pa.array([7], pa.int64())}))
    database = connect(lake)
    shown = database.sql("SHOW TABLES;").fetchall()
    assert [group for group, *_ in shown][:2] == ["topics", "topics"]
    names = {name: group for group, name, _ in shown}
    assert (names["lost_offsets"], names["records"], names['typed."h.avro"']) == ("damage", "tables", "typed")
    assert "log_starts" not in names
    about = {name: text for _, name, text in shown}
    assert about["timestamp_anomalies"].startswith("Records whose timestamps are missing, out of order")
    rest = {name for (name,) in database.sql("SHOW TABLES FROM internal").fetchall()}
    assert {"log_starts", "published_records"} <= rest
    assert database.sql("FROM internal.log_starts").fetchall() == database.sql("FROM log_starts").fetchall()
    assert answer(lake, "show tables", "csv")[0] == "group,name,about"
    assert database.execute("SHOW TABLES; SELECT 42").fetchall() == [(42,)]
    with pytest.raises(UserError, match="one statement at a time"):
        answer(lake, "SHOW TABLES; SELECT 42")


def test_describe_says_what_each_column_means(lake_template: str) -> None:
    database = connect(lake_template)
    for name, row in {
        "topics": ("segments", "BIGINT", "Segment files"),
        "records": ("offset", "BIGINT", "Offset of the record in its partition"),
        "group_lag_at": ("commit_timestamp", "TIMESTAMP WITH TIME ZONE", "When it was committed"),
        "key_history": ("topic", "VARCHAR", "Topic"),  # it can't be read without its parameters
    }.items():
        assert row in database.sql(f"DESCRIBE {name};").fetchall(), name
    assert answer(lake_template, "describe logs", "csv")[0] == "column_name,column_type,meaning"


def test_a_name_with_a_dot_is_explained(lake: str) -> None:
    write_deltalake(f"{lake}/typed/h.avro", pa.table({"offset": pa.array([7], pa.int64())}))
    said = r'; quote it: typed\."h\.avro"$'
    for statement in ("SELECT offset FROM typed.h.avro", "DESCRIBE Typed.H.Avro"):
        with pytest.raises(duckdb.Error, match=said):
            connect(lake).sql(statement)
        with pytest.raises(UserError, match=said):
            answer(lake, statement)
    assert connect(lake).sql('SELECT offset FROM typed."h.avro"').fetchall() == [(7,)]
    with pytest.raises(UserError) as wrong:
        answer(lake, "SELECT nothing FROM records")
    assert "quote it" not in str(wrong.value)


def test_variables_of_python_are_no_tables(lake_template: str) -> None:
    hidden = connect(lake_template).sql("SELECT 1 AS a").df()
    with pytest.raises(duckdb.CatalogException):
        connect(lake_template).sql("SELECT * FROM hidden")
    assert len(hidden) == 1


def test_an_earlier_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs, lake = tmp_path / "logs", str(tmp_path / "lake")
    put(logs / "a-0", 0, batch(0, 3))
    first = as_command.decode(None, Settings(source=(str(logs),), lake=lake))
    put(logs / "b-0", 0, batch(0, 4))
    as_command.decode(None, Settings(source=(str(logs),), lake=lake))
    before = connect(lake, at=first.run_id)
    assert (before.sql(COUNT).fetchall(), connect(lake).sql(COUNT).fetchall()) == ([(3,)], [(7,)])
    assert before.sql("SELECT topic, records FROM topics").fetchall() == [("a", 3)]
    given = ["--lake", lake, "--engine", "duckdb", "--format", "csv", COUNT]
    assert query.main([*given, "--at", first.run_id]) == 0
    assert capsys.readouterr().out == "n\n3\n"
    assert query.main([*given, "--at", "1999-01-01"]) == 2
    assert "the lake has no state of '1999-01-01'" in capsys.readouterr().err
    assert query.main(["--lake", lake, "--engine", "spark", "--at", first.run_id, COUNT]) == 2
    assert capsys.readouterr().err == "error: --at needs --engine duckdb\n"
    with pytest.raises(UserError, match="there is no lake at"):
        connect(str(tmp_path))


def test_partitions_of_any_name_and_columns_of_others(lake: str) -> None:
    names = ["a b", "x=y", "50%", "ü", "it's", "a/b", "{*}[?]", None]
    rows = [{"topic": name, "partition": 0, "magic": 2, "offset": n} for n, name in enumerate(names)]
    insert(lake, "records", rows)
    DeltaTable(f"{lake}/records").alter.add_columns(Field("mine", PrimitiveType("integer")))
    found = connect(lake).sql("SELECT topic FROM records ORDER BY records.offset").fetchall()
    assert [name for (name,) in found] == names


def test_the_page_of_functions_shows_what_duckdb_gives(lake_template: str) -> None:
    shown = SHOWN.findall((ROOT / "docs" / "functions.md").read_text())
    assert len(shown) >= 7
    for statement, output in shown:
        assert "\n".join(answer(lake_template, statement, "table")) + "\n" == output


def test_functions_over_many_values(lake: str) -> None:
    """More rows than DuckDB gives to a function at once; nulls, what is no batch, batches."""
    values = [None, b"", b"junk", batch(0, 2), batch(5, 3) + batch(8, 1)]
    rows = [
        {"topic": "t", "partition": 0, "magic": 2, "offset": n, "value": values[n % 5]} for n in range(5000)
    ]
    insert(lake, "records", rows)
    database = connect(lake)
    ends = "GROUP BY ALL ORDER BY ALL"
    records = f"SELECT r.offset % 5, count(*) FROM records r, LATERAL kafka_records(r.value) k {ends}"
    assert database.sql(records).fetchall() == [(3, 2000), (4, 4000)]
    batches = (
        "SELECT r.offset % 5, b.status, count(*) FROM records r "
        f"LEFT JOIN LATERAL kafka_batches(r.value) b ON true {ends}"
    )
    assert database.sql(batches).fetchall() == [
        (0, None, 1000),
        (1, None, 1000),
        (2, "quarantined", 1000),
        (3, "ok", 1000),
        (4, "ok", 2000),
    ]
    ours = database.sql("SELECT count(crc32c(value)), count(kafka_varint(value)) FROM records").fetchall()
    assert ours == [(4000, 3000)]


def test_ctrl_c_ends_a_statement_that_computes() -> None:
    late = threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with duckdb.connect() as database:
        database.execute("CREATE TABLE n AS SELECT range AS i FROM range(100000)")

        def give_up() -> None:
            late.set()
            database.interrupt()

        timers = [threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)), threading.Timer(30, give_up)]
        for timer in timers:
            timer.start()
        with pytest.raises(KeyboardInterrupt):
            list(
                answers.answer(
                    database, "SELECT count(*) FROM n a, n b, n c WHERE hash(a.i, b.i, c.i) = 5", "csv"
                )
            )
        for timer in timers:
            timer.cancel()
    signal.signal(signal.SIGINT, before)
    assert not late.is_set()


@pytest.mark.parametrize("most", [0, 1])
def test_a_question_that_is_asked_again_reads_no_file_unless_the_lake_is_large(
    lake: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_ROWS, "segments", most)
    insert(lake, "segments", [{"topic": "t", "partition": 0, "partition_dir": "/d/t-0", "segment": SEGMENT}])
    with connect(lake) as database:
        asked = [database.execute("SELECT topic, segments FROM logs").fetchall()]
        for file in Path(lake, "segments").rglob("*.parquet"):
            file.unlink()
        with nullcontext() if most else pytest.raises(duckdb.Error):
            asked.append(database.execute("SELECT topic, segments FROM logs").fetchall())
    assert asked == [[("t", 1)]] * (1 + most)


def test_a_lake_whose_small_views_spark_has_to_compute_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """``register`` then gives the same rows, but takes longer: the log says why."""
    assert small_views(str(tmp_path), {}, {"log_starts"}) == {}
    (line,) = caplog.messages
    assert line.startswith(f"views of {tmp_path} take longer, as DuckDB can't compute the small ones: ")
    assert "there is no lake" in line

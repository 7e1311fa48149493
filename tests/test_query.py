"""One statement over a lake: three formats, errors of one line, the command and the shell as processes."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pipelines import query, sql_shell
from pipelines.command.errors import UserError
from pipelines.command.session import configured
from pipelines.engine.files import write_csv, write_parquet
from pipelines.engine.spark import answer, arrow, prepare, results
from pipelines.views.statements import only_reads, split_statements
from tests.support.lake_rows import insert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

ONE_OF_EACH = (
    "SELECT x'00ff' AS bytes, x'6869' AS word, x'' AS empty, CAST(NULL AS BINARY) AS nothing, "
    "TIMESTAMP '2020-01-01 00:00:00.123' AS at, 9007199254740993 AS big, 1.50 AS exact, true AS yes, "
    "array(named_struct('key', 'k', 'value', x'01')) AS headers, 'a,\"b' AS text, '' AS blank"
)


def ask(spark: SparkSession, lake: str, statement: str, output: str) -> list[str]:
    return list(answer(spark, lake, statement, output))


Prepared = Callable[[str, str], list[str]]


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, lake_template: str) -> Prepared:
    """Asks in a session that knows all tables and views: to make them takes longer than most statements."""
    prepare(spark, lake_template)
    return lambda statement, output: list(results(spark, statement, output))


def test_json_is_one_object_a_row(prepared: Prepared) -> None:
    (line,) = prepared(ONE_OF_EACH, "json")
    assert json.loads(line) == {
        "bytes": "AP8=",
        "word": "aGk=",
        "empty": "",
        "nothing": None,
        "at": "2020-01-01T00:00:00.123000Z",
        "big": 9007199254740993,
        "exact": 1.5,
        "yes": True,
        "headers": [{"key": "k", "value": "AQ=="}],
        "text": 'a,"b',
        "blank": "",
    }


def test_csv_tells_null_from_empty(prepared: Prepared) -> None:
    head, row = prepared(ONE_OF_EACH, "csv")
    assert head == "bytes,word,empty,nothing,at,big,exact,yes,headers,text,blank"
    assert row == (
        'AP8=,aGk=,"",,2020-01-01T00:00:00.123000Z,9007199254740993,1.50,true,'
        '"[{""key"":""k"",""value"":""AQ==""}]","a,""b",""'
    )


def test_table_shows_bytes_as_a_person_reads_them(prepared: Prepared) -> None:
    lines = prepared("SELECT x'00ff' AS b, x'6869' AS b, NULL AS n UNION ALL SELECT x'', x'', NULL", "table")
    assert lines == ["b       b   n", "------  --  ----", "0x00ff  hi  NULL", "            NULL", "(2 rows)"]


def test_table_without_rows_still_has_its_head(spark: SparkSession, lake: str) -> None:
    assert ask(spark, lake, "SELECT offset FROM records", "table") == ["offset", "------", "(0 rows)"]


def test_tables_and_views_by_name(spark: SparkSession, lake: str) -> None:
    place = {"topic": "t", "partition": 0, "segment": "file:///t-0/0.log", "generation": 1}
    rows = [{**place, "magic": 2, "batch_position": n, "offset": n, "is_control": n == 1} for n in range(3)]
    insert(lake, "records", rows)
    insert(lake, "segments", [{**place, "partition_dir": "file:///t-0", "decoded_bytes": 9}])
    found = ask(spark, lake, "SELECT offset FROM committed_records ORDER BY offset;", "csv")
    assert found == ["offset", "0", "2"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELEC 1", r"SQL: \[PARSE_SYNTAX_ERROR\]"),
        ("", r"SQL: \[PARSE_EMPTY_STATEMENT\]"),
        ("SELECT 1; SELECT 2", r"SQL: \[PARSE_SYNTAX_ERROR\]"),
        ("SELECT ofset FROM records", r"Did you mean one of the following\? \[`offset`"),
        ("SELECT * FROM nope", r"SQL: \[TABLE_OR_VIEW_NOT_FOUND\]"),
        ("SELECT * FROM segmnts", r"; did you mean segments\?$"),
        ("SELECT 1 / 0", r"SQL: \[DIVIDE_BY_ZERO\]"),
        ("SELECT raise_error(string(id)) FROM range(1)", r"SQL: \[USER_RAISED_EXCEPTION\] 0"),
    ],
)
def test_wrong_statements_are_one_line(prepared: Prepared, statement: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        prepared(statement, "json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM records",
        "  delete from records",
        "/* a */ -- SELECT\nUPDATE segments SET records = 0",
        "INSERT INTO records SELECT * FROM records",
        "WITH r AS (SELECT * FROM records) INSERT INTO records SELECT * FROM r",
        "FROM records INSERT INTO records SELECT *",
        "WITH r AS (SELECT 1) DELETE FROM records WHERE offset < 2",
        "WITH r AS (SELECT 1) UPDATE records SET offset = 1",
        "WITH r AS (SELECT * FROM records) MERGE INTO records USING r ON true WHEN MATCHED THEN DELETE",
        "MERGE INTO segments USING records ON true WHEN MATCHED THEN DELETE",
        "DROP VIEW records",
        "VACUUM records",
        "TRUNCATE TABLE records",
        "SET spark.sql.ansi.enabled=false",
    ],
)
def test_a_statement_that_writes_is_refused_before_anything_starts(
    statement: str, lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query.main(["--lake", lake, statement]) == 2
    said = capsys.readouterr()
    assert said.err == "error: query only reads; for upkeep of the tables add --writes allow\n"
    assert said.out == ""


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'INSERT INTO' AS `INSERT`",
        "select 1 -- INSERT",
        "(SELECT 1) UNION (SELECT 2)",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "FROM records |> SELECT offset",
        "VALUES (1)",
        "SHOW TABLES",
        "DESCRIBE records",
        "EXPLAIN SELECT 1",
    ],
)
def test_statements_that_read_are_run(prepared: Prepared, statement: str) -> None:
    assert only_reads(statement)
    prepared(statement, "json")  # that it is a statement


def test_upkeep_is_possible_where_it_is_asked_for(spark: SparkSession, lake: str) -> None:
    insert(lake, "records", [{"topic": "t", "partition": 0, "magic": 2, "offset": n} for n in range(3)])
    statement = "DELETE FROM records WHERE offset < 2"
    assert query.main(["--lake", lake, "--writes", "allow", statement]) == 0
    assert ask(spark, lake, "SELECT offset FROM records", "csv") == ["offset", "2"]


@pytest.mark.parametrize("lake", ["s3://nowhere/lake", "s3a://nowhere/lake/"])
def test_on_s3_a_statement_that_writes_is_refused_before_anything_starts(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for engine in ("auto", "spark"):
        arguments = ["--lake", lake, "--writes", "allow", "--engine", engine, "DELETE FROM records"]
        assert query.main(arguments) == 2
        assert capsys.readouterr().err == _ON_S3


_ON_S3 = (
    "error: SQL can't write to s3://nowhere/lake: on S3 a commit of Spark overwrites another writer's; "
    "use maintain for upkeep, and the Python package deltalake for other changes\n"
)


def test_the_shell_of_a_lake_on_s3_writes_no_table(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "copy"
    for statement in (
        f"CREATE TABLE delta.`{table}` AS SELECT 1 AS a",
        "OPTIMIZE records",
        "EXECUTE IMMEDIATE 'DELETE FROM records'",
        "BEGIN DELETE FROM records; END",
    ):
        assert not sql_shell.run_statement(spark, "s3a://nowhere/lake", statement)
        assert capsys.readouterr().err == _ON_S3
    assert not table.exists()
    for statement in (
        "CREATE OR REPLACE TEMP VIEW one AS SELECT 1 AS a",
        "SET spark.sql.shuffle.partitions",
        "SELECT a FROM one",
        "DROP VIEW one",
    ):
        assert sql_shell.run_statement(spark, "s3a://nowhere/lake", statement), capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.txt", "must end in .csv or .parquet"),
        ("none/x.csv", "there is no folder "),
        ("{lake}/records/x.parquet", "lies in the lake: choose a folder outside it"),
        ("folder.csv", "is a folder"),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_anything_starts(
    lake: str, tmp_path: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.csv").mkdir()
    path = name.format(lake=lake) if "{" in name else str(tmp_path / name)
    assert query.main(["--lake", lake, "--output", path, "SELECT 1 AS a"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --output {path}")
    assert message in line


def test_an_answer_is_saved_whole_or_not_at_all(
    spark: SparkSession, lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "answer.csv"
    asked = ["--lake", lake, "--output", str(path)]
    assert query.main([*asked, "SELECT 1 AS a, '' AS b UNION ALL SELECT 2, NULL ORDER BY a"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err.splitlines()[-1]) == ("", f"2 rows written to {path}")
    assert path.read_text() == 'a,b\n1,""\n2,\n'
    assert query.main([*asked, "SELECT raise_error(string(id)) AS a FROM range(3)"]) == 2
    assert path.read_text() == 'a,b\n1,""\n2,\n'
    assert query.main([*asked, "SELECT 3 AS a"]) == 0
    assert path.read_text() == "a\n3\n"
    assert [one.name for one in tmp_path.glob("answer*")] == ["answer.csv"]


def test_a_colon_is_told_for_a_file_too(spark: SparkSession, lake: str) -> None:
    with pytest.raises(UserError, match="a colon reads no field of JSON here"):
        arrow(spark, lake, "SELECT CAST(value AS STRING):name FROM records")


SCHEMA = pa.schema([("a", pa.int32())])


@pytest.mark.parametrize(
    ("write", "row"),
    [
        (write_csv, "1"),
        (lambda path, rows: write_parquet(path, SCHEMA, rows), pa.record_batch([[1]], SCHEMA)),
    ],
    ids=["csv", "parquet"],
)
def test_an_output_that_fails_is_told_apart_from_a_query_that_fails(
    tmp_path: Path, write: Callable[[str, Iterable[Any]], int], row: Any
) -> None:
    def rows(is_whole: bool) -> Iterator[Any]:
        yield row
        if not is_whole:
            raise ConnectionError("the cluster is gone")

    path = str(tmp_path / "answer")
    with pytest.raises(ConnectionError, match="the cluster is gone"):
        write(path, rows(is_whole=False))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        with pytest.raises(UserError, match=f"^--output {path} can't be written: File too large$"):
            write(path, rows(is_whole=True))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_a_file_beside_the_output_is_left_alone(tmp_path: Path) -> None:
    beside = tmp_path / f"answer.csv.{os.getpid()}.tmp"
    beside.write_text("of a process that was killed")
    assert write_csv(str(tmp_path / "answer.csv"), ["a", "1"]) == 1
    assert (tmp_path / "answer.csv").read_text() == "a\n1\n"
    assert beside.read_text() == "of a process that was killed"


def test_the_shell_s_banner_names_what_is_there_and_queries_that_run(spark: SparkSession, lake: str) -> None:
    text = sql_shell.banner(["records", "segments"], 60)
    assert max(map(len, text.split("try")[0].splitlines())) <= 60
    assert {"records", "segments", "messages", "topics"} <= set(re.findall(r"\w+", text))
    assert all(query in text for query in sql_shell.QUERIES)
    for statement in sql_shell.QUERIES:
        assert ask(spark, lake, statement, "table")[-1] == "(0 rows)"


def in_process(folder: Path, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
    )


def test_command_prints_the_answer_alone_and_leaves_nothing(lake: str, tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    done = in_process(
        folder, "pipelines.query", "--lake", lake, "--format", "json", "SELECT count(*) AS n FROM records"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"n":0}\n', "")
    assert list(folder.iterdir()) == []


def test_command_refuses_what_is_no_lake(tmp_path: Path) -> None:
    done = in_process(tmp_path, "pipelines.query", "--lake", "nope", "SELECT 1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: there is no lake at nope: name a folder that decode_batches wrote\n"


def test_shell_knows_tables_and_views_and_leaves_nothing(lake: str, tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    statements = "SELECT count(*) + 41 FROM records;\nSELECT count(*) + 17 FROM latest_by_key;\n"
    done = in_process(folder, "pipelines.sql_shell", "--lake", lake, stdin=statements)
    assert done.returncode == 0, done.stderr
    assert {"41", "17"} <= set(done.stdout.split())
    assert list(folder.iterdir()) == []
    refused = in_process(folder, "pipelines.sql_shell", "--lake", "nope")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def test_shell_goes_on_after_a_wrong_statement(
    spark: SparkSession,
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    statements = (
        "-- a comment; with a semicolon\nSELECT ';' AS a,\n  /* ; */ crc32c('123456789') AS crc;\n"
        "SELECT * FROM recods; SET spark.sql.session.timeZone=Asia/Tokyo;\nEXPLAIN SELECT 1;"
        "SELECT string(timestamp_seconds(0)) AS at;\n\nSELECT 5 AS last"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(statements))
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        assert sql_shell.main(["--lake", lake]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("a         crc\n-  ----------\n;  3808858755\n(1 row)\n")
    assert "1970-01-01 09:00:00" in said.out
    assert "\n== Physical Plan ==\n" in said.out
    assert said.out.endswith("last\n----\n   5\n(1 row)\n")
    first, last = said.err.splitlines()
    assert first.startswith("error: SQL: [TABLE_OR_VIEW_NOT_FOUND]")
    assert first.endswith("; did you mean records?")
    assert last == "error: 1 statement failed"


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
        ("SELECT ';';", ["SELECT ';'"], ""),
        (r"SELECT 'it\'s;';", [r"SELECT 'it\'s;'"], ""),
        ('SELECT "a;" FROM `b;c`;', ['SELECT "a;" FROM `b;c`'], ""),
        ("SELECT 1 -- one; two\n;", ["SELECT 1 -- one; two"], ""),
        ("SELECT 4 / 2 - 1;", ["SELECT 4 / 2 - 1"], ""),
        ("/* a; b */ SELECT 1;", ["/* a; b */ SELECT 1"], ""),
        ("SELECT 'open; ", [], "SELECT 'open; "),
        ("/* open; ", [], "/* open; "),
        (";;", ["", ""], ""),
    ],
)
def test_statements_end_at_a_semicolon_outside_of_quotes(text: str, statements: list[str], rest: str) -> None:
    assert split_statements(text) == (statements, rest)

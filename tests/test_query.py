"""One statement over a lake: formats, errors of one line, what may not run, the command and the shell."""

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
import pyarrow.parquet as pq
import pytest

from pipelines import query, sql_shell
from pipelines.command.errors import UserError
from pipelines.command.session import configured
from pipelines.command.settings import Settings
from pipelines.sql.files import write_csv, write_parquet
from pipelines.sql.gate import check_reads
from pipelines.sql.spark import answer as in_spark
from pipelines.sql.spark import arrow, one_line_errors, prepare, results
from pipelines.sql.statements import split_statements
from pipelines.sql.tokens import duckdb_text
from tests.support.answers import answer
from tests.support.lake_rows import insert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parent.parent

OF_BOTH = (
    "SELECT x'00ff' AS bytes, x'6869' AS word, x'' AS empty, CAST(NULL AS BINARY) AS nothing, "
    "TIMESTAMP '2020-01-01 00:00:00.123Z' AS at, 9007199254740993 AS big, 1.50 AS exact, true AS yes, "
    "5.230173599999999E-4 AS small, 'a,\"b' AS text, '' AS blank"
)


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, lake_template: str) -> Callable[[str, str], list[str]]:
    """Runs statements in a session that knows all tables and views: they take longer than most statements."""
    prepare(spark, lake_template)
    return lambda statement, output: list(results(spark, statement, output))


@pytest.fixture(scope="module", params=["duckdb", "spark"])
def either(request: pytest.FixtureRequest, lake_template: str) -> Callable[[str, str], list[str]]:
    """Runs a statement in one of the engines."""
    if request.param == "duckdb":
        return lambda statement, output: answer(lake_template, statement, output)
    run: Callable[[str, str], list[str]] = request.getfixturevalue("prepared")
    return run


def test_json_is_one_object_a_row(either: Callable[[str, str], list[str]]) -> None:
    (line,) = either(OF_BOTH, "json")
    assert json.loads(line) == {
        "bytes": "AP8=",
        "word": "aGk=",
        "empty": "",
        "nothing": None,
        "at": line.partition('"at":"')[2].partition('"')[0],
        "big": 9007199254740993,
        "exact": 1.5,
        "yes": True,
        "small": 0.0005230173599999999,
        "text": 'a,"b',
        "blank": "",
    }
    assert '"small":0.0005230173599999999' in line
    assert '"at":"2020-01-01T00:00:00.123000' in line


def test_csv_distinguishes_null_from_empty(either: Callable[[str, str], list[str]]) -> None:
    head, row = either("SELECT x'00ff' AS a, '' AS b, NULL AS c, 1.50 AS d, 'a,\"b' AS e", "csv")
    assert (head, row) == ("a,b,c,d,e", 'AP8=,"",,1.50,"a,""b"')


def test_table_shows_bytes_as_a_person_reads_them(either: Callable[[str, str], list[str]]) -> None:
    lines = either("SELECT x'00ff' AS b, x'6869' AS c, NULL AS n UNION ALL SELECT x'', x'', NULL", "table")
    assert lines == ["b       c   n", "------  --  ----", "0x00ff  hi  NULL", "            NULL", "(2 rows)"]


def test_table_without_rows_still_has_its_head(either: Callable[[str, str], list[str]]) -> None:
    assert either("SELECT offset FROM records", "table") == ["offset", "------", "(0 rows)"]


def test_every_type_of_duckdb_is_printed(lake_template: str) -> None:
    (line,) = answer(
        lake_template,
        "SELECT [1, NULL] AS a, map {'k': 1} AS b, {'x': x'00', 't': TIMESTAMPTZ '2020-01-01'} AS c, "
        "INTERVAL '1 month 3 days 1.5 seconds' AS d, uuid() IS NOT NULL AS e, 1::HUGEINT AS f, "
        "DATE '10000-01-01' AS g, TIMESTAMP 'infinity' AS h, 'nan'::DOUBLE AS i, TIMESTAMP '2020-01-01' j, "
        "'a'::ENUM('a') AS k, NULL AS l, [{'n': [NULL::INT]}, NULL] AS m, TIME '10:00' AS n, "
        "'{}'::JSON AS o, [0.1::FLOAT, 1e-5::FLOAT, '-inf'::FLOAT] AS p",
    )
    assert line == (
        '{"a":[1,null],"b":{"k":1},"c":{"x":"AA==","t":"2020-01-01T00:00:00.000000Z"},'
        '"d":"1 month 3 days 1.5 seconds","e":true,"f":1,"g":"+10000-01-01","h":"infinity","i":"NaN",'
        '"j":"2020-01-01T00:00:00.000000","k":"a","l":null,"m":[{"n":[null]},null],"n":"10:00:00","o":"{}",'
        '"p":[0.1,1e-05,"-Infinity"]}'
    )


def test_offset_needs_no_quotes_where_no_offset_clause_can_be(lake: str) -> None:
    rows = [{"topic": "t", "partition": 0, "magic": 2, "offset": n} for n in range(3)]
    insert(lake, "records", rows)
    for statement, expected in (
        ("SELECT offset FROM records ORDER BY offset LIMIT 1 OFFSET 1", [1]),
        ("SELECT max(offset) /* offset */ AS offset FROM records WHERE offset < 2", [1]),
        ("SELECT offset + 1 AS n FROM records GROUP BY offset + 1 ORDER BY 1 OFFSET (1 + 1)", [3]),
        (
            "SELECT r.offset FROM records r WHERE r.offset BETWEEN offset AND offset ORDER BY OFFSET DESC",
            [2, 1, 0],
        ),
        ("SELECT `offset` FROM (SELECT offset FROM records ORDER BY offset OFFSET 2 ROWS)", [2]),
        ("SELECT sum(1) OVER (ORDER BY offset) AS n FROM records ORDER BY offset -- offset", [1, 2, 3]),
        (
            "SELECT '1 offset é' IS NOT NULL AND offset = 0 AS a FROM records ORDER BY offset OFFSET 2",
            [False],
        ),
    ):
        found = [next(iter(json.loads(line).values())) for line in answer(lake, statement)]
        assert found == expected, statement
    assert duckdb_text("SELECT 'offset', \"offset\", t.offset") == 'SELECT \'offset\', "offset", t."offset"'


def test_the_whole_sql_of_duckdb_is_there(lake: str) -> None:
    rows = [
        {"topic": "ab"[n % 2], "partition": 0, "magic": 2, "offset": n, "value": b'{"x": 1}'}
        for n in range(4)
    ]
    insert(lake, "records", rows)
    for statement, expected in (
        ("SELECT topic, count(*) AS n FROM records GROUP BY ALL ORDER BY ALL", ["a,2", "b,2"]),
        ("FROM records SELECT topic, offset WHERE offset > 2", ["b,3"]),
        (
            "PIVOT (SELECT topic, offset FROM records) ON topic USING count(*)",
            ["0,1,0", "1,0,1", "2,1,0", "3,0,1"],
        ),
        ("SELECT decode(value)->>'x' AS x FROM records LIMIT 1", ["1"]),
        ("SELECT regexp_extract(topic, '[a]') AS x FROM records ORDER BY 1 DESC LIMIT 1", ["a"]),
        ("SELECT column_name FROM (SUMMARIZE SELECT offset FROM records)", ["offset"]),
        ("DESCRIBE SELECT offset FROM records", ["offset,BIGINT,YES,,,"]),
        ("SELECT column_name FROM (DESCRIBE topics) LIMIT 1", ["topic"]),
        ("SELECT count(*) > 30 AS many FROM (SHOW TABLES)", ["true"]),
    ):
        assert sorted(answer(lake, statement, "csv")[1:]) == expected, statement
    assert answer(lake, "EXPLAIN SELECT 1")
    assert any(
        "Projection" in line for line in answer(lake, "EXPLAIN SELECT 1 + offset FROM records", "table")
    )
    assert answer(lake, "EXPLAIN ANALYZE SELECT 1", "table")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("selec 1", 'error: SQL: Parser Error: syntax error at or near "selec"'),
        ("", "error: STATEMENT is empty"),
        (";", "error: SQL: there is no statement"),
        ("SELECT 1; SELECT 2", "error: SQL: one statement at a time"),
        ("SELECT * FROM segmnts", 'Table with name segmnts does not exist! Did you mean "segments"?'),
        ("SELECT kafka_partitio(key, 3) FROM records", 'Did you mean "kafka_partition"?'),
        ("SELECT ofset FROM records", 'Candidate bindings: "offset"'),
        (
            "SELECT CAST(topic AS INT) FROM (SELECT 'a' AS topic)",
            "error: SQL: Conversion Error: Could not convert",
        ),
        ("SELECT crc32c(1)", "error: SQL: Binder Error: No function matches"),
        ("SELECT 'open", "error: SQL: Parser Error: unterminated string literal"),
    ],
)
def test_wrong_statements_are_one_line(
    lake_template: str, statement: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert query.main(["--lake", lake_template, "--engine", "duckdb", statement]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert said in error


@pytest.mark.parametrize(
    "statement",
    [
        "COPY records TO '{lake}/x.parquet'",
        "COPY (SELECT 1) TO '/tmp/x.csv'",
        "COPY (PIVOT segments ON partition USING count(*)) TO '{lake}/records/_delta_log/x.csv'",
        "/* a */ COPY (SELECT * FROM (PIVOT segments ON partition USING count(*))) TO '{lake}/records/x.csv'",
        "EXPLAIN ANALYZE COPY (PIVOT segments ON partition USING count(*)) TO '{lake}/records/x.csv'",
        "EXPLAIN (ANALYZE) COPY (PIVOT segments ON partition USING count(*)) TO '{lake}/records/x.csv'",
        "WITH p AS (PIVOT segments ON partition USING count(*)) INSERT INTO records FROM p",
        "CREATE TABLE t AS PIVOT segments ON partition USING count(*)",
        "PREPARE p AS PIVOT segments ON partition USING count(*)",
        "EXPORT DATABASE '/tmp/x'",
        "IMPORT DATABASE '/tmp/x'",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "SET VARIABLE a = 1",
        "RESET threads",
        "USE memory",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "CHECKPOINT",
        "CREATE TABLE t AS SELECT 1 AS a",
        "CREATE SECRET (TYPE s3)",
        "DROP VIEW records",
        "DELETE FROM records",
        "INSERT INTO records SELECT * FROM records",
        "WITH r AS (SELECT 1) DELETE FROM records",
        "PREPARE p AS COPY (SELECT 1) TO '/tmp/x.csv'",
        "EXECUTE p",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{lake}/x.csv'",
        "EXPLAIN (ANALYZE, FORMAT json) COPY (SELECT 1) TO '{lake}/x.csv'",
        "EXPLAIN CREATE TABLE t AS SELECT 1 AS a",
        "BEGIN",
        "VACUUM",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/proc/self/environ')",
        "SELECT * FROM read_parquet('/tmp/*')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM read_csv('https://example.com/x.csv')",
        "SELECT getenv('HOME')",
        "SELECT * FROM query('COPY (SELECT 1) TO ''/tmp/x.csv''')",
        "SELECT * FROM lake",
    ],
)
def test_duckdb_only_reads_and_only_the_lake(
    lake_template: str, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(Path(lake_template).rglob("*"))
    given = ["--lake", lake_template, "--engine", "duckdb", statement.format(lake=lake_template)]
    assert query.main(given) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("error: ")
    assert sorted(Path(lake_template).rglob("*")) == files


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM records",
        "/* a */ -- SELECT\nUPDATE segments SET records = 0",
        "--x\rDELETE FROM records",
        "/* /* SELECT */ */ DELETE FROM records",
        "WITH r AS (SELECT * FROM records) INSERT INTO records SELECT * FROM r",
        "FROM records INSERT INTO records SELECT *",
        "INSERT INTO IDENTIFIER('records') SELECT * FROM records",
        "MERGE INTO segments USING records ON true WHEN MATCHED THEN DELETE",
        "DROP VIEW records",
        "VACUUM delta.`/tmp/x`",
        "OPTIMIZE delta.`/tmp/x`",
        "TRUNCATE TABLE records",
        "SET spark.sql.ansi.enabled=false",
        "CREATE TEMP VIEW x AS SELECT 1",
        "CACHE TABLE records",
        "ADD JAR '/tmp/x.jar'",
        "USE default",
        "EXECUTE IMMEDIATE 'DELETE FROM records'",
        "BEGIN DELETE FROM records; END",
        "DECLARE x INT",
        "EXPLAIN DELETE FROM records",
        "SELECT TRANSFORM(topic) USING 'cat' FROM records",
        "FROM records MAP topic USING 'cat'",
        "FROM records REDUCE topic USING 'cat'",
        "EXPLAIN SELECT TRANSFORM(topic) USING 'cat' FROM records",
        "SELECT * FROM (SELECT TRANSFORM(topic) USING 'cat' AS a FROM records)",
        "WITH a AS (SELECT TRANSFORM(topic) USING 'cat' AS b FROM records) SELECT * FROM a",
        "SELECT (SELECT max(b) FROM (SELECT TRANSFORM(topic) USING 'cat' AS b FROM records))",
        "SELECT 1 WHERE EXISTS (SELECT TRANSFORM(topic) USING 'cat' AS b FROM records)",
        "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT 1 FROM records WHERE `JAVA_METHOD`('java.lang.System', 'getenv', 'HOME') = ''",
        "SELECT system.builtin.try_reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv', 'HOME')",
        "SELECT transform(array(1), x -> reflect('java.lang.System', 'getenv', 'HOME'))",
        "SELECT r'\\', 1 UNION SELECT reflect('java.lang.System', 'getenv', 'HOME'), 2 -- '",
    ],
)
def test_spark_only_reads_by_its_own_plan(
    spark: SparkSession, prepared: Callable[[str, str], list[str]], statement: str
) -> None:
    with pytest.raises(UserError, match="query only reads, and this has ") as caught:
        check_reads(spark, statement)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'INSERT INTO' AS `DELETE`, r'\\' -- INSERT",
        "(SELECT 1) UNION (SELECT 2) EXCEPT SELECT 3 INTERSECT SELECT 4",
        "WITH a AS (SELECT 1 AS x), b AS (FROM a) SELECT * FROM b WHERE x IN (SELECT x FROM a)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT sum(i) FROM n",
        "FROM records |> WHERE offset > 1 |> AGGREGATE count(*) GROUP BY topic |> ORDER BY 1 |> LIMIT 1",
        "SELECT topic, count(*) FROM records GROUP BY ROLLUP (topic) HAVING count(*) > 1 LIMIT 1 OFFSET 1",
        "SELECT sum(offset) OVER w FROM records WINDOW w AS (PARTITION BY topic ORDER BY offset)",
        "SELECT h.key FROM records LATERAL VIEW explode(headers) t AS h",
        "SELECT s.x FROM records r JOIN segments USING (topic) LEFT ANTI JOIN topics t ON t.topic = r.topic, "
        "LATERAL (SELECT r.offset AS x) s",
        "SELECT * FROM (SELECT topic, partition FROM records) PIVOT (count(*) FOR partition IN (0, 1))",
        "SELECT * FROM VALUES (1, 2) t(a, b) UNPIVOT (v FOR k IN (a, b))",
        "SELECT /*+ BROADCAST(r) */ transform(headers, h -> h.key) FROM records TABLESAMPLE (10 ROWS) r",
        "SELECT DISTINCT topic FROM records DISTRIBUTE BY topic SORT BY topic",
        "SELECT * FROM retention_report(retention_ms => 5)",
        "SELECT offset, status FROM (SELECT 1 AS offset, x'00' AS v), LATERAL kafka_batches(v)",
        "SELECT * FROM range(3)",
        "VALUES (1)",
        "TABLE records",
        "SHOW TABLES",
        "SHOW FUNCTIONS LIKE 'kafka*'",
        "SHOW COLUMNS FROM records",
        "DESCRIBE records",
        "DESCRIBE FUNCTION crc32c",
        "DESC (SELECT 1)",
        "EXPLAIN EXTENDED SELECT 1",
        "SELECT '${{env:HOME}}'",
    ],
)
def test_what_reads_is_run_by_spark(
    spark: SparkSession, prepared: Callable[[str, str], list[str]], statement: str
) -> None:
    check_reads(spark, statement)
    prepared(statement, "json")


def test_spark_substitutes_no_variable(spark: SparkSession, lake: str) -> None:
    assert list(in_spark(spark, lake, "SELECT '${env:HOME}' AS a, '${spark.app.name}' AS b", "csv")) == [
        "a,b",
        "${env:HOME},${spark.app.name}",
    ]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELEC 1", r"SQL: \[PARSE_SYNTAX_ERROR\]"),
        ("", r"SQL: \[PARSE_EMPTY_STATEMENT\]"),
        ("SELECT 1; SELECT 2", r"SQL: \[PARSE_SYNTAX_ERROR\]"),
        ("SELECT ofset FROM records", r"Did you mean one of the following\? \[`offset`"),
        ("SELECT * FROM segmnts", r"; did you mean segments\?$"),
        ("SELECT 1 / 0", r"SQL: \[DIVIDE_BY_ZERO\]"),
        ("SELECT raise_error(string(id)) FROM range(1)", r"SQL: \[USER_RAISED_EXCEPTION\] 0"),
    ],
)
def test_wrong_statements_are_one_line_in_spark(
    spark: SparkSession, prepared: Callable[[str, str], list[str]], statement: str, message: str
) -> None:
    def run() -> None:
        with one_line_errors(spark):
            check_reads(spark, statement)
        prepared(statement, "json")

    with pytest.raises(UserError, match=message) as caught:
        run()
    assert "\n" not in str(caught.value)


def test_upkeep_is_possible_where_it_is_requested(
    spark: SparkSession, lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    insert(lake, "records", [{"topic": "t", "partition": 0, "magic": 2, "offset": n} for n in range(3)])
    statement = "DELETE FROM records WHERE offset < 2"
    assert query.main(["--lake", lake, "--writes", "allow", statement]) == 0
    assert answer(lake, "SELECT offset FROM records", "csv") == ["offset", "2"]
    assert query.main(["--lake", lake, "--writes", "allow", "--engine", "duckdb", statement]) == 2
    assert capsys.readouterr().err == "error: DuckDB only reads: --writes allow needs --engine spark\n"


_ON_S3 = (
    "error: SQL can't write to s3://nowhere/lake: on S3 a commit of Spark overwrites another writer's; "
    "use maintain for upkeep, and the Python package deltalake for other changes\n"
)


@pytest.mark.parametrize("lake", ["s3://nowhere/lake", "s3a://nowhere/lake/"])
def test_on_s3_a_statement_that_writes_is_refused(
    spark: SparkSession, lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for statement in ("DELETE FROM records", "--x\rDELETE FROM records", "OPTIMIZE records"):
        assert query.main(["--lake", lake, "--writes", "allow", statement]) == 2
        assert capsys.readouterr().err == _ON_S3


def test_the_shell_of_a_lake_on_s3_writes_no_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "copy"
    monkeypatch.setattr(sql_shell.SparkShell, "__init__", lambda self, *given: None)
    shell = sql_shell.SparkShell(spark, "")
    shell._spark, shell._lake = spark, "s3a://nowhere/lake"
    for statement in (
        f"CREATE TABLE delta.`{table}` AS SELECT 1 AS a",
        "OPTIMIZE records",
        "EXECUTE IMMEDIATE 'DELETE FROM records'",
        "BEGIN DELETE FROM records; END",
    ):
        assert not sql_shell.run_statement(shell, statement)
        assert capsys.readouterr().err == _ON_S3
    assert not table.exists()
    for statement in (
        "CREATE OR REPLACE TEMP VIEW one AS SELECT 1 AS a",
        "SET spark.sql.shuffle.partitions",
        "SELECT a FROM one",
        "DROP VIEW one",
    ):
        assert sql_shell.run_statement(shell, statement), capsys.readouterr().err


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
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "answer.csv"
    requested = ["--lake", lake, "--engine", "duckdb", "--output", str(path)]
    assert query.main([*requested, "SELECT 1 AS a, '' AS b UNION ALL SELECT 2, NULL ORDER BY a"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err.splitlines()[-1]) == ("", f"2 rows written to {path}")
    assert path.read_text() == 'a,b\n1,""\n2,\n'
    assert query.main([*requested, "SELECT error(i::VARCHAR) AS a FROM range(3) t(i)"]) == 2
    assert path.read_text() == 'a,b\n1,""\n2,\n'
    assert query.main([*requested, "SELECT 3 AS a"]) == 0
    assert path.read_text() == "a\n3\n"
    assert [one.name for one in tmp_path.glob("answer*")] == ["answer.csv"]


KEYS_AND_HEADERS: tuple[tuple[bytes | None, list[dict[str, Any]] | None], ...] = (
    (None, None),
    (b"\xff", [{"key": "k", "value": None}]),
    (b"", []),
)


def test_both_engines_write_the_same_parquet_file(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    rows = [
        {"topic": "t", "partition": 0, "magic": 2, "offset": n, "key": key, "headers": headers}
        for n, (key, headers) in enumerate(
            [(None, None), (b"\xff", [{"key": "k", "value": None}]), (b"", [])]
        )
    ]
    insert(lake, "records", rows)
    statement = (
        "SELECT key, headers, timestamp, offset, magic, is_control, try_validate_utf8(key) AS t FROM records"
    )
    for engine in ("duckdb", "spark"):
        given = ["--lake", lake, "--engine", engine, "--output", str(tmp_path / f"{engine}.parquet")]
        assert query.main([*given, statement]) == 0
    ours, sparks = (pq.read_table(tmp_path / f"{engine}.parquet") for engine in ("duckdb", "spark"))
    assert ours.schema == sparks.schema
    assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, sparks.to_pylist()))
    with pytest.raises(UserError, match="two columns are named a"):
        write_parquet(str(tmp_path / "twice"), pa.schema([("a", pa.int32()), ("a", pa.int32())]), [])


def test_text_of_spark_that_is_no_utf_8_is_text_in_a_parquet_file(
    spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    values, texts = (b"a\xff", "é".encode(), None), ["a\ufffd", "é", None]
    headers = [{"key": key, "value": value} for key, value in zip("xyz", values, strict=True)]
    insert(lake, "records", [{"topic": "t", "partition": 0, "magic": 2, "offset": 0, "headers": headers}])
    cast = "transform(headers, h -> CAST(h.value AS STRING))"
    statement = (
        f"SELECT {cast} AS texts, map_from_arrays(headers.key, {cast}) AS by_key, "
        f"named_struct('first', {cast}[0], 'at', timestamp) AS both FROM records"
    )
    write_parquet(str(tmp_path / "answer"), *arrow(spark, lake, statement))
    (found,) = pq.read_table(tmp_path / "answer").to_pylist()
    by_key = list(zip("xyz", texts, strict=True))
    assert found == {"texts": texts, "by_key": by_key, "both": {"first": texts[0], "at": None}}


SCHEMA = pa.schema([("a", pa.int32())])


@pytest.mark.parametrize(
    ("write", "row"),
    [
        (write_csv, "1"),
        (lambda path, rows: write_parquet(path, SCHEMA, rows), pa.record_batch([[1]], SCHEMA)),
    ],
    ids=["csv", "parquet"],
)
def test_an_output_that_fails_is_distinguished_from_a_query_that_fails(
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


def test_a_file_next_to_the_output_is_left_alone(tmp_path: Path) -> None:
    leftover = tmp_path / f"answer.csv.{os.getpid()}.tmp"
    leftover.write_text("of a process that was killed")
    assert write_csv(str(tmp_path / "answer.csv"), ["a", "1"]) == 1
    assert (tmp_path / "answer.csv").read_text() == "a\n1\n"
    assert leftover.read_text() == "of a process that was killed"


def test_the_shell_s_banner_names_what_is_there_and_queries_that_run(lake: str) -> None:
    shell = sql_shell.DuckShell(Settings(lake=lake), None)
    text = sql_shell.banner(shell.tables, 60)
    assert max(map(len, text.split("try")[0].splitlines())) <= 60
    assert {"records", "segments", "messages", "topics"} <= set(re.findall(r"\w+", text))
    assert all(query in text for query in sql_shell.QUERIES)
    assert shell.words >= {"records", "topics", "offset", "timestamp"}
    for statement in sql_shell.QUERIES:
        assert list(shell.lines(statement))[-1] == "(0 rows)"


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


def test_command_refuses_a_folder_without_a_lake(tmp_path: Path) -> None:
    done = in_process(tmp_path, "pipelines.query", "--lake", "nope", "SELECT 1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: there is no lake at nope: name a folder that decode made\n"


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


STATEMENTS = (
    "-- a comment; with a semicolon\nSELECT ';' AS a,\n  /* ; */ crc32c({0}) AS crc;\n"
    "SELECT * FROM recods; {1};\nEXPLAIN SELECT 1;SELECT {2} AS made;\n\nSELECT 5 AS last"
)


def run_shell(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lake: str,
    engine: str,
    statements: str,
) -> tuple[str, str, str]:
    """What the shell prints, and its two lines of errors."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(statements))
    assert sql_shell.main(["--lake", lake, "--engine", engine]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("a         crc\n-  ----------\n;  3808858755\n(1 row)\n")
    assert said.out.endswith("last\n----\n   5\n(1 row)\n")
    first, last = said.err.splitlines()
    assert last == "error: 1 statement failed"
    return said.out, first, last


def test_shell_goes_on_after_a_wrong_statement(
    lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statements = STATEMENTS.format(
        "encode('123456789')", "CREATE TEMP TABLE t AS SELECT 17 AS n", "(SELECT n FROM t)"
    )
    out, error, _ = run_shell(monkeypatch, capsys, lake, "duckdb", statements)
    assert "Projection" in out
    assert "made\n----\n  17\n" in out
    assert error.endswith('Table with name recods does not exist! Did you mean "records"?')


def test_shell_of_spark(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change, at = "SET spark.sql.session.timeZone=Asia/Tokyo", "string(timestamp_seconds(0))"
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        out, error, _ = run_shell(
            monkeypatch, capsys, lake, "spark", STATEMENTS.format("'123456789'", change, at)
        )
    assert "1970-01-01 09:00:00" in out
    assert "\n== Physical Plan ==\n" in out
    assert error.startswith("error: SQL: [TABLE_OR_VIEW_NOT_FOUND]")
    assert error.endswith("; did you mean records?")


@pytest.mark.parametrize(
    "statement",
    ["COPY records TO '{lake}/x.csv'", "ATTACH '/tmp/x.db'", "SET threads = 1", "PREPARE p AS SELECT 1"],
)
def test_the_shell_reaches_no_file(lake: str, statement: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell = sql_shell.DuckShell(Settings(lake=lake), None)
    assert not sql_shell.run_statement(shell, statement.format(lake=lake))
    assert capsys.readouterr().err.startswith("error: ")
    assert not Path(lake, "x.csv").exists()


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
        ("SELECT ';';", ["SELECT ';'"], ""),
        (r"SELECT 'a\'; SELECT 2;", [r"SELECT 'a\'", "SELECT 2"], ""),
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


def test_a_backslash_escapes_a_quote_in_spark_s_statements() -> None:
    assert split_statements(r"SELECT 'it\'s;';", has_escapes=True) == ([r"SELECT 'it\'s;'"], "")

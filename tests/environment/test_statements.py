"""Which statements query runs: only those that read, in both engines, and wrong ones are one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.query import command as query
from kafka_log_lake.pipelines.query.gate import check_reads
from kafka_log_lake.pipelines.query.spark import answer as in_spark
from kafka_log_lake.pipelines.query.spark import one_line_errors, prepare, results
from tests.support.answers import answer
from tests.support.lake_rows import insert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, lake_template: str) -> Callable[[str, str], list[str]]:
    """Runs statements in a session that knows all tables and views: they take longer than most statements."""
    prepare(spark, lake_template)
    return lambda statement, output: list(results(spark, statement, output))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("selec 1", 'error: SQL: Parser Error: syntax error at or near "selec"'),
        ("", "error: STATEMENT is empty"),
        (";", "error: SQL: there is no statement"),
        ("SELECT 1; SELECT 2", "error: SQL: one statement at a time"),
        ("SELECT * FROM segmnts", 'Table with name segmnts does not exist! Did you mean "segments"?'),
        ("FROM constraints", "Table with name constraints does not exist!\n"),
        ("SELECT kafka_partitio(key, 3) FROM records", 'Did you mean "kafka_partition"?'),
        ("SELECT ofset FROM records", 'Candidate bindings: "offset"'),
        (
            "SELECT CAST(topic AS INT) FROM (SELECT 'a' AS topic)",
            "error: SQL: Conversion Error: Could not convert",
        ),
        ("SELECT crc32c(1)", "error: SQL: Binder Error: No function matches"),
        ("SELECT 'open", "error: SQL: Parser Error: unterminated string literal"),
        ("SELECT 1 // 0", "Use TRY(...) to return NULL for this expression.\n"),
        ("SELECT list_transform([1], x -> x)", "before DuckDB's next release. For more information"),
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
        ("SELECT 1 / 0", r"SQL: \[DIVIDE_BY_ZERO\] .* return NULL instead\. SQLSTATE"),
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

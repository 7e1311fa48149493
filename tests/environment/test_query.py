"""One statement over a lake: formats, errors of one line, what may not run, the command and the shell."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.query import command as query
from kafka_log_lake.pipelines.query.spark import arrow, prepare, results
from kafka_log_lake.pipelines.sql.answer_files import write_csv, write_parquet
from kafka_log_lake.pipelines.sql.statements import duckdb_text
from tests.support.answers import answer
from tests.support.lake_rows import insert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

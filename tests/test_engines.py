"""DuckDB gives the rows that Spark gives: every view, every documented query, every translated expression."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import format_report, quality_report
from pipelines.command.errors import UserError
from pipelines.command.settings import Settings
from pipelines.engine import answer as without_java
from pipelines.engine import spark as with_spark
from pipelines.engine.errors import Unsupported
from pipelines.engine.files import write_parquet
from pipelines.engine.names import spark_functions
from pipelines.views.declared import SESSION_VIEWS, View
from tests.support import as_command
from tests.support.answers import prepare_in_memory
from tests.support.corpus import ROOT as CORPUS
from tests.support.docs import DOCS, README, blocks, bundled_sources
from tests.support.edge_rows import make_edge_rows
from tests.support.lake_rows import add_unpublished, insert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Both = Callable[[str, str], None]

STATEMENTS = Path(__file__).resolve().parent / "data" / "engines"

# Views and functions that need Spark: another algorithm in DuckDB, or Arrow functions of Spark's workers
OF_SPARK: tuple[str, ...] = (
    "topic_profile",
    "current_date",
    "percentile_approx",
    "kafka_",
    "crc32",
    "confluent_",
    "get_json_object",
    "from_json",
)
OF_SPARK += tuple(
    view.name for view in SESSION_VIEWS if view.in_session_only and view.name != "internal_records"
)


@pytest.fixture(scope="module")
def bundled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lake of ``make run``, more logs and damage, both reports' tables, and rows that do not count."""
    folder = tmp_path_factory.mktemp("engines")
    lake = str(folder / "lake")
    more = (
        "v2-internal",
        "v2-segments",
        "v2-compacted-txn",
        "lib-sequence-wrap",
        "lib-no-timestamp",
        "v0-single",
    )
    hostile = ("hostile/zstd-corrupt-head-0", "hostile/truncated-*")
    sources = (*bundled_sources(), *(str(CORPUS / name) for name in more))
    sources += tuple(str(CORPUS / name) for name in hostile if list(CORPUS.glob(name)))
    as_command.decode(spark, Settings(source=sources, lake=lake))
    quality_report.run(Settings(lake=lake), output=str(folder / "report"))
    format_report.run(spark, Settings(lake=lake, codec_levels="snappy", sample_batches=1))
    add_unpublished(lake)
    return lake


@pytest.fixture(scope="module")
def edges(lake_template: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = str(tmp_path_factory.mktemp("edges") / "lake")
    shutil.copytree(lake_template, lake)
    make_edge_rows(lake)
    return lake


@pytest.fixture(scope="module")
def compare(spark: SparkSession) -> Both:
    """Asks both engines and compares names, types and values; the order too where there is one."""
    registered: list[str] = []  # the lake whose tables the session has

    def both(lake: str, statement: str) -> None:
        found = [parsed(line) for line in without_java.answer(lake, statement, "json")]
        if registered[-1:] != [lake]:
            prepare_in_memory(spark, lake)
            registered.append(lake)
        expected = [parsed(line) for line in with_spark.results(spark, statement, "json")]
        if re.search(r"ORDER BY[^)]*$", statement) is None:
            found, expected = sorted(found), sorted(expected)
        assert found == expected, statement

    return both


def parsed(line: str) -> str:
    """Names and values of a row. Java 17 writes more digits of some doubles than they need."""
    return repr(json.loads(line, object_pairs_hook=list))


def needs_spark(statement: str) -> bool:
    return any(name in statement for name in OF_SPARK)


@pytest.mark.parametrize("view", SESSION_VIEWS, ids=lambda view: view.name)
def test_every_view(compare: Both, bundled: str, view: View) -> None:
    if view.name in OF_SPARK:
        if view.has_defaults:
            with pytest.raises(Unsupported):
                list(without_java.answer(bundled, f"SELECT * FROM {view.name}", "json"))
        return
    # A default that is the time of asking is given, so that both are asked at one time
    given = "at_ms => 1800000000000" if any(one.name == "at_ms" for one in view.parameters) else ""
    compare(bundled, f"SELECT * FROM {view.name}{f'({given})' if view.parameters else ''}")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM hanging_transactions(timeout_ms => 9000000000000)",
        "SELECT * FROM hanging_transactions(60000)",
        "SELECT * FROM retention_report(retention_ms => -1, retention_bytes => 4000, at_ms => 1800000000000)",
        "SELECT * FROM retention_report(86400000, 1000000000, 1700000000000)",
        "SELECT * FROM timestamp_anomalies(max_disorder_ms => 0)",
        "SELECT * FROM timestamp_anomalies(max_future_ms => -100000000000, max_disorder_ms => 10)",
        "SELECT * FROM compaction_report(at_ms => 0)",
    ],
)
def test_views_with_arguments(compare: Both, bundled: str, statement: str) -> None:
    compare(bundled, statement)


SHOWN = [
    pytest.param(statement, id=f"{page.stem}-{i}")
    for page in (README, *DOCS)
    for i, statement in enumerate(blocks(page, "sql"))
    if re.match(r"\s*(SELECT|WITH)", statement) and "delta.`" not in statement
]


@pytest.mark.parametrize("statement", SHOWN)
def test_every_documented_query(compare: Both, bundled: str, statement: str) -> None:
    if needs_spark(statement):
        with pytest.raises(Unsupported):
            list(without_java.answer(bundled, statement, "json"))
    else:
        compare(bundled, statement)


def test_most_documented_queries_need_no_java() -> None:
    pages = [
        one.values[0] for one in SHOWN if str(one.id).startswith(("README", "views", "quality", "formats"))
    ]
    assert len(pages) > 20
    assert [one for one in pages if needs_spark(str(one))] == [
        one for one in pages if re.search("topic_profile|key_partitions", str(one))
    ]


def statements(name: str) -> list[str]:
    return [one.strip() for one in (STATEMENTS / name).read_text().split(";") if one.strip()]


@pytest.mark.parametrize("statement", statements("expressions.sql"))
def test_expressions_at_edges(compare: Both, edges: str, statement: str) -> None:
    compare(edges, statement)


@pytest.mark.parametrize("statement", statements("queries.sql"))
def test_forms_of_queries(compare: Both, edges: str, statement: str) -> None:
    compare(edges, statement)


def test_bytes_that_are_no_utf_8(compare: Both, lake: str) -> None:
    """Bytes made of pieces of UTF-8: cut, overlong, surrogates, past the last character."""
    pick = random.Random(7)
    pieces = [
        b"a",
        b"\xc3",
        b"\xa9",
        b"\xe2\x82",
        b"\xac",
        b"\xed\xa0",
        b"\x80",
        b"\xf0\x9f",
        b"\x98",
        b"\xff",
    ]
    pieces += [b"\xc0", b"\xe0\x80", b"\xf4\x90", b"\xf5", b"\xf0\x80", "é€😀".encode()]
    keys = [b"".join(pick.choices(pieces, k=pick.randint(1, 6))) for _ in range(3000)]
    rows = [{"topic": "t", "partition": 0, "magic": 2, "offset": i, "key": key} for i, key in enumerate(keys)]
    insert(lake, "records", rows)
    compare(lake, "SELECT offset, CAST(key AS STRING) AS key FROM records")
    compare(lake, "SELECT CAST(key AS STRING) AS key, count(*) FROM records GROUP BY CAST(key AS STRING)")
    compare(lake, "SELECT count(*) FROM records WHERE CAST(key AS STRING) LIKE '%aé%'")
    compare(lake, "SELECT offset, try_validate_utf8(CAST(key AS STRING)) AS key_text FROM records")


@pytest.mark.parametrize(
    "expression",
    [
        "offset / 0",
        "offset % 0",
        "offset DIV 0",
        "pmod(offset, 0)",
        "offset + 9223372036854775807",
        "-9223372036854775807 - offset",
        "offset * 4611686018427387904",
        "CAST(offset * 10000000 AS INT)",
        "CAST(topic AS INT)",
        "CAST(1e300 * offset AS BIGINT)",
        "length(CAST(key AS STRING))",
        "sum(offset * 0 + 9223372036854775807)",
    ],
)
def test_what_fails_in_spark_is_left_to_spark(lake: str, expression: str) -> None:
    """No row is printed before: what Spark says of it, or answers, is the whole output."""
    place = {"topic": "t", "partition": 0, "magic": 2}
    rows = [{**place, "offset": n, "key": b"a" if n < 4000 else b"\xff"} for n in range(2, 4002)]
    insert(lake, "records", rows)
    with pytest.raises(Unsupported, match="it failed"):
        next(without_java.answer(lake, f"SELECT {expression} AS x FROM records", "json"))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('*')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM lake_records",
        "SELECT c0 FROM records",
        "SELECT error('x')",
        "COPY records TO '/tmp/x'",
        "ATTACH 'x.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "SELECT * FROM parquet.`/tmp`",
        "SELECT * FROM delta.`/tmp/x`",
        "SHOW TABLES",
        "DESCRIBE records",
        "SELECT upper(topic) FROM records",
        "SELECT r'a\\b'",
        "SELECT 'a' 'b'",
        "SELECT '\\u0041'",
        "SELECT '${x}'",
        "SELECT offset FROM records TABLESAMPLE (1 ROWS)",
        "SELECT offset FROM records VERSION AS OF 0",
        "FROM records |> SELECT offset",
        "SELECT * FROM records r JOIN segments USING (topic)",
        "SELECT topic FROM records r WHERE EXISTS (SELECT 1 FROM segments s WHERE s.topic = r.topic)",
        "SELECT offset FROM records WHERE offset > '5'",
        "SELECT sum(1.5)",
        "SELECT element_at(headers, 1) FROM records",
        "SELECT transform(headers, (h, i) -> i) FROM records",
        "SELECT map('a', 1)",
        "SELECT parse_json('{}'):a",
    ],
)
def test_what_is_not_known_to_be_alike_never_reaches_duckdb(lake: str, statement: str) -> None:
    with pytest.raises((Unsupported, UserError)):
        list(without_java.answer(lake, statement, "json"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM segmnts", r"\[TABLE_OR_VIEW_NOT_FOUND\].*; did you mean segments\?$"),
        ("SELECT * FROM topics t JOIN lgs l ON true", r"`lgs` cannot be found; did you mean logs\?$"),
        ("SELECT kount(*) FROM records", r"\[UNRESOLVED_ROUTINE\].*; did you mean count\?$"),
        ("SELECT ofset FROM records", r"Did you mean one of the following\? \[`offset`"),
        ("SELECT r.ofset FROM records r", r"Did you mean one of the following\? \[`offset`"),
        ("SELECT topic FROM records WHERE partitoin = 1", r"\[`partition`"),
        ("SELECT * FROM quality_metrics", r"\[TABLE_OR_VIEW_NOT_FOUND\]"),
        ("SELECT CAST(value AS STRING):name FROM records", r"a colon reads no field .* get_json_object\("),
        ("SELECT value:name::int FROM records", r"from_json\(CAST\(value AS STRING\), 'name STRING'\)\.name"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest_ones(lake: str, statement: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        list(without_java.answer(lake, statement, "json", is_asked=False))
    assert "\n" not in str(caught.value)


def test_the_list_of_spark_s_functions_is_that_of_this_spark(spark: SparkSession) -> None:
    names = {str(row[0]) for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert spark_functions() == {name for name in names if name.replace("_", "").isalnum()}


def test_the_formats_print_alike(spark: SparkSession, edges: str) -> None:
    columns = "key, value AS other, headers, timestamp, control_type, is_control, offset"
    statement = (
        f"SELECT {columns} FROM records ORDER BY offset, timestamp, control_type, key, other, sequence"
    )
    for output in ("table", "csv", "json"):
        found = list(without_java.answer(edges, statement, output))
        assert found == list(with_spark.answer(spark, edges, statement, output))


def test_a_table_that_only_spark_reads_is_left_to_it(spark: SparkSession, lake: str) -> None:
    insert(lake, "segments", [{"topic": "t", "partition": 0, "segment": str(n)} for n in range(9)])
    spark.sql(f"ALTER TABLE delta.`{lake.replace('`', '``')}/segments` ADD COLUMN more INT")
    with pytest.raises(Unsupported, match="other columns"):
        list(without_java.answer(lake, "SELECT count(*) FROM segments", "json"))


def test_a_topic_of_a_strange_name_is_answered_all_the_same(compare: Both, lake: str) -> None:
    names = ["a b", "x=y", "50%", "ü", "it's"]
    insert(lake, "records", [{"topic": name, "partition": 0, "magic": 2, "offset": 1} for name in names])
    with pytest.raises(Unsupported, match="that no folder is named by"):
        compare(lake, "SELECT topic FROM records")


def test_both_engines_write_the_same_parquet_file(spark: SparkSession, edges: str, tmp_path: Path) -> None:
    statement = (
        "SELECT key, CAST(value AS STRING) AS text, headers, timestamp, CAST(timestamp AS DATE) AS day, "
        "magic, control_type, is_control, offset, producer_epoch, CAST(offset AS DOUBLE) AS real, "
        "NULL AS nothing, map_from_arrays(array_distinct(headers.key), array_distinct(headers.key)) AS names "
        "FROM records"
    )
    for name, (schema, batches) in {
        "duckdb": without_java.arrow(edges, statement),
        "spark": with_spark.arrow(spark, edges, statement),
    }.items():
        assert write_parquet(str(tmp_path / name), schema, batches) == 156
    ours, sparks = (pq.read_table(tmp_path / name) for name in ("duckdb", "spark"))
    assert ours.schema == sparks.schema
    assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, sparks.to_pylist()))
    assert pq.read_schema(tmp_path / "duckdb").field("timestamp").type == pa.timestamp("us", "UTC")
    with pytest.raises(UserError, match="two columns are named a"):
        write_parquet(str(tmp_path / "twice"), *without_java.arrow(edges, "SELECT 1 AS a, 2 AS a"))


def test_headers_that_are_no_utf_8_are_text_in_a_parquet_file(
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
    write_parquet(str(tmp_path / "answer"), *with_spark.arrow(spark, lake, statement))
    (found,) = pq.read_table(tmp_path / "answer").to_pylist()
    by_key = list(zip("xyz", texts, strict=True))
    assert found == {"texts": texts, "by_key": by_key, "both": {"first": texts[0], "at": None}}

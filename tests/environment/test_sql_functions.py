"""The functions in Spark SQL and DataFrames, over bytes that lie in tables; the page that describes them."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

import kafka_log_lake
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.dataframes.register import register_views
from kafka_log_lake.pipelines.query.spark import answer, results
from kafka_log_lake.pipelines.views.declared import needed_names
from kafka_log_lake.udfs.functions.declared import FUNCTIONS, TABLE_FUNCTIONS
from tests.support import as_command, corpus
from tests.support.logs import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "functions.md"


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    kafka_log_lake.register(spark)
    return spark


def test_spark_s_own_crc32_equals_that_of_kafka_s_old_messages(registered: SparkSession) -> None:
    (path,) = (corpus.ROOT / "v1-single").rglob("*0.log")
    message = path.read_bytes()
    size = 12 + int.from_bytes(message[8:12], "big")
    row = registered.sql(f"SELECT crc32(x'{message[16:size].hex()}') AS crc").first()
    assert row is not None
    assert row.crc == zlib.crc32(message[16:size]) == corpus.oracle_batches(path)[0]["crc"]


def test_a_column_of_values_next_to_the_others(registered: SparkSession) -> None:
    rows = [(0, batch(0)), (1, None), (2, b""), (3, b"junk"), (4, batch(7) + batch(10))]
    frame = registered.createDataFrame(rows, "id int, value binary").repartition(2)
    frame.createOrReplaceTempView("mirrored")
    statement = (
        "SELECT id, r.offset FROM mirrored, LATERAL kafka_records(value) r WHERE r.offset > 1 ORDER BY ALL"
    )
    expected = [(0, 2), (4, 7), (4, 8), (4, 9), (4, 10), (4, 11), (4, 12)]
    assert [tuple(row) for row in registered.sql(statement).collect()] == expected
    statement = (
        "SELECT id, status, reason FROM mirrored LEFT JOIN LATERAL kafka_batches(value) ON true ORDER BY id"
    )
    assert [tuple(row) for row in registered.sql(statement).collect()] == [
        (0, "ok", None),
        (1, None, None),
        (2, None, None),
        (3, "quarantined", "truncated"),
        (4, "ok", None),
        (4, "ok", None),
    ]
    inlined = frame.select("id", F.inline(F.call_function("kafka_records_array", "value"))).orderBy("offset")
    assert [(row.id, row.offset) for row in inlined.collect() if row.offset > 1] == expected


def test_scalar_functions_mix_with_streams_and_large_types(registered: SparkSession) -> None:
    packed = zlib.compress(b"123456789", wbits=31).hex()
    requested = registered.range(3).select(
        F.expr(f"crc32c(kafka_decompress('gzip', x'{packed}'))"),
        F.expr("kafka_partition('foobar', int(id))"),
        F.expr("confluent_payload(x'0000000007616263')"),
    )
    expected = [(0xE3069283, None, b"abc"), (0xE3069283, 0, b"abc"), (0xE3069283, 0, b"abc")]
    for large in ("false", "true"):
        registered.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
        try:
            found = [tuple(map(_plain, row)) for row in requested.collect()]
        finally:
            registered.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
        assert found == expected  # murmur2 of foobar, made positive, is even


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else value


def test_landed_chunks_and_quarantined_bytes_decode(spark: SparkSession, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    sources = tuple(str(corpus.ROOT / name) for name in ("v2-codec-zstd", "hostile/bitflip-crc-v2-zstd-0"))
    as_command.ingest(spark, Settings(lake=lake, source=sources))
    as_command.decode(spark, Settings(lake=lake, from_raw=True))
    register_views(spark, lake, "raw_segments, quarantine, kafka_records, kafka_batches")
    count = spark.sql("SELECT count(*) AS n FROM raw_segments, LATERAL kafka_records(content)").first()
    assert count is not None
    assert count.n == DeltaTable(f"{lake}/records").count() > 0
    found = spark.sql(
        "SELECT q.reason AS told, b.status, b.reason, b.size_bytes = q.size_bytes AS whole, b.base_offset = "
        "q.base_offset AS same FROM quarantine q, LATERAL kafka_batches(q.content) b"
    ).collect()
    assert [tuple(row) for row in found] == [("crc_mismatch", "corrupt", "crc_mismatch", True, True)]


@pytest.mark.parametrize(
    ("statement", "printed"),
    [
        ("SELECT * FROM recods", "; did you mean records?"),
        ("SELECT * FROM comitted_records", "; did you mean committed_records?"),
        ("SELECT crc32cc(key) FROM records", "; did you mean crc32c?"),
        ("SELECT kafka_partitions(key, 3) FROM records", "; did you mean kafka_partition?"),
        ("SELECT * FROM kafka_recods(x'00')", "; did you mean kafka_records?"),
        ("SELECT ofset FROM records", "Did you mean one of the following? [`offset`"),
        ("SELECT crc32c(1)", "TypeError: crc32c: expected binary, found int32"),
        ("SELECT * FROM kafka_records()", "requires 1 parameters but the actual number is 0"),
    ],
)
def test_wrong_names_and_arguments_are_one_line(
    spark: SparkSession, lake: str, statement: str, printed: str
) -> None:
    with pytest.raises(UserError) as caught:
        list(answer(spark, lake, statement, "table"))
    assert printed in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_session_gets_all_for_a_name_that_is_computed() -> None:
    computed = "SELECT count(*) FROM IDENTIFIER('committed_' || 'records')"
    assert needed_names(computed, ["records", "segments"]) >= {"committed_records", "records", "segments"}
    assert needed_names("SELECT crc32c(x'00')", ["records", "segments"]) == set()


def test_a_name_like_no_other_gets_no_suggestion(spark: SparkSession, lake: str) -> None:
    with pytest.raises(UserError) as caught:
        list(answer(spark, lake, "SELECT * FROM qqqqqq", "table"))
    assert "did you mean" not in str(caught.value)


def test_the_page_shows_what_spark_answers(registered: SparkSession) -> None:
    text = PAGE.read_text()
    shown = re.findall(r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(shown) == 7
    for statement, output in shown:
        assert "\n".join(results(registered, statement, "table")) + "\n" == output
    names = {one.name for one in FUNCTIONS} | {one.name for one in TABLE_FUNCTIONS} | {"crc32"}
    assert names <= set(re.findall(r"`(\w+)[(`]", text))

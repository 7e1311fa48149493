"""The report on formats: every exact size is that of a segment which Kafka's own library wrote."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.settings import CostSettings, Settings
from kafka_log_lake.pipelines.dataframes.register import register_views
from kafka_log_lake.pipelines.format_report import command as format_report
from kafka_log_lake.pipelines.format_report.format_savings import SavingsReport
from kafka_log_lake.udfs.format.report_tables import FORMAT_SAVINGS
from tests.kafka.writer import Form, Written, write_segments
from tests.support import as_command, logs
from tests.support.corpus import ROOT as CORPUS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PAGE = Path(__file__).parents[2] / "benchmarks" / "FORMATS.md"
BATCHINGS = (1, 10, 100, 1000)
WRITTEN = [Form(magic, records) for magic in (0, 1, 2) for records in BATCHINGS]
COMPRESSED = [
    *(Form(2, 7, codec, level) for codec, level in (("gzip", 6), ("lz4", 12), ("zstd", 3), ("snappy", None))),
    *(Form(magic, 7, "gzip", 9) for magic in (0, 1)),
]
LEVELS = "gzip:6,gzip:9,lz4:12,zstd:3,snappy"
# Kafka brings other versions of the same algorithms: gzip and LZ4 HC come out byte for byte
NEARLY = {"snappy": 0.01, "zstd": 0.001}


def mixed_records(count: int, headers: bool = True, seed: int = 3) -> list[Written]:
    """Records at the edges: null and empty keys and values, lengths about 2^6 and 2^13, gaps between offsets,
    timestamps that go back, headers with null values and keys of several bytes a letter."""
    chance = random.Random(seed)
    sizes = (0, 1, 62, 63, 64, 65, 127, 128, 300)
    found: list[Written] = []
    offset, timestamp = 5_000_000_000, 1_714_000_000_000
    for i in range(count):
        key = chance.choice([None, b"", b"key-%d" % i, b"k" * chance.choice(sizes)])
        value = chance.choice([None, b'{"id":%d}' % i, b"v" * chance.choice(sizes)])
        if i % 400 == 7:
            value = bytes(8180 + i % 30)
        named = [("", None), ("trace-id", b"%d" % i), ("ü€😀", b""), ("h" * 64, bytes(64))]
        chosen = chance.sample(named, chance.randrange(len(named) + 1)) if headers else []
        found.append(Written(offset, timestamp + chance.randrange(-9000, 9000), key, value, chosen))
        offset += 3_000_000 if i == 500 else chance.choice([1, 1, 1, 2, 70])
        timestamp += 86_400_000 if i % 300 == 0 else chance.choice([0, 5])
    return found


def put(root: Path, topic: str, segment: bytes, base: int = 0) -> None:
    logs.put(root / f"{topic}-0", base, segment)


def sorted_rows(table: pa.Table) -> list[str]:
    names = sorted(table.column_names)
    return sorted(str([row[name] for name in names]) for row in table.to_pylist())


Rows = Mapping[tuple[Any, ...], dict[str, Any]]


def rows_by_name(report: SavingsReport) -> Rows:
    """Rows by topic, magic, layout, records in a batch, codec and level."""
    names = ("topic", "magic", "layout", "batch_records", "codec", "level")
    return {tuple(row[name] for name in names): row for row in report.rows.to_pylist()}


@pytest.fixture(scope="module")
def judged() -> dict[str, Mapping[Form, bytes]]:
    """The same records in every form, as Kafka writes them."""
    plain = mixed_records(1234, headers=False)
    untimed = [replace(record, timestamp=-1) for record in plain]
    return {
        "full": write_segments(mixed_records(1234), [*WRITTEN, Form(2, 7), *COMPRESSED]),
        "plain": write_segments(plain, [*WRITTEN, Form(1, 7, "gzip", 6), Form(2, 7)]),
        "untimed": write_segments(untimed, [*WRITTEN, Form(0, 7, "gzip", 6), Form(2, 7)]),
    }


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, judged: dict[str, Mapping[Form, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, SavingsReport]:
    """A lake of these records, and its report. The topic's name says what it holds and its batching."""
    root = tmp_path_factory.mktemp("formats")
    put(root / "logs", "full", judged["full"][Form(2, 7)])
    put(root / "logs", "zipped", judged["full"][Form(2, 7, "zstd", 3)])
    put(root / "logs", "plain", judged["plain"][Form(1, 7, "gzip", 6)])
    put(root / "logs", "single", judged["plain"][Form(1, 10)])
    put(root / "logs", "untimed", judged["untimed"][Form(0, 7, "gzip", 6)])
    lake = str(root / "lake")
    as_command.decode(spark, Settings(source=(str(root / "logs"),), lake=lake))
    return lake, format_report.run(spark, CostSettings(lake=lake, codec_levels=LEVELS))


def test_it_needs_no_java(made: tuple[str, SavingsReport], tmp_path: Path) -> None:
    lake, report = made
    copied = tmp_path / "lake"
    shutil.copytree(lake, copied, ignore=shutil.ignore_patterns(FORMAT_SAVINGS.name))
    given = ["--lake", str(copied), "--codec-levels", LEVELS]
    command = [sys.executable, "-m", "pipelines.format_report", *given]
    without_java = os.environ | {"JAVA_HOME": str(tmp_path), "PATH": os.path.dirname(sys.executable)}
    subprocess.run(command, env=without_java, check=True, capture_output=True)
    found = DeltaTable(str(copied / FORMAT_SAVINGS.name)).to_pyarrow_table()
    own = ["run_id", "created_at", "inputs", "sample_seconds"]  # of a run
    assert sorted_rows(found.drop_columns(own)) == sorted_rows(report.rows.drop_columns(own))


# --- Sizes against Kafka's own library ---


@pytest.mark.parametrize(
    ("topic", "records", "magic", "stored_in"),
    [
        ("full", "full", 2, 7),
        ("zipped", "full", 2, 7),
        ("plain", "plain", 1, 7),
        ("untimed", "untimed", 0, 7),
    ],
)
def test_sizes_are_those_of_kafkas_segments(
    topic: str,
    records: str,
    magic: int,
    stored_in: int,
    judged: dict[str, Mapping[Form, bytes]],
    made: tuple[str, SavingsReport],
) -> None:
    found = rows_by_name(made[1])
    written = judged[records]
    for batch_records in BATCHINGS:
        for layout, as_magic in (("v0", 0), ("v1", 1), ("v2", 2)):
            row = found[topic, magic, layout, batch_records, "none", None]
            assert row["bytes"] == len(written[Form(as_magic, batch_records)]), (layout, batch_records)
            assert row["records"] == 1234
        batches = found[topic, magic, "v2", batch_records, "none", None]["batches"]
        assert batches == -(-1234 // batch_records)
    on_disk = found[topic, magic, "v2", None, "none", None]
    assert on_disk["bytes"] == len(written[Form(2, stored_in)])
    assert on_disk["batches"] == -(-1234 // stored_in)


def test_messages_on_their_own_become_batches_of_one(
    judged: dict[str, Mapping[Form, bytes]], made: tuple[str, SavingsReport]
) -> None:
    found = rows_by_name(made[1])
    assert found["single", 1, "v2", None, "none", None]["bytes"] == len(judged["plain"][Form(2, 1)])
    assert found["single", 1, "stored", None, None, None]["bytes"] == len(judged["plain"][Form(1, 1)])


@pytest.mark.parametrize("form", COMPRESSED, ids=str)
def test_whole_samples_compress_to_what_kafka_writes(
    form: Form, judged: dict[str, Mapping[Form, bytes]], made: tuple[str, SavingsReport]
) -> None:
    """All batches are in the sample here, so that the estimate is the size of the segment."""
    row = rows_by_name(made[1])["full", 2, f"v{form.magic}", None, form.codec, form.level]
    kafkas = len(judged["full"][form])
    assert row["sample_batches"] == row["batches"] == -(-1234 // 7)
    assert abs(row["bytes"] - kafkas) <= NEARLY.get(form.codec, 0) * kafkas


def test_what_a_format_cannot_hold_is_said(made: tuple[str, SavingsReport]) -> None:
    found = rows_by_name(made[1])
    lost = sum(
        len(key.encode()) + len(value or b"")
        for record in mixed_records(1234)
        for key, value in record.headers
    )
    assert found["full", 2, "v1", None, "none", None]["note"] == f"lost: {lost} bytes of headers"
    assert found["full", 2, "v0", 10, "none", None]["note"] == f"lost: {lost} bytes of headers, timestamps"
    assert found["plain", 1, "v0", None, "none", None]["note"] == "lost: timestamps"
    assert found["untimed", 0, "v0", None, "none", None]["note"] is None
    assert found["full", 2, "v2", None, "none", None]["note"] is None


def test_legacy_magics_have_no_zstd(made: tuple[str, SavingsReport]) -> None:
    layouts = {row["layout"] for row in made[1].rows.to_pylist() if row["codec"] == "zstd"}
    assert layouts == {"v2", "v3_proposal"}


# --- The proposal ---


def proposed_size(records: list[Written]) -> int:
    """Bytes of a V3 batch by the proposal's list of fields: fixed ones, then three varints, then records."""

    def varint(value: int) -> int:
        zigzag, size = (value << 1) ^ (value >> 63), 1
        while zigzag >= 1 << 7 * size:
            size += 1
        return size

    def sized(data: bytes | None) -> int:
        return 1 if data is None else varint(len(data)) + len(data)

    first = records[0]
    size = 8 + 4 + 4 + 1 + 4 + 2 + 8 + 2 + 4 + 4
    size += varint(records[-1].offset - first.offset) + varint(first.timestamp)
    size += varint(max(record.timestamp for record in records) - first.timestamp)
    for record in records:
        body = varint(record.timestamp - first.timestamp) + varint(record.offset - first.offset)
        body += sized(record.key) + sized(record.value) + varint(len(record.headers))
        body += sum(sized(key.encode()) + sized(value) for key, value in record.headers)
        size += varint(body) + body
    return size


def test_the_proposal_is_sized_by_its_own_list_of_fields(made: tuple[str, SavingsReport]) -> None:
    found = rows_by_name(made[1])
    records = mixed_records(1234)
    for batch_records in (*BATCHINGS, 7):
        batches = [records[i : i + batch_records] for i in range(0, len(records), batch_records)]
        requested = None if batch_records == 7 else batch_records
        row = found["full", 2, "v3_proposal", requested, "none", None]
        assert row["bytes"] == sum(map(proposed_size, batches)), batch_records


# --- What the page says ---


def test_the_cost_model_is_held_against_kafkas_bytes() -> None:
    """Every size in the page's table that a segment can prove."""
    page = PAGE.read_text().split("## A cost model, checked", 1)[1].split("\n## ", 1)[0]
    began = 1_714_000_000_000
    hello = [Written(i, began, None, value) for i, value in enumerate((b"hello", b"world", b"again"))]
    two = write_segments(hello[:2], [Form(1, 2), Form(2, 2)])
    three = write_segments(hello, [Form(1, 3), Form(2, 3)])
    sizes = [len(segment) for segment in (*two.values(), *three.values())]
    assert sizes == [78, 85, 117, 97]
    assert "85 and 78: offset" in page
    assert "(97 against 117)" in page
    batch = two[Form(2, 2)]
    for field in (batch[8:12], batch[27:35]):
        assert f"`{field.hex(' ').upper()}`" in page
    assert batch[61] == 0x16
    assert "`16`, 11" in page
    per_message = []
    for gap in (0, 5):
        records = [Written(i, began + i * gap, None, bytes(100)) for i in range(1000)]
        written = write_segments(records, [Form(1, 1000), Form(2, 1000)])
        per_message.append(f"{len(written[Form(2, 1000)]) / 1000 - 100:.1f}")
        if gap == 0:
            v1, v2 = (len(segment) for segment in written.values())
            assert f"{v1:,} and {v2:,}: {1 - v2 / v1:.1%}".replace("%", " %") in page
    assert "{} with equal timestamps, {} five milliseconds apart".format(*per_message) in page
    assert f"save {200 * 20 * 12:,} to {300 * 20 * 12:,} dollars" in page


def test_the_proposals_record_is_held_against_kafkas_bytes() -> None:
    """Its example: values of 1 KB and keys of 100 bytes have 7 bytes of overhead each."""
    records = [Written(i, 1_714_000_000_000 + i, b"k" * 100, bytes(924)) for i in range(64)]
    written = write_segments(records, [Form(2, 64)])
    assert (len(written[Form(2, 64)]) - 61) / 64 - 1024 == 10
    assert "10 for the first 64 records of a batch" in PAGE.read_text()


# --- Batches as brokers leave them ---


def test_batches_of_brokers_take_as_v2_what_they_expand_to(spark: SparkSession, tmp_path: Path) -> None:
    """The header of 61 bytes and the payload, expanded: also where compaction removed a batch's first record
    or all of them, and where the broker set the timestamps."""
    cases = ("v2-compacted*", "v2-logappendtime", "v2-timestamps", "v2-codec-none")
    hostile = ("batch-of-61-bytes-0", "attrs-logappendtime-0")
    sources = [str(CORPUS / case) for case in cases] + [str(CORPUS / "hostile" / name) for name in hostile]
    lake = str(tmp_path / "lake")
    as_command.decode(spark, Settings(source=tuple(sources), lake=lake))
    format_report.run(spark, CostSettings(lake=lake, codec_levels="gzip"))
    register_views(spark, lake, "batches, format_savings")
    expanded = spark.sql(
        "SELECT topic, partition, sum(61 + uncompressed_bytes) AS bytes, count(*) AS batches FROM batches "
        "WHERE NOT is_control AND status IN ('ok', 'suspect') GROUP BY ALL"
    ).collect()
    sized = spark.sql(
        "SELECT topic, partition, bytes, batches FROM format_savings "
        "WHERE layout = 'v2' AND batch_records IS NULL AND codec = 'none'"
    ).collect()
    assert len(expanded) > 8
    assert set(map(tuple, sized)) == set(map(tuple, expanded))


def test_control_batches_are_apart(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    batches = [logs.data(0, 7, records=3), logs.marker(3, 7), logs.data(4, 7, records=1)]
    logs.put(tmp_path / "logs" / "t-0", 0, *batches)
    as_command.decode(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake))
    rows = format_report.run(spark, CostSettings(lake=lake, codec_levels="gzip")).rows.to_pylist()
    (control,) = [row for row in rows if row["layout"] == "control"]
    assert (control["records"], control["batches"], control["bytes"]) == (1, 1, len(batches[1]))
    assert control["saved_bytes"] is None
    assert {row["records"] for row in rows if row["layout"] != "control"} == {4}
    (stored,) = [row for row in rows if row["layout"] == "stored"]
    assert stored["bytes"] == len(batches[0]) + len(batches[2])


def test_batches_end_with_their_segment(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    """As in Kafka, where no batch lies in two segments: 12 and 3 records are 2 and 1 batches of 10."""
    for base, records in ((0, 12), (12, 3)):
        logs.put(tmp_path / "logs" / "t-0", base, logs.batch(base, records))
    as_command.decode(spark, Settings(source=(str(tmp_path / "logs"),), lake=lake))
    found = rows_by_name(format_report.run(spark, CostSettings(lake=lake, codec_levels="gzip")))
    assert found["t", 2, "v2", 10, "none", None]["batches"] == 3
    written = write_segments([Written(i, 0, b"k%d" % (i % 12), b"v%d" % i) for i in range(12)], [Form(2, 10)])
    second = write_segments(
        [Written(i, 0, b"k%d" % (i - 12), b"v%d" % i) for i in (12, 13, 14)], [Form(2, 10)]
    )
    kafkas = sum(len(data) for data in (*written.values(), *second.values()))
    assert found["t", 2, "v2", 10, "none", None]["bytes"] == kafkas

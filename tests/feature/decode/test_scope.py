"""--since, --until and --offsets: what they leave out, and how a later run adds it."""

from __future__ import annotations

import datetime
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.plan.headers import Header, headers, older, read_index
from kafka_log_lake.pipelines.sql.database import connect
from kafka_log_lake.udfs.decoder.decoded import Bounds, Range, Scope
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.storage.byte_source import FileSource
from tests.support import as_command, corpus
from tests.support.logs import batch, contents, data, marker, put, rows, versions
from tests.support.quality import over_partitions
from tests.support.segment_maker import Batch, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_log_lake.pipelines.decode.summary import Summary

NOW = 1_700_000_000_000
DAY = 86_400_000
# Segments that follow each other with timestamps in disorder, compressed batches, wrappers, transactions
CASES = (
    "v2-segments",
    "v2-codec-gzip",
    "v1-segments",
    "v1-codec-gzip",
    "lib-mixed-magic",
    "v2-txn-interleaved",
)
SOURCES = tuple(str(corpus.ROOT / case) for case in CASES)


def run(spark: SparkSession, lake: str, source: tuple[str, ...] = SOURCES, **settings: Any) -> Summary:
    source = () if settings.get("from_raw") else source
    return as_command.decode(spark, Settings(lake=lake, source=source, **settings))


def stored(at: int, *after: int, base: int = 0, **values: Any) -> bytes:
    """A batch whose first record has the timestamp at, the others at + after."""
    records = tuple(Record(key=b"k%d" % d, value=b"v", timestamp_delta=d) for d in (0, *after))
    return Batch(records=records, base_offset=base, base_timestamp=at, **values).encode()


def without_scope(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    for row in found["segments"]:
        del row["scope"]  # what the run requested
    return found


# What is requested


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-31", 1_769_817_600_000),
        ("2026-01-31T06:00", 1_769_839_200_000),
        ("2026-01-31 06:00:00.123+02:00", 1_769_832_000_123),
        ("1769839200000", 1_769_839_200_000),
        (datetime.date(2026, 1, 31), 1_769_817_600_000),  # as YAML reads it
        ("9223372036854775807", (1 << 63) - 1),  # what a batch can hold
        ("-9223372036854775808", -(1 << 63)),
    ],
)
def test_times(text: object, ms: int) -> None:
    assert Settings(since=text).since == ms  # type: ignore[arg-type]
    assert Settings(since=ms).since == ms


@pytest.mark.parametrize(
    "arguments",
    [
        ["--since", "yesterday"],
        ["--since", "2026-02-30"],
        ["--since", "20260131"],
        ["--until", "1769839200"],
        ["--since", "2026-01-31", "--until", "2026-01-31"],
        ["--offsets", "5"],
        ["--offsets", ":"],
        ["--offsets", "7:7"],
        ["--offsets", "-1:7"],
    ],
)
def test_a_wrong_value_ends_with_one_line(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--source", str(tmp_path), "--lake", str(tmp_path / "lake"), *arguments]
    assert decode_batches.main(given) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert arguments[0] in error
    assert not (tmp_path / "lake").exists()


def test_landing_has_no_scope(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ingest_raw.main(["--source", str(tmp_path), "--lake", "lake", "--since", "2026-01-31"]) == 2
    assert "--since" in capsys.readouterr().err


# Segments that are left out by the headers


@pytest.mark.parametrize("path", corpus.segments()[::3], ids=corpus.identity)
def test_a_real_segment_is_older_than_what_follows_its_highest_timestamp(path: Path) -> None:
    highest = max(line["maxTimestamp"] for line in corpus.oracle_batches(path))
    source, size = FileSource(str(path)), path.stat().st_size
    assert older(source, str(path), int(path.stem), size, highest) is None
    assert older(source, str(path), int(path.stem), size, highest + 1) is not None


def test_a_real_time_index_saves_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    path = corpus.ROOT / "v2-segments" / "segmented-0" / f"{0:020d}.log"
    followed: list[Header] = []

    def counted(*given: Any) -> Iterator[Header]:
        for header in headers(*given):
            followed.append(header)
            yield header

    monkeypatch.setattr("kafka_log_lake.pipelines.plan.headers.headers", counted)
    assert older(FileSource(str(path)), str(path), 0, path.stat().st_size, NOW + DAY) is not None
    assert 0 < len(followed) < len(corpus.oracle_batches(path)) / 2


def _damaged_indexes(path: Path) -> Iterator[bytes]:
    """Time indexes that do not tell the highest timestamp of a segment whose last batch is the newest."""
    entry = struct.Struct(">qi")
    yield b""
    yield b"\0" * 120
    yield entry.pack(NOW + 1, 5) + b"\0" * 120  # of the active segment, before it grew
    yield entry.pack(NOW + 1, 5)[:7]
    yield entry.pack(NOW + 2, 5)  # no batch has it
    yield entry.pack(NOW + 1, 8) + entry.pack(NOW, 2)  # falls
    yield entry.pack(NOW + 1, 1 << 30)
    yield os.urandom(120)


def test_an_index_never_hides_a_record(tmp_path: Path) -> None:
    made = [stored(NOW, 1, base=2 * i) for i in range(50)] + [stored(NOW + 9, base=100)]
    path = put(tmp_path / "a-0", 0, *made)
    length, source = path.stat().st_size, FileSource(str(path))
    for position in (0, 61, len(made[0]) * 40):
        path.with_suffix(".index").write_bytes(struct.pack(">ii", 5, position) + b"\0" * 80)
        for content in _damaged_indexes(path):
            path.with_suffix(".timeindex").write_bytes(content)
            assert older(source, str(path), 0, length, NOW + 9) is None, (position, content)
    path.with_suffix(".timeindex").unlink()
    last = older(source, str(path), 0, length, NOW + 10)
    assert last is not None
    assert (last.last_offset, last.end) == (100, length)
    # a torn batch: nobody knows its timestamp
    assert older(source, str(path), 0, length - 1, NOW + 10) is None
    assert read_index(str(path), ".timeindex").shape == (0, 2)


# Records that are left out


@pytest.mark.parametrize(
    "path", [p for p in corpus.segments() if p.stat().st_size < 50_000][::4], ids=corpus.identity
)
def test_records_of_any_format_are_kept_exactly(path: Path) -> None:
    expected = [line for line in corpus.oracle_records(path) if "offset" in line]
    middle = sorted(line["timestamp"] for line in expected)[len(expected) // 2] if expected else 0
    low = sorted(line["offset"] for line in expected)[len(expected) // 5] if expected else 0
    for scope, is_in in (
        (Scope(timestamp_ms=Bounds(middle, None)), lambda r: r["timestamp"] >= middle),
        (Scope(timestamp_ms=Bounds(None, middle)), lambda r: r["timestamp"] < middle),
        (Scope(Bounds(low, low + 9)), lambda r: low <= r["offset"] < low + 9),
    ):
        assert Scope.parse(scope.condition) == scope
        decoder = SegmentDecoder(FileSource(str(path)), Range(path.stat().st_size, scope=scope))
        groups = list(decoder)
        found = [
            (row["offset"], row["timestamp_ms"])
            for group in groups
            if group.records is not None
            for row in group.records.select(["offset", "timestamp_ms"]).to_pylist()
        ]
        assert found == [(r["offset"], r["timestamp"]) for r in expected if is_in(r)]
        totals = decoder.totals
        assert (totals.records, totals.records + totals.left_out) == (len(found), len(expected))
        assert totals.batches == len(corpus.oracle_batches(path))
        assert (totals.first_offset, totals.last_offset) == (
            (min(found)[0], max(found)[0]) if found else (None, None)
        )


# Runs


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The tables of a run that leaves nothing out."""
    lake = str(tmp_path_factory.mktemp("whole") / "lake")
    run(spark, lake)
    return without_scope(contents(lake))


def in_time(low: int, high: int) -> Callable[[dict[str, Any]], bool]:
    return lambda row: low <= row["timestamp_ms"] < high


SINCE, UNTIL = NOW + 12_000, NOW + 60_000
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[dict[str, Any]], bool]]] = {
    "time": ({}, {"since": SINCE, "until": UNTIL}, in_time(SINCE, UNTIL)),
    "binary": ({"read": "binary"}, {"offsets": "40:110"}, lambda row: 40 <= row["offset"] < 110),
    "large": ({"read": "binary", "max_content": 500}, {"since": SINCE}, in_time(SINCE, 1 << 62)),
    "slices": ({"slice_bytes": 2000, "window_bytes": 4096}, {"until": UNTIL}, in_time(-1, UNTIL)),
    "raw": (
        {"from_raw": True},
        {"since": SINCE, "offsets": "100:"},
        lambda row: row["offset"] >= 100 and row["timestamp_ms"] >= SINCE,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_part_is_decoded_exactly_and_a_full_run_completes_it(
    spark: SparkSession, lake: str, whole: dict[str, list[dict[str, Any]]], way: str
) -> None:
    how, scope, is_requested = WAYS[way]
    if "from_raw" in how:
        as_command.ingest(spark, Settings(lake=lake, source=SOURCES))
    summary = run(spark, lake, **how, **scope)
    assert rows(lake, "records") == [row for row in whole["records"] if is_requested(row)]
    ledger = rows(lake, "segments")
    decoded = {row["segment"] for row in ledger if row["left_out"] >= 0}
    assert len(ledger) == len(whole["segments"])
    assert rows(lake, "batches") == [row for row in whole["batches"] if row["segment"] in decoded]
    assert 0 < sum(row["left_out"] > 0 for row in ledger) == summary.in_part
    assert len(ledger) - len(decoded) == summary.undecoded
    assert (summary.undecoded > 0) == (way != "slices")  # no segment is known to be too new
    assert any("decoded in part" in text and "--since" in text for text in summary.warnings)
    before = versions(lake)
    again = run(spark, lake, **how, **scope)
    assert (again.segments, again.in_part, again.undecoded) == (0, summary.in_part, summary.undecoded)
    assert versions(lake) == before
    last = run(spark, lake, **how)
    assert (last.in_part, last.undecoded) == (0, 0)
    assert not any("decoded in part" in text for text in last.warnings)
    assert without_scope(contents(lake)) == whole


def test_another_part_is_added_to_the_first(
    spark: SparkSession, lake: str, whole: dict[str, list[dict[str, Any]]]
) -> None:
    """What an earlier run requested stays; what lies between may come too."""
    run(spark, lake, since=SINCE, until=SINCE + 5_000)
    run(spark, lake, since=SINCE + 20_000, until=UNTIL)
    found = rows(lake, "records")
    assert all(found.count(row) == 1 for row in found)
    for requested in (in_time(SINCE, SINCE + 5_000), in_time(SINCE + 20_000, UNTIL)):
        assert all(row in found for row in whole["records"] if requested(row))
    assert all(row in whole["records"] for row in found)
    assert run(spark, lake, since=SINCE, until=SINCE + 5_000).segments == 0


def test_a_segment_that_grows_stays_as_complete_as_it_is(
    spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "src" / "a-0", 0, stored(NOW, 1))
    source = (str(tmp_path / "src"),)
    assert run(spark, lake, source, until=NOW + DAY).in_part == 0
    path.write_bytes(path.read_bytes() + stored(NOW + 1, DAY, base=2))
    assert run(spark, lake, source, until=NOW + DAY).in_part == 1
    assert [row["timestamp_ms"] - NOW for row in rows(lake, "records")] == [0, 1, 1]
    run(spark, lake, source)
    path.write_bytes(path.read_bytes() + stored(NOW, 2 * DAY, base=4))
    run(spark, lake, source, until=NOW + DAY)  # nothing of it was left out: nothing is from now on
    assert len(rows(lake, "records")) == 6
    assert [row["left_out"] for row in rows(lake, "segments")] == [0]


@pytest.mark.parametrize("scope", [{"offsets": "6:"}, {"since": NOW + DAY}])
@pytest.mark.parametrize("first", [{}, {"offsets": "1:"}])
def test_a_segment_that_grew_before_the_requested_part_is_no_loss(
    tmp_path: Path, first: dict[str, Any], scope: dict[str, Any]
) -> None:
    """Its rows would end where the last run left them, and the next segment begins after that."""
    folder, lake = tmp_path / "src" / "a-0", str(tmp_path / "lake")
    put(folder, 0, stored(NOW, 1))
    source = (str(tmp_path / "src"),)
    as_command.decode(None, Settings(lake=lake, source=source, **first))
    put(folder, 0, stored(NOW, 1), stored(NOW, 1, base=2), stored(NOW, 1, base=4))
    put(folder, 6, stored(NOW + DAY, 1, base=6))
    summary = as_command.decode(None, Settings(lake=lake, source=source, **scope))
    assert summary.missing_offsets == 0
    assert connect(lake).sql("SELECT * FROM lost_offsets UNION BY NAME FROM offset_gaps").fetchall() == []


def test_records_leave_no_lake_because_files_were_merged(
    spark: SparkSession, lake: str, tmp_path: Path
) -> None:
    folder = tmp_path / "src" / "a-0"
    first, second, third = (stored(NOW + i * DAY, 1, base=2 * i) for i in range(3))
    paths = [put(folder, 0, first), put(folder, 2, second), put(folder, 4, third)]
    source = (str(tmp_path / "src"),)
    run(spark, lake, source)
    put(folder, 0, first, second)  # as the log cleaner does
    paths[1].unlink()
    run(spark, lake, source, since=NOW + 2 * DAY)
    assert [row["offset"] for row in sorted(rows(lake, "records"), key=lambda r: r["offset"])] == [*range(6)]


def test_decode_segments_takes_a_scope(spark: SparkSession, whole: dict[str, list[dict[str, Any]]]) -> None:
    found = decode_batches.decode_segments(spark, SOURCES, since="2023-11-14T22:13:32Z", offsets="50:")
    expected = {
        r["offset"] for r in whole["records"] if r["timestamp_ms"] >= NOW + 12_000 and r["offset"] >= 50
    }
    assert {row.offset for row in found.select("offset").collect()} == expected


# What views and reports say meanwhile


def test_what_is_left_out_is_no_loss(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    """Of five segments three in the middle are left out: in them a marker, and batches of a producer."""
    folder = tmp_path / "src" / "a-0"
    put(folder, 0, data(0, 7), batch(1, 1, producer_id=9, producer_epoch=0, base_sequence=0))
    put(folder, 2, marker(2, 7), batch(3, 1, producer_id=9, producer_epoch=0, base_sequence=1))
    put(folder, 4, batch(4, 1, producer_id=9, producer_epoch=0, base_sequence=2))
    put(folder, 5, batch(5, 1, producer_id=9, producer_epoch=0, base_sequence=3))
    put(folder, 6, batch(6, 1, producer_id=9, producer_epoch=0, base_sequence=4))
    source = (str(tmp_path / "src"),)

    def ask(statement: str) -> list[tuple[Any, ...]]:
        return connect(lake).sql(statement).fetchall()

    run(spark, lake, source, offsets="0:1")
    run(spark, lake, source, offsets="6:")
    assert ask("SELECT offset FROM committed_records") == [(6,)]  # nobody knows how the transaction ended
    assert ask("SELECT outcome, holds_last_stable_offset FROM current_transactions") == [("open", False)]
    assert ask("SELECT * FROM lost_offsets") == []
    assert ask("SELECT * FROM offset_gaps WHERE place = 'between batches'") == []
    assert ask("SELECT sum(sequence_gaps) FROM producers") == [(0,)]
    assert ask("SELECT segments, segments_in_part, records FROM topics") == [(5, 4, 2)]
    for check in ("offset_gaps", "sequence_gaps", "hanging_transactions", "offset_order"):
        assert over_partitions(lake, check) == {("a", 0): 0}, check
    run(spark, lake, source)
    assert ask("SELECT offset FROM committed_records ORDER BY offset") == [(0,), (1,), (3,), (4,), (5,), (6,)]
    assert ask("SELECT segments_in_part FROM topics") == [(0,)]

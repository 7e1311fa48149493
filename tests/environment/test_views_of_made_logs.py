"""The views over logs that a test makes, where it knows every fact.

Each test has its topics, and all of them one lake. DuckDB answers where it can, as it does for users;
that Spark gives the same rows is tested once for each view.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.sql.statements import duckdb_text
from tests.support import as_command
from tests.support.answers import prepare_in_memory, same_in_both
from tests.support.logs import batch, data, marker, put
from tests.support.made_views import HOUR, NOW, Ask, sent, sizes, written
from tests.support.segment_maker import DELETE_HORIZON, Batch, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WRITERS: list[Callable[[Path], Any]] = []


def logs(write: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Marks a function that writes logs into the folder that all of them are decoded from."""
    WRITERS.append(write)
    return write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with the logs of all tests."""
    made = tmp_path_factory.mktemp("made") / "logs"
    for write in WRITERS:
        write(made)
    return made


@pytest.fixture(scope="module")
def made_lake(spark: SparkSession, folder: Path) -> str:
    lake = str(folder.parent / "lake")
    as_command.decode(spark, Settings(source=(str(folder),), lake=lake))
    return lake


@pytest.fixture(scope="module")
def in_memory(spark: SparkSession, made_lake: str) -> str:
    prepare_in_memory(spark, made_lake)
    return made_lake


@pytest.fixture(scope="module")
def ask(made_lake: str) -> Ask:
    database = connect(made_lake)
    return lambda statement: database.sql(duckdb_text(statement)).to_arrow_table().to_pylist()


@pytest.mark.parametrize(
    "relation",
    [
        "producers",
        "timestamp_anomalies",
        f"timestamp_anomalies(max_future_ms => {3 * HOUR + 1}, max_disorder_ms => {2 * HOUR})",
        f"retention_report(retention_ms => {HOUR}, at_ms => {NOW + 4 * HOUR})",
        f"retention_report(retention_ms => -1, retention_bytes => 100, at_ms => {NOW})",
        f"compaction_report(at_ms => {NOW + 1}, min_compaction_lag_ms => 60000)",
        "offset_gaps",
        "lost_offsets",
        f"hanging_transactions(timeout_ms => -1, at_ms => {NOW})",
    ],
)
def test_spark_gives_the_same_rows(spark: SparkSession, in_memory: str, relation: str) -> None:
    assert same_in_both(spark, connect(in_memory), f"SELECT * FROM {relation}")


@logs
def sequences_that_wrap(folder: Path) -> None:
    put(folder / "wraps-0", 0, sent(0, 2**31 - 2), sent(2, 0), sent(4, 2))
    put(folder / "wraps-1", 0, sent(0, 2**31 - 1, 1), sent(1, 0))
    put(folder / "wraps-2", 0, sent(0, 2**31 - 1, 2), sent(2, 1))  # the wrap lies inside a batch


def test_sequence_numbers_that_wrap_are_no_gap(ask: Ask) -> None:
    rows = ask("SELECT * FROM producers WHERE topic = 'wraps'")
    found = [(r["sequence_gaps"], r["duplicates"], r["resets"]) for r in rows]
    assert found == [(0, 0, 0)] * 3


SEQUENCES: list[tuple[tuple[int, ...], dict[str, int]]] = [
    ((0, 2, 7), {"sequence_gaps": 1, "missing_sequences": 3}),
    ((0, 2, 2), {"duplicates": 1}),
    ((4, 6, 0), {"resets": 1}),
    ((2**31 - 4, 2**31 - 2, 3), {"sequence_gaps": 1, "missing_sequences": 3}),  # over the wrap
    ((0, 2, 4), {}),
]


@logs
def sequences_of_all_kinds(folder: Path) -> None:
    for partition, (sequences, _) in enumerate(SEQUENCES):
        made = (sent(2 * i, each) for i, each in enumerate(sequences))
        put(folder / f"sequences-{partition}", 0, *made)


@pytest.mark.parametrize("partition", range(len(SEQUENCES)))
def test_gaps_duplicates_and_resets_of_sequence_numbers(ask: Ask, partition: int) -> None:
    (row,) = ask(f"SELECT * FROM producers WHERE topic = 'sequences' AND partition = {partition}")
    counted = ("sequence_gaps", "missing_sequences", "duplicates", "resets")
    assert {name: row[name] for name in counted} == dict.fromkeys(counted, 0) | SEQUENCES[partition][1]


@logs
def epochs(folder: Path) -> None:
    put(folder / "epochs-0", 0, sent(0, 0), sent(2, 0, epoch=3), sent(4, 2, epoch=3))


def test_an_epoch_is_followed_by_the_next_one(ask: Ask) -> None:
    rows = ask("SELECT * FROM producers WHERE topic = 'epochs' ORDER BY producer_epoch")
    assert [(r["producer_epoch"], r["next_epoch"], r["resets"]) for r in rows] == [(0, 3, 0), (3, None, 0)]


@logs
def odd_timestamps(folder: Path) -> None:
    first = put(
        folder / "odd-0",
        0,
        written(0, NOW),
        written(1, NOW // 1000),  # seconds
        written(2, NOW * 1000),  # microseconds
        written(3, NOW * 1_000_000),  # nanoseconds
        written(4, NOW - 2 * HOUR),  # out of order
        written(5, NOW - HOUR),  # just within the bound
        written(6, -1),  # none
    )
    second = put(folder / "odd-0", 7, written(7, NOW), written(8, NOW + 3 * HOUR, 1))
    third = put(folder / "odd-0", 10, written(10, NOW))
    for path in (first, second, third):
        os.utime(path, (NOW / 1000, NOW / 1000))


def test_timestamps_in_a_wrong_unit_in_the_future_and_out_of_order(ask: Ask, folder: Path) -> None:
    rows = {row["anomaly"]: row for row in ask("SELECT * FROM timestamp_anomalies WHERE topic = 'odd'")}
    found = {name: (row["first_offset"], row["records"], row["off_by_ms"]) for name, row in rows.items()}
    assert found == {
        "seconds": (1, 1, NOW // 1000 - NOW),
        "microseconds": (2, 1, NOW * 999),
        "nanoseconds": (3, 1, NOW * 999_999),
        "out_of_order": (4, 1, 2 * HOUR),
        "none": (6, 1, None),
        "future": (8, 2, 3 * HOUR + 1),
    }
    first, second, third = sizes(folder / "odd-0")
    assert rows["future"]["blocked_bytes"] == second + third
    assert rows["microseconds"]["blocked_bytes"] == first + second + third
    assert rows["seconds"]["blocked_bytes"] is rows["none"]["blocked_bytes"] is None
    later = ask(f"SELECT * FROM timestamp_anomalies(max_future_ms => {3 * HOUR + 1}) WHERE topic = 'odd'")
    assert "future" not in {row["anomaly"] for row in later}
    wider = ask(f"SELECT * FROM timestamp_anomalies(max_disorder_ms => {2 * HOUR}) WHERE topic = 'odd'")
    assert {row["anomaly"] for row in wider} == found.keys() - {"out_of_order"}


@logs
def a_later_segment(folder: Path) -> None:
    put(folder / "later-0", 0, written(0, NOW))
    put(folder / "later-0", 1, written(1, NOW - 3 * HOUR))


def test_a_timestamp_out_of_order_in_a_later_segment_is_seen(ask: Ask) -> None:
    (row,) = ask("SELECT * FROM timestamp_anomalies WHERE topic = 'later'")
    assert (row["anomaly"], row["first_offset"], row["off_by_ms"]) == ("out_of_order", 1, 3 * HOUR)


def retention(ask: Ask, topic: str, **limits: int) -> list[dict[str, Any]]:
    """Returns the rows of a topic's segments in their order."""
    given = ", ".join(f"{name} => {limit}" for name, limit in limits.items())
    rows = f"SELECT * FROM retention_report({given})"
    return ask(f"{rows} WHERE topic = '{topic}' ORDER BY file_base_offset")


@logs
def segments_that_expire(folder: Path) -> None:
    for base, at in ((0, NOW), (1, NOW + 5 * HOUR), (2, NOW + HOUR), (3, NOW + 9 * HOUR)):
        put(folder / "expires-0", base, written(base, at))
    put(folder / "mad-0", 0, written(0, 2**63 - 2))
    put(folder / "mad-0", 1, written(1, 2**63 - 1))
    bare = put(folder / "expires-0", 4, written(4, -1))  # expires by the file's time
    os.utime(bare, ((NOW + 10 * HOUR) / 1000,) * 2)


def test_retention_by_time_deletes_from_the_start_alone(ask: Ask) -> None:
    """A segment goes once now - largest timestamp > retention.ms, and all before it go."""

    def report(now: int) -> list[tuple[bool, str | None]]:
        rows = retention(ask, "expires", retention_ms=HOUR, at_ms=now)
        return [(r["can_go"], r["held_by"]) for r in rows]

    gone, own, held = (True, None), (False, "its own timestamp"), (False, "an earlier segment")
    mad = retention(ask, "mad", retention_ms=HOUR)
    assert [(r["can_go"], r["held_by"], r["expires_ms"]) for r in mad] == [(*own, None)] * 2
    assert report(NOW + HOUR)[0] == own
    assert report(NOW + HOUR + 1)[0] == gone
    assert report(NOW + 4 * HOUR) == [gone, own, held, own, own]
    assert report(NOW + 6 * HOUR + 1)[:4] == [gone, gone, gone, own]
    assert report(NOW + 11 * HOUR + 1) == [gone] * 5
    last = retention(ask, "expires", retention_ms=5)[-1]
    assert (last["file_base_offset"], last["expires_ms"]) == (4, NOW + 10 * HOUR + 5)


@logs
def segments_of_known_size(folder: Path) -> None:
    for base in range(4):
        put(folder / "sized-0", base, written(base, NOW))


def test_retention_by_size_keeps_at_least_that_many_bytes(ask: Ask, folder: Path) -> None:
    lengths = sizes(folder / "sized-0")
    for keep in (0, 1, lengths[3], lengths[3] + 1, sum(lengths)):
        rows = retention(ask, "sized", retention_ms=-1, retention_bytes=keep)
        spare = sum(lengths) - keep
        expected: list[bool] = []
        for size in lengths:  # UnifiedLog.deleteRetentionSizeBreachedSegments
            expected.append(spare - size >= 0 and (not expected or expected[-1]))
            spare -= size
        assert [r["can_go"] for r in rows] == expected, keep
    rows = retention(ask, "sized", retention_ms=-1)
    assert {(r["can_go"], r["held_by"], r["expires_ms"]) for r in rows} == {(False, "no limit", None)}
    assert [r["is_active"] for r in rows] == [False, False, False, True]


@logs
def segments_that_size_uncovers(folder: Path) -> None:
    for base, at in ((0, NOW + 9 * HOUR), (1, NOW), (2, NOW + 9 * HOUR)):
        put(folder / "uncovered-0", base, written(base, at))
    put(folder / "uncovered-0", 3)


def test_size_frees_first_and_uncovers_what_expired_after(ask: Ask, folder: Path) -> None:
    """UnifiedLog.deleteOldSegments: by size, then by time; an empty last segment never goes."""
    _, second, third, _ = sizes(folder / "uncovered-0")

    def report(ms: int, keep: int, at: int) -> list[tuple[str | None, str | None]]:
        rows = retention(ask, "uncovered", retention_ms=ms, retention_bytes=keep, at_ms=at)
        return [(r["freed_by"], r["held_by"]) for r in rows]

    own, empty = (None, "its own timestamp"), (None, "empty last segment")
    assert report(HOUR, -1, NOW + 5 * HOUR) == [own, (None, "an earlier segment"), own, empty]
    assert report(HOUR, second + third, NOW + 5 * HOUR) == [("size", None), ("time", None), own, empty]
    assert report(HOUR, 0, NOW) == [("size", None)] * 3 + [empty]
    assert report(-1, second, NOW) == [("size", None), ("size", None), (None, "size"), empty]
    assert report(HOUR, -1, NOW + 99 * HOUR) == [("time", None)] * 3 + [empty]


@logs
def tombstones(folder: Path) -> None:
    """KIP-534: the cleaner stores the horizon in place of the base timestamp, and sets bit 6."""
    gone = (Record(key=b"a", value=None), Record(key=b"b", value=None), Record(key=b"c", value=b""))
    cleaned = Batch(gone, base_offset=0, base_timestamp=NOW, flags=DELETE_HORIZON).encode()
    dirty = Batch((Record(key=b"d", value=None), Record(key=b"b", value=b"v")), base_offset=3).encode()
    put(folder / "tombstones-0", 0, cleaned, dirty)
    put(folder / "tombstones-0", 5, batch(5, 1))  # the cleaner leaves the active segment alone


def test_tombstones_expire_at_the_delete_horizon_of_their_batch(ask: Ask) -> None:
    for at, expired in ((NOW - 1, 0), (NOW, 1)):  # Cleaner.shouldRetainRecord: currentTime < deleteHorizonMs
        (row,) = ask(f"SELECT * FROM compaction_report(at_ms => {at}) WHERE topic = 'tombstones'")
        assert (row["tombstones"], row["expired_tombstones"]) == (2, expired)
    (row,) = ask("SELECT * FROM compaction_report WHERE topic = 'tombstones'")
    assert (row["expired_tombstones"], row["superseded_records"], row["first_dirty_offset"]) == (1, 1, 4)


@logs
def versions_of_a_key(folder: Path) -> None:
    for name in ("now", "partly", "held"):
        put(folder / f"{name}-0", 0, written(0, NOW), written(1, NOW))
        put(folder / f"{name}-0", 2, *([data(2, 7)] if name == "held" else []), written(3, NOW + HOUR))
        put(folder / f"{name}-0", 4, written(4, NOW + 2 * HOUR))
    put(folder / "now-0", 5)  # just rolled
    put(folder / "active-0", 0, written(0, NOW), written(1, NOW))


@pytest.mark.parametrize(
    ("topic", "lag", "freed_now", "freed_later", "stops_at", "held_by"),
    [
        ("now", 0, 3, 0, 5, "active segment"),
        ("now", 3 * HOUR, 2, 1, 4, "min.compaction.lag.ms"),
        ("now", 2**63 - 1, 0, 3, 0, "min.compaction.lag.ms"),
        ("partly", 0, 2, 1, 4, "active segment"),
        ("partly", 4 * HOUR, 1, 2, 2, "min.compaction.lag.ms"),
        ("held", 0, 1, 0, 2, "open transaction"),
        ("active", 0, 0, 1, 0, "active segment"),
    ],
)
def test_compaction_frees_now_what_the_cleaner_can_reach(
    ask: Ask, topic: str, lag: int, freed_now: int, freed_later: int, stops_at: int, held_by: str
) -> None:
    call = f"compaction_report(min_compaction_lag_ms => {lag}, at_ms => {NOW + 5 * HOUR - 1})"
    (row,) = ask(f"SELECT * FROM {call} WHERE topic = '{topic}'")
    size = row["record_bytes"] // row["records"]
    assert (row["freed_now_records"], row["freed_now_bytes"]) == (freed_now, freed_now * size)
    assert row["freed_later_bytes"] == freed_later * size
    assert row["superseded_records"] == freed_now + freed_later
    assert (row["first_uncleanable_offset"], row["held_by"]) == (stops_at, held_by)


@logs
def gaps_of_transactions(folder: Path) -> None:
    ended = (data(0, 7, 2), marker(2, 7, commit=False), data(3, 8), marker(4, 8))
    after = (batch(8, 1), data(9, 7, 2), marker(11, 7), data(12, 8), marker(13, 8, commit=False), data(14, 6))
    put(folder / "gaps-0", 0, *ended, data(5, 9, 3), *after)


def test_gaps_name_markers_and_transactions(ask: Ask) -> None:
    rows = ask("SELECT * FROM offset_gaps WHERE topic = 'gaps' ORDER BY first_offset")
    assert [(r["first_offset"], r["last_offset"], r["offsets"], r["cause"]) for r in rows] == [
        (0, 1, 2, "aborted_transaction"),
        (2, 2, 1, "transaction_marker"),
        (4, 4, 1, "transaction_marker"),
        (5, 7, 3, "open_transaction"),
        (8, 8, 1, "after_open_transaction"),
        (9, 10, 2, "after_open_transaction"),
        (11, 11, 1, "transaction_marker"),
        (12, 12, 1, "aborted_transaction"),
        (13, 13, 1, "transaction_marker"),
        (14, 14, 1, "open_transaction"),
    ]


@logs
def damage_in_a_compacted_log(folder: Path) -> None:
    put(folder / "compacted-0", 0, batch(0, 2), batch(5, 2))
    put(folder / "compacted-0", 9, b"\xff" * 100, batch(20, 2))
    put(folder / "compacted-0", 40, batch(40, 2))


def test_losses_in_a_compacted_log_are_only_possible(ask: Ask) -> None:
    """A hole in front of a segment may be what the cleaner removed, as it did elsewhere in the log."""
    (lost,) = ask("SELECT * FROM lost_offsets WHERE topic = 'compacted'")
    assert (lost["first_lost"], lost["last_lost"]) == (7, 19)
    assert (lost["cause"], lost["is_certain"]) == ("damage", False)
    gaps = ask("SELECT * FROM offset_gaps WHERE topic = 'compacted' ORDER BY first_offset")
    assert [(g["first_offset"], g["last_offset"], g["cause"]) for g in gaps] == [
        (2, 4, "compaction"),
        (7, 19, "damage"),
        (22, 39, "compaction"),
    ]


@logs
def a_wrong_base_offset(folder: Path) -> None:
    put(folder / "jumps-0", 0, batch(0, 2), batch(65_538, 2), batch(4, 2))


def test_a_wrong_base_offset_is_no_compaction(ask: Ask) -> None:
    """The base offset lies outside the checksum: a batch that jumps ahead of those after it shows it."""
    (gap,) = ask("SELECT * FROM offset_gaps WHERE topic = 'jumps'")
    assert (gap["first_offset"], gap["last_offset"], gap["cause"]) == (2, 3, "wrong_base_offset")
    (lost,) = ask("SELECT * FROM lost_offsets WHERE topic = 'jumps'")
    assert (lost["first_lost"], lost["last_lost"], lost["cause"]) == (2, 3, "wrong_base_offset")
    assert (lost["next_offset"], lost["is_certain"]) == (4, True)  # a consumer that reads on skips 4 and 5


@logs
def two_damages(folder: Path) -> None:
    good = [batch(base, 2) for base in (0, 2, 4, 6)]
    for at in (1, 2):
        good[at] = good[at][:-1] + bytes([good[at][-1] ^ 1])
    put(folder / "damages-0", 0, *good)


def test_two_damages_without_a_sound_batch_between_them_are_one_loss(ask: Ask) -> None:
    (lost,) = ask("SELECT * FROM lost_offsets WHERE topic = 'damages'")
    assert (lost["first_lost"], lost["last_lost"], lost["damaged_ranges"]) == (2, 5, 2)
    assert (lost["is_certain"], lost["next_offset"]) == (True, 6)


@logs
def keys_elsewhere(folder: Path) -> None:
    for partition in range(3):
        put(folder / f"keyed-{partition}", 0, Batch((Record(key=b"21"), Record()), base_offset=0).encode())


def test_keys_in_another_partition_than_murmur2_gives(ask: Ask) -> None:
    """Of Kafka's own vectors: murmur2("21") is -973932308, so that it lies in partition 0 of 3."""
    (row,) = ask("SELECT * FROM key_partitions WHERE topic = 'keyed'")
    assert (row["partitions"], row["keyed_records"], row["elsewhere_records"]) == (3, 3, 2)
    assert (row["first_partition"], row["first_offset"]) == (1, 0)

"""The views over logs that a test makes, where it knows every fact."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines import decode_batches
from pipelines.command.settings import Settings
from pipelines.views.declared import VIEWS
from pipelines.views.register import register
from tests.support.lake_rows import insert
from tests.support.logs import batch, data, marker, put
from tests.support.segment_maker import DELETE_HORIZON, Batch, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    Ask = Callable[[str], list[dict[str, Any]]]

NOW = 1_700_000_000_000  # 2023-11-14
HOUR = 3_600_000


@pytest.fixture
def ask_of(spark: SparkSession, tmp_path: Path) -> Callable[[Path], Ask]:
    """Decodes a log directory, and gives what answers statements about it."""

    def ask_of(source: Path) -> Ask:
        lake = str(tmp_path / "lake")
        decode_batches.run(spark, Settings(source=(str(source),), lake=lake))

        def ask(statement: str) -> list[dict[str, Any]]:
            register(spark, lake, statement)
            return [row.asDict() for row in spark.sql(statement).collect()]

        return ask

    return ask_of


def written(base: int, at: int, *after: int, **values: Any) -> bytes:
    """A batch whose first record has the timestamp at, the others at + after."""
    records = tuple(Record(key=b"k", value=b"v", timestamp_delta=delta) for delta in (0, *after))
    return Batch(records=records, base_offset=base, base_timestamp=at, **values).encode()


def sent(base: int, sequence: int, records: int = 2, epoch: int = 0) -> bytes:
    return batch(base, records, producer_id=9, producer_epoch=epoch, base_sequence=sequence)


def test_sequence_numbers_that_wrap_are_no_gap(ask_of: Any, tmp_path: Path) -> None:
    put(tmp_path / "src" / "t-0", 0, sent(0, 2**31 - 2), sent(2, 0), sent(4, 2))
    put(tmp_path / "src" / "t-1", 0, sent(0, 2**31 - 1, 1), sent(1, 0))
    put(tmp_path / "src" / "t-2", 0, sent(0, 2**31 - 1, 2), sent(2, 1))  # the wrap lies inside a batch
    rows = ask_of(tmp_path / "src")("SELECT * FROM producers")
    found = [(r["sequence_gaps"], r["duplicates"], r["resets"]) for r in rows]
    assert found == [(0, 0, 0)] * 3


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ((0, 2, 7), {"sequence_gaps": 1, "missing_sequences": 3}),
        ((0, 2, 2), {"duplicates": 1}),
        ((4, 6, 0), {"resets": 1}),
        ((2**31 - 4, 2**31 - 2, 3), {"sequence_gaps": 1, "missing_sequences": 3}),  # over the wrap
        ((0, 2, 4), {}),
    ],
)
def test_gaps_duplicates_and_resets_of_sequence_numbers(
    ask_of: Any, tmp_path: Path, sequences: tuple[int, ...], expected: dict[str, int]
) -> None:
    put(tmp_path / "src" / "t-0", 0, *(sent(2 * i, each) for i, each in enumerate(sequences)))
    (row,) = ask_of(tmp_path / "src")("SELECT * FROM producers")
    counted = ("sequence_gaps", "missing_sequences", "duplicates", "resets")
    assert {name: row[name] for name in counted} == dict.fromkeys(counted, 0) | expected


def test_an_epoch_is_followed_by_the_next_one(ask_of: Any, tmp_path: Path) -> None:
    put(tmp_path / "src" / "t-0", 0, sent(0, 0), sent(2, 0, epoch=3), sent(4, 2, epoch=3))
    rows = ask_of(tmp_path / "src")("SELECT * FROM producers ORDER BY producer_epoch")
    assert [(r["producer_epoch"], r["next_epoch"], r["resets"]) for r in rows] == [(0, 3, 0), (3, None, 0)]


def test_timestamps_in_a_wrong_unit_in_the_future_and_out_of_order(ask_of: Any, tmp_path: Path) -> None:
    folder = tmp_path / "src" / "t-0"
    first = put(
        folder,
        0,
        written(0, NOW),
        written(1, NOW // 1000),  # seconds
        written(2, NOW * 1000),  # microseconds
        written(3, NOW * 1_000_000),  # nanoseconds
        written(4, NOW - 2 * HOUR),  # out of order
        written(5, NOW - HOUR),  # just within the bound
        written(6, -1),  # none
    )
    second = put(folder, 7, written(7, NOW), written(8, NOW + 3 * HOUR, 1))
    third = put(folder, 10, written(10, NOW))
    for path in (first, second, third):
        os.utime(path, (NOW / 1000, NOW / 1000))
    ask = ask_of(tmp_path / "src")
    rows = {row["anomaly"]: row for row in ask("SELECT * FROM timestamp_anomalies")}
    found = {name: (row["first_offset"], row["records"], row["off_by_ms"]) for name, row in rows.items()}
    assert found == {
        "seconds": (1, 1, NOW // 1000 - NOW),
        "microseconds": (2, 1, NOW * 999),
        "nanoseconds": (3, 1, NOW * 999_999),
        "out_of_order": (4, 1, 2 * HOUR),
        "none": (6, 1, None),
        "future": (8, 2, 3 * HOUR + 1),
    }
    behind = second.stat().st_size + third.stat().st_size
    assert rows["future"]["blocked_bytes"] == behind
    assert rows["microseconds"]["blocked_bytes"] == first.stat().st_size + behind
    assert rows["seconds"]["blocked_bytes"] is rows["none"]["blocked_bytes"] is None
    later = ask(f"SELECT * FROM timestamp_anomalies(max_future_ms => {3 * HOUR + 1})")
    assert "future" not in {row["anomaly"] for row in later}
    wider = ask(f"SELECT * FROM timestamp_anomalies(max_disorder_ms => {2 * HOUR})")
    assert {row["anomaly"] for row in wider} == found.keys() - {"out_of_order"}


def test_a_timestamp_out_of_order_in_a_later_segment_is_seen(ask_of: Any, tmp_path: Path) -> None:
    put(tmp_path / "src" / "t-0", 0, written(0, NOW))
    put(tmp_path / "src" / "t-0", 1, written(1, NOW - 3 * HOUR))
    (row,) = ask_of(tmp_path / "src")("SELECT * FROM timestamp_anomalies")
    assert (row["anomaly"], row["first_offset"], row["off_by_ms"]) == ("out_of_order", 1, 3 * HOUR)


def test_retention_by_time_deletes_from_the_start_alone(ask_of: Any, tmp_path: Path) -> None:
    """A segment goes once now - largest timestamp > retention.ms, and all before it go."""
    folder = tmp_path / "src" / "t-0"
    for base, at in ((0, NOW), (1, NOW + 5 * HOUR), (2, NOW + HOUR), (3, NOW + 9 * HOUR)):
        put(folder, base, written(base, at))
    bare = put(folder, 4, written(4, -1))  # expires by the file's time
    os.utime(bare, ((NOW + 10 * HOUR) / 1000,) * 2)
    ask = ask_of(tmp_path / "src")

    def report(now: int) -> list[tuple[bool, str | None]]:
        call = f"retention_report(retention_ms => {HOUR}, at_ms => {now})"
        return [(r["can_go"], r["held_by"]) for r in ask(f"SELECT * FROM {call} ORDER BY file_base_offset")]

    own, earlier = "its own timestamp", "an earlier segment"
    assert report(NOW + HOUR)[0] == (False, own)
    assert report(NOW + HOUR + 1)[0] == (True, None)
    assert report(NOW + 4 * HOUR) == [
        (True, None),
        (False, own),
        (False, earlier),
        (False, own),
        (False, own),
    ]
    assert report(NOW + 6 * HOUR + 1)[:4] == [(True, None)] * 3 + [(False, own)]
    assert report(NOW + 11 * HOUR + 1) == [(True, None)] * 5
    (last,) = ask("SELECT * FROM retention_report(retention_ms => 5) WHERE file_base_offset = 4")
    assert last["expires_ms"] == NOW + 10 * HOUR + 5


def test_retention_by_size_keeps_at_least_so_many_bytes(ask_of: Any, tmp_path: Path) -> None:
    folder = tmp_path / "src" / "t-0"
    sizes = [put(folder, base, written(base, NOW)).stat().st_size for base in range(4)]
    ask = ask_of(tmp_path / "src")
    for keep in (0, 1, sizes[3], sizes[3] + 1, sum(sizes)):
        call = f"retention_report(retention_ms => -1, retention_bytes => {keep})"
        found = [r["can_go"] for r in ask(f"SELECT * FROM {call} ORDER BY file_base_offset")]
        spare = sum(sizes) - keep
        expected: list[bool] = []
        for size in sizes:  # UnifiedLog.deleteRetentionSizeBreachedSegments
            expected.append(spare - size >= 0 and (not expected or expected[-1]))
            spare -= size
        assert found == expected, keep
    rows = ask("SELECT * FROM retention_report(retention_ms => -1)")
    assert {(r["can_go"], r["held_by"], r["expires_ms"]) for r in rows} == {(False, "no limit", None)}


def test_tombstones_expire_at_the_delete_horizon_of_their_batch(ask_of: Any, tmp_path: Path) -> None:
    """KIP-534: the cleaner stores the horizon in place of the base timestamp, and sets bit 6."""
    gone = (Record(key=b"a", value=None), Record(key=b"b", value=None), Record(key=b"c", value=b""))
    cleaned = Batch(gone, base_offset=0, base_timestamp=NOW, flags=DELETE_HORIZON).encode()
    dirty = Batch((Record(key=b"d", value=None), Record(key=b"b", value=b"v")), base_offset=3).encode()
    put(tmp_path / "src" / "t-0", 0, cleaned, dirty)
    ask = ask_of(tmp_path / "src")
    for at, expired in ((NOW, 0), (NOW + 1, 1)):
        (row,) = ask(f"SELECT * FROM compaction_report(at_ms => {at})")
        assert (row["tombstones"], row["expired_tombstones"]) == (2, expired)
    (row,) = ask("SELECT * FROM compaction_report")
    assert (row["expired_tombstones"], row["superseded_records"], row["first_dirty_offset"]) == (1, 1, 4)


def test_gaps_name_markers_and_transactions(ask_of: Any, tmp_path: Path) -> None:
    batches = (
        data(0, 7, 2),
        marker(2, 7, commit=False),
        data(3, 8),
        marker(4, 8),
        data(5, 9, 3),
        batch(8, 1),
    )
    put(tmp_path / "src" / "t-0", 0, *batches)
    rows = ask_of(tmp_path / "src")("SELECT * FROM offset_gaps ORDER BY first_offset")
    assert [(r["first_offset"], r["last_offset"], r["offsets"], r["cause"]) for r in rows] == [
        (0, 1, 2, "aborted_transaction"),
        (2, 2, 1, "transaction_marker"),
        (4, 4, 1, "transaction_marker"),
        (5, 7, 3, "open_transaction"),
    ]


def test_losses_in_a_compacted_log_are_only_possible(ask_of: Any, tmp_path: Path) -> None:
    """A hole in front of a segment may be what the cleaner removed, as it did elsewhere in the log."""
    folder = tmp_path / "src" / "t-0"
    put(folder, 0, batch(0, 2), batch(5, 2))
    put(folder, 9, b"\xff" * 100, batch(20, 2))
    put(folder, 40, batch(40, 2))
    ask = ask_of(tmp_path / "src")
    (lost,) = ask("SELECT * FROM lost_offsets")
    assert (lost["first_lost"], lost["last_lost"], lost["cause"], lost["is_certain"]) == (
        7,
        19,
        "damage",
        False,
    )
    gaps = ask("SELECT * FROM offset_gaps ORDER BY first_offset")
    assert [(g["first_offset"], g["last_offset"], g["cause"]) for g in gaps] == [
        (2, 4, "compaction"),
        (7, 19, "damage"),
        (22, 39, "compaction"),
    ]


def test_a_wrong_base_offset_is_no_compaction(ask_of: Any, tmp_path: Path) -> None:
    """The base offset lies outside the checksum: a batch that jumps ahead of those behind it shows it."""
    put(tmp_path / "src" / "t-0", 0, batch(0, 2), batch(65_538, 2), batch(4, 2))
    ask = ask_of(tmp_path / "src")
    (gap,) = ask("SELECT * FROM offset_gaps")
    assert (gap["first_offset"], gap["last_offset"], gap["cause"]) == (2, 65_537, "wrong_base_offset")
    assert ask("SELECT * FROM lost_offsets") == []


def test_two_damages_without_a_sound_batch_between_them_are_one_loss(ask_of: Any, tmp_path: Path) -> None:
    good = [batch(base, 2) for base in (0, 2, 4, 6)]
    for at in (1, 2):
        good[at] = good[at][:-1] + bytes([good[at][-1] ^ 1])
    put(tmp_path / "src" / "t-0", 0, *good)
    (lost,) = ask_of(tmp_path / "src")("SELECT * FROM lost_offsets")
    assert (lost["first_lost"], lost["last_lost"], lost["damaged_ranges"]) == (2, 5, 2)
    assert (lost["is_certain"], lost["next_offset"]) == (True, 6)


def test_keys_in_another_partition_than_murmur2_gives(ask_of: Any, tmp_path: Path) -> None:
    """Of Kafka's own vectors: murmur2("21") is -973932308, so that it lies in partition 0 of 3."""
    keyed = [Batch((Record(key=b"21"), Record()), base_offset=0).encode() for _ in range(3)]
    for partition, log in enumerate(keyed):
        put(tmp_path / "src" / f"t-{partition}", 0, log)
    (row,) = ask_of(tmp_path / "src")("SELECT * FROM key_partitions")
    assert (row["partitions"], row["keyed_records"], row["elsewhere_records"]) == (3, 3, 2)
    assert (row["first_partition"], row["first_offset"]) == (1, 0)


def test_commands_quote_a_hostile_topic(ask_of: Any, tmp_path: Path) -> None:
    bad = batch(0, 1)
    put(tmp_path / "src" / "it's; rm-0", 0, data(0, 7), bad[:-1] + bytes([bad[-1] ^ 1]), batch(5, 1))
    ask = ask_of(tmp_path / "src")
    (lost,) = ask("SELECT reset_command FROM lost_offsets")
    assert "--topic 'it'\\''s; rm:0' --reset-offsets" in lost["reset_command"]
    (hanging,) = ask("SELECT abort_command FROM hanging_transactions(timeout_ms => -1)")
    assert "abort --topic 'it'\\''s; rm' --partition 0" in hanging["abort_command"]


def test_views_see_nothing_that_the_ledger_does_not_name(
    spark: SparkSession, ask_of: Any, tmp_path: Path
) -> None:
    """Rows that a run is committing, or left behind when it was killed, change no view."""
    bad = batch(9, 2)
    ended = (data(0, 7, 2), marker(2, 7, commit=False))
    open_ = (data(20, 8, base_timestamp=NOW), written(21, NOW + HOUR), written(22, -1))
    put(tmp_path / "src" / "t-0", 0, *ended, sent(3, 0), batch(7, 2), bad[:-1] + b"~", *open_)
    ask = ask_of(tmp_path / "src")

    def answers() -> dict[str, list[str]]:
        register(spark, str(tmp_path / "lake"))
        return {view.name: sorted(map(repr, spark.table(view.name).collect())) for view in VIEWS}

    before = answers()
    assert all(before[name] for name in before), [name for name in before if not before[name]]
    lake = str(tmp_path / "lake")
    for table in ("records", "batches", "quarantine", "transactions"):
        rows = ask(f"SELECT * FROM {table}")
        insert(lake, table, [{**row, "generation": row["generation"] + 1} for row in rows])
        if table != "transactions":
            position = "batch_position" if table == "records" else "position"
            insert(lake, table, [{**row, position: 10**9} for row in rows])
            insert(lake, table, [{**row, "segment": "file:///elsewhere/t-0/0.log"} for row in rows])
    after = answers()
    assert {name for name in before if before[name] != after[name]} == set()

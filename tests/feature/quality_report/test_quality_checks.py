"""Each check of data quality on bytes made for it: what it finds, and what is next to it and sound."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.support.lake_rows import insert
from tests.support.logs import batch, data, marker
from tests.support.quality import LATER, NOW, add_log, add_logs, measured, over_partitions
from tests.support.segment_maker import (
    GZIP,
    LOG_APPEND,
    TRANSACTIONAL,
    ZSTD,
    Batch,
    Message,
    Record,
    flip,
)

pytestmark = pytest.mark.sampled

MINUTE, HOUR = 60_000, 3_600_000
TOPIC = "it's a topic"
SOUND = batch(0) + batch(3)


def one(lake: str, name: str) -> tuple[float | None, bool]:
    """Value and passed of a lake with one partition."""
    (row,) = [row for row in measured(lake, name) if row["segment"] is None]
    return row["value"], row["passed"]


def wrong_count() -> bytes:
    """A right checksum over a header that counts more records than there are."""
    return Batch((Record(value=b"a"),), base_offset=6, count=2).encode()


def sequence(base: int, first: int, epoch: int = 0, producer: int = 7) -> bytes:
    return batch(base, producer_id=producer, producer_epoch=epoch, base_sequence=first)


def stamped(base: int, timestamp: int, **values: Any) -> bytes:
    return batch(base, base_timestamp=timestamp, **values)


def with_headers(size: int) -> bytes:
    header = (b"trace", b"x" * (size - 5))
    return Batch((Record(headers=(header,)), Record(headers=(header,))), base_offset=0).encode()


OLD = Message(magic=1, offset=0, value=b"old").encode()
FLIPPED = flip(batch(6), -1)  # in the last value: its checksum is wrong
UP = batch(6, leader_epoch=65536)
MOVED = batch(6 + (1 << 16), 1)
LATE_PRODUCER = batch(
    0,
    1,
    flags=TRANSACTIONAL | LOG_APPEND,
    producer_id=7,
    base_timestamp=NOW - 48 * HOUR,
    max_timestamp=NOW,
)
CASES: dict[str, list[tuple[bytes, float | None, bool]]] = {
    "crc_failure_rate": [
        (SOUND + FLIPPED + batch(9), 0.25, False),
        (SOUND, 0, True),
        (b"", None, True),
        (SOUND + wrong_count(), 0, True),
    ],
    "damaged_bytes": [
        (SOUND + FLIPPED + batch(9), len(FLIPPED), False),
        (SOUND + b"\xff" * 40 + batch(6), 40, False),
        (SOUND + batch(6)[:30], 0, True),
    ],
    "invalid_batches": [
        (SOUND + wrong_count() + batch(9), 1, False),
        (SOUND + FLIPPED + batch(9), 0, True),
        (SOUND, 0, True),
    ],
    "suspect_batches": [
        (SOUND + batch(6, max_timestamp=NOW - 1), 1, False),
        (SOUND + batch(6, max_timestamp=NOW), 0, True),
    ],
    "torn_tails": [
        (SOUND + batch(6)[:30], 30, False),
        (SOUND + bytes(64), 0, True),
        (SOUND, 0, True),
    ],
    "offset_order": [
        (SOUND + batch(3) + batch(6), 1, False),
        (SOUND + batch(6), 0, True),
        (SOUND + batch(60), 0, True),
    ],
    "offset_gaps": [
        (SOUND + batch(10), 4, False),
        (SOUND + batch(10) + batch(13), 0, True),  # within a segment only the log cleaner leaves a gap
        (SOUND + batch(6), 0, True),
        (SOUND + FLIPPED + batch(9), 0, True),
        (SOUND + MOVED + batch(7), 0, True),
        # The cleaner took a record of the first batch: it left gaps elsewhere too
        (batch(0, 2, last_offset_delta=2) + batch(9), 0, True),
    ],
    "metadata_contradictions": [
        (SOUND + MOVED + batch(7), 1, False),
        (SOUND + UP + batch(9), 1, False),
        (SOUND + batch(6, leader_epoch=-5) + batch(9), 1, False),
        (SOUND + flip(batch(6), 16, 0x03) + batch(9), 1, False),  # magic 2 becomes 1
        (SOUND + flip(batch(6), 16, 0x40) + batch(9), 1, False),  # magic 66
        (SOUND + batch(6, leader_epoch=1) + batch(9, leader_epoch=5), 0, True),
        (SOUND + batch(60) + batch(70), 0, True),
        (OLD + batch(1) + batch(4), 0, True),
        (SOUND + UP + Message(magic=1, offset=9, value=b"old").encode() + batch(10), 1, False),
    ],
    "hanging_transactions": [
        (data(0, 7) + stamped(1, NOW + 16 * MINUTE), 16 * MINUTE, False),
        (data(0, 7) + stamped(1, NOW + 14 * MINUTE), 14 * MINUTE, True),
        (LATE_PRODUCER + stamped(1, NOW + MINUTE), MINUTE, True),  # KIP-32
        (data(0, 7) + stamped(1, NOW * 1000) + stamped(4, NOW + MINUTE), MINUTE, True),
        (marker(0, 8) + data(1, 7, base_timestamp=NOW - 48 * HOUR) + marker(2, 8), 0, True),
        (data(0, 7) + stamped(1, NOW + 16 * MINUTE) + marker(4, 7), 0, True),
    ],
    "sequence_gaps": [
        (sequence(0, 0) + sequence(3, 3) + sequence(6, 7), 1, False),
        (sequence(0, 0) + sequence(3, 0), 1, False),
        (sequence(0, 5) + sequence(3, 8), 0, True),
        (sequence(0, 2**31 - 2) + sequence(3, 1), 0, True),  # 2147483646, 2147483647, 0, then 1
        (sequence(0, 0) + sequence(3, 0, epoch=1) + sequence(6, 0, producer=8), 0, True),
        (sequence(0, 0) + flip(sequence(3, 3), -1) + sequence(6, 6), 0, True),
    ],
    "timestamp_units": [
        (SOUND + stamped(6, NOW // 1000), 1, False),
        (SOUND + stamped(6, NOW * 1000), 1, False),
        (SOUND + stamped(6, 5 * 10**10) + stamped(9, 5 * 10**14) + stamped(12, 2**61), 3, False),
        (SOUND + stamped(6, -1), 0, True),
        (SOUND, 0, True),
    ],
    "timestamp_future": [
        (SOUND + stamped(6, LATER + 2 * HOUR), 2 * HOUR, False),
        (SOUND + stamped(6, LATER + HOUR), HOUR, True),
        (SOUND + stamped(6, (1 << 63) - 1), (1 << 63) - 1 - LATER, False),
        (SOUND + stamped(6, 2**61), 2**61 - LATER, False),
        (SOUND + stamped(6, 253402300800000), 253402300800000 - LATER, False),  # year 10000
    ],
    "timestamp_order": [
        (stamped(0, NOW) + stamped(3, NOW + HOUR) + stamped(6, NOW - 24 * HOUR), 25 * HOUR, False),
        (stamped(0, NOW) + stamped(3, NOW - HOUR), HOUR, True),
        (stamped(0, NOW) + stamped(3, -1) + stamped(6, NOW // 1000), 0, True),
    ],
    "mixed_codecs": [
        (SOUND + batch(6, codec=ZSTD) + batch(9, codec=GZIP), 3, False),
        (batch(0, codec=ZSTD) + marker(3, 7), 1, True),
    ],
    "old_formats": [
        (OLD + batch(1), len(OLD), False),
        (SOUND, 0, True),
        (SOUND + flip(OLD, -1) + batch(6), 0, True),  # damage shows no format
    ],
    "header_size": [(with_headers(9000), 9000, False), (with_headers(100), 100, True), (SOUND, 0, True)],
    "tiny_batches": [
        (batch(0, 1) + batch(1, 1), 122 / (2 * len(batch(0, 1))), False),
        (batch(0, 100), 61 / len(batch(0, 100)), True),
    ],
}


@pytest.fixture(scope="module")
def found(lake_template: str, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """(value, passed) of each check for each case, which is a topic of one lake."""
    lake = str(shutil.copytree(lake_template, tmp_path_factory.mktemp("quality") / "lake"))
    logs = {
        f"{TOPIC} {name} {at}": {0: content}
        for name, cases in CASES.items()
        for at, (content, _, _) in enumerate(cases)
    }
    add_logs(lake, logs)
    rows = [row for row in measured(lake, *CASES) if row["segment"] is None]
    return {(row["check"], row["topic"]): (row["value"], row["passed"]) for row in rows}


@pytest.mark.parametrize("name", CASES)
def test_a_check_measures(found: dict[tuple[str, str], Any], name: str) -> None:
    for at, (_, value, passed) in enumerate(CASES[name]):
        expected = value if value is None else pytest.approx(value), passed
        assert found[name, f"{TOPIC} {name} {at}"] == expected, at


def test_segments_above_the_threshold_are_named_next_to_their_partition(lake: str) -> None:
    add_log(lake, TOPIC, {0: SOUND, 6: FLIPPED + batch(9), 12: batch(12) + b"\xff" * 50 + batch(15)})
    found = [(row["segment"], row["value"], row["passed"]) for row in measured(lake, "damaged_bytes")]
    folder = f"file:///logs/{TOPIC}-0"
    assert found == [
        (None, len(FLIPPED) + 50, False),
        (f"{folder}/00000000000000000006.log", len(FLIPPED), False),
        (f"{folder}/00000000000000000012.log", 50, False),
    ]


def test_a_detail_leads_to_the_bytes(lake: str) -> None:
    add_log(lake, TOPIC, {0: SOUND + b"\xff" * 40 + batch(6)})
    assert measured(lake, "damaged_bytes")[0]["detail"] == f"position {len(SOUND)}: 40 bytes, garbage"


def test_every_partition_is_measured_by_itself(lake: str) -> None:
    add_log(lake, "a", {0: SOUND})
    add_log(lake, "a", {0: FLIPPED + batch(9)}, partition=1)
    add_log(lake, "b", {0: b""})
    assert over_partitions(lake, "damaged_bytes") == {("a", 0): 0, ("a", 1): len(FLIPPED), ("b", 0): 0}


def test_offsets_missing_between_segments_are_a_gap(lake: str) -> None:
    add_log(lake, TOPIC, {0: SOUND, 10: batch(10)})
    assert one(lake, "offset_gaps") == (4, False)


def test_offsets_that_retention_deleted_are_no_gap(lake: str) -> None:
    """The first segment was gone when the second was first listed, so those between may have gone too."""
    add_log(lake, TOPIC, {0: SOUND, 10: batch(10)}, starts={0: 0, 10: 10})
    assert one(lake, "offset_gaps") == (0, True)


def test_a_sequence_is_not_followed_across_retention(lake: str) -> None:
    segments = {0: sequence(0, 0), 10: sequence(10, 10)}
    add_log(lake, "kept", segments)
    add_log(lake, "deleted", segments, starts={0: 0, 10: 10})
    assert over_partitions(lake, "sequence_gaps") == {("kept", 0): 1, ("deleted", 0): 0}


def test_internal_compacted_topics_have_no_gaps(lake: str) -> None:
    add_log(lake, "__consumer_offsets", {0: batch(0) + batch(90)})
    assert one(lake, "offset_gaps") == (0, True)


@pytest.mark.parametrize(
    ("before", "base", "what"),
    [
        (b"", 90, "base offset 90 is below that of the file, 100"),
        (batch(100), 100, "base offset 100 matches the file name, but another batch is first"),
    ],
)
def test_a_batch_that_the_name_of_its_file_contradicts_is_named(
    lake: str, before: bytes, base: int, what: str
) -> None:
    add_log(lake, TOPIC, {100: before + batch(base) + batch(106)})
    assert one(lake, "metadata_contradictions") == (1, False)
    (row,) = [row for row in measured(lake, "metadata_contradictions") if row["segment"]]
    assert row["detail"] == f"position {len(before)}: {what}"


def test_largest_offsets_and_timestamps_do_not_overflow(lake: str) -> None:
    add_log(
        lake, TOPIC, {0: stamped((1 << 63) - 10, (1 << 63) - 1) + stamped(0, -(1 << 63)) + batch(-(1 << 63))}
    )
    assert {row["check"] for row in measured(lake, *CASES)} == set(CASES)


def sized(topic: str, *lengths: int, folder: str = "/logs") -> list[dict[str, Any]]:
    """Ledger rows of a topic with a segment of each length, in a separate partition."""
    return [
        {
            "topic": topic,
            "partition": partition,
            "partition_dir": f"file://{folder}/{topic}-{partition}",
            "segment": f"file://{folder}/{topic}-{partition}/{0:020d}.log",
            "file_base_offset": 0,
            "length": length,
            "decoded_bytes": length,
        }
        for partition, length in enumerate(lengths)
    ]


def test_a_large_partition_among_small_ones_is_skew(lake: str) -> None:
    mib = 1 << 20
    insert(lake, "segments", sized("skewed", 7 * mib, mib, mib, mib, 0))
    insert(lake, "segments", sized("even", mib, mib, 2 * mib))
    insert(lake, "segments", sized("small", 1000, 0, 0, 0, 0))
    insert(lake, "segments", sized("alone", 9 * mib))
    assert over_partitions(lake, "partition_skew") == {
        ("skewed", None): 3.5,
        ("even", None): 1.5,
        ("small", None): None,
        ("alone", None): None,
    }


def test_copies_of_a_partition_are_no_skew(lake: str) -> None:
    mib = 1 << 20
    insert(lake, "segments", sized("copied", 2 * mib, mib))
    insert(lake, "segments", sized("copied", mib, mib, folder="/other"))
    assert over_partitions(lake, "partition_skew") == {("copied", None): pytest.approx(4 / 3)}


def test_a_lake_without_rows_has_nothing_to_measure(lake: str) -> None:
    assert measured(lake, *CASES, "partition_skew") == []

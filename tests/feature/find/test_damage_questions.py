"""Questions after a loss: which keys it cost, who wrote a key, and where consumer groups go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.sql.database import one_database
from tests.support import corpus
from tests.support.logs import batch, data, marker, put
from tests.support.segment_maker import DELETE_HORIZON, GZIP, LOG_APPEND, Batch, Message, Record, flip, wrap
from tests.unit.views.test_clusters_in_views import commit

DAMAGED = "bitflip-payload-v2-none-0"


def lake_of(root: Path, *sources: Path) -> str:
    lake = str(root / "lake")
    argv = [option for source in sources for option in ("--source", str(source))]
    assert decode_batches.main([*argv, "--lake", lake]) == 0
    return lake


def rows(lake: str, statement: str) -> list[dict[str, Any]]:
    with one_database(lake, statement) as database:
        found: list[dict[str, Any]] = database.sql(statement).to_arrow_table().to_pylist()
        return found


def test_keys_in_damaged_bytes_are_named_with_their_neighbours(tmp_path: Path) -> None:
    """One bit of the batch is wrong: Kafka refuses all of it, and all keys but one can still be read."""
    lake = lake_of(tmp_path, corpus.ROOT / "hostile" / DAMAGED)
    (damage,) = rows(lake, "SELECT base_offset, size_bytes FROM quarantine")
    found = rows(lake, "SELECT * FROM damaged_keys d ORDER BY d.offset")
    assert found
    sound = rows(lake, "SELECT r.offset, r.key FROM records r")
    for row in found:
        assert row["offset"] >= damage["base_offset"]
        same = sorted(one["offset"] for one in sound if one["key"] == row["key"])
        assert row["is_known_key"] == bool(same)
        assert row["offset_before"] == max((o for o in same if o < damage["base_offset"]), default=None)
        assert row["offset_after"] == min((o for o in same if o > damage["base_offset"]), default=None)


def test_the_history_of_a_key_has_writers_outcomes_and_what_superseded_it(tmp_path: Path) -> None:
    log = [batch(0, 1), data(1, 7), marker(2, 7, commit=False), data(3, 7), marker(4, 7), data(5, 9)]
    put(tmp_path / "logs" / "t-0", 0, *log)
    lake = lake_of(tmp_path, tmp_path / "logs")
    found = rows(lake, "SELECT * FROM key_history('t', CAST('k0' AS BLOB)) h ORDER BY h.offset")
    printed = [
        (r["offset"], r["producer_id"], r["outcome"], r["is_visible"], r["superseded_by"]) for r in found
    ]
    assert printed == [
        (0, -1, None, True, 3),
        (1, 7, "aborted", False, None),
        (3, 7, "committed", True, None),
        (5, 9, "open", False, None),
    ]


@pytest.mark.parametrize("view", ["damaged_keys", "group_seeks"])
def test_a_lake_without_damage_has_no_rows(tmp_path: Path, view: str) -> None:
    put(tmp_path / "logs" / "t-0", 0, batch(0))
    assert rows(lake_of(tmp_path, tmp_path / "logs"), f"SELECT * FROM {view}") == []


def test_a_producer_was_first_seen_when_its_first_record_was_written(tmp_path: Path) -> None:
    """The base timestamp is another time with log append time, and with a delete horizon (KIP-534)."""
    now, day = 1_700_000_000_000, 86_400_000
    logs = tmp_path / "logs"
    late: dict[str, Any] = {"base_timestamp": now - 5 * day, "max_timestamp": now}
    put(logs / "t-0", 0, batch(0, 1, flags=LOG_APPEND, producer_id=7, **late))
    record = Record(key=b"k", value=b"v", timestamp_delta=-2 * day)
    horizon: dict[str, Any] = {"base_timestamp": now + 2 * day, "max_timestamp": now}
    put(logs / "t-1", 0, Batch((record,), flags=DELETE_HORIZON, producer_id=7, **horizon).encode())
    inner = [Message(offset=at, timestamp=now + at, value=b"v") for at in range(3)]
    put(logs / "t-2", 0, wrap(inner, codec=GZIP).encode())
    statement = "SELECT partition, epoch_ms(first_seen) AS ms FROM producers ORDER BY partition"
    assert [row["ms"] for row in rows(lake_of(tmp_path, logs), statement)] == [now] * 3


def test_a_group_seeks_past_each_loss_that_it_has_not_passed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    put(logs / "t-0", 0, batch(0), flip(batch(3), 30), batch(6))  # a damaged batch
    put(logs / "t-1", 0, batch(0), batch(3))
    put(logs / "t-2", 0, batch(0), batch(3 + 2**40), batch(6))  # a wrong base offset
    put(logs / "t-3", 0, batch(0), b"\xff" * 40)  # nothing sound follows
    put(logs / "t-4", 0, batch(0))
    put(logs / "t-4", 6, batch(6))  # a missing segment
    committed = [(b"it's", 0, 4), (b"it's", 1, 50), (b"it's", 2, 2**40 + 6), (b"it's", 3, 3), (b"it's", 4, 5)]
    committed += [(b"start", at, 0) for at in range(5)] + [(b"end", 0, 1), (b"end", 0, 6), (b"end", 1, 6)]
    commits = [commit(offset, group, partition) for group, partition, offset in committed]
    put(logs / "__consumer_offsets-0", 0, Batch(commits).encode())
    lake = lake_of(tmp_path, logs)
    statement = "SELECT * FROM group_seeks ORDER BY partition, committed_offset"
    found = rows(lake, statement)
    columns = (
        "group",
        "partition",
        "cause",
        "first_lost",
        "last_lost",
        "records_lost",
        "is_certain",
        "seek_to",
    )
    assert [tuple(row[name] for name in columns) for row in found] == [
        ("start", 0, "damage", 3, 5, 3, True, 6),
        ("it's", 0, "damage", 3, 5, 2, True, 6),
        ("it's", 1, "past_the_end", 6, None, None, False, 6),
        ("start", 2, "wrong_base_offset", 3, 5, 3, True, 6),
        ("it's", 2, "past_the_end", 9, None, None, True, 6),
        ("start", 3, "damage", 3, None, None, True, None),
        ("it's", 3, "damage", 3, None, None, True, None),
        ("start", 4, "missing_segment", 3, 5, 3, True, 6),
        ("it's", 4, "missing_segment", 3, 5, 1, True, 6),
    ]
    assert found[1]["reset_command"] == (
        "kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group 'it'\\''s' --topic 't:0' "
        "--reset-offsets --to-offset 6 --execute"
    )
    assert found[5]["reset_command"] is None
    early = [row for row in found if row["group"] == "start"]  # has sound records to read before each loss
    assert [row["reset_command"] for row in early] == [None] * 4

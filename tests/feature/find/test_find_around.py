"""What find gives around matches, and of the last ones: context, superseded records, limits."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.find import command as find
from tests.support.logs import batch, batches, data, marker, put
from tests.support.segment_maker import Batch, Record

NOW = 1_700_000_000_000


def stored(base: int, *records: Record, **values: Any) -> bytes:
    return Batch(records=records, base_offset=base, base_timestamp=NOW, **values).encode()


def broken(made: bytes) -> bytes:
    """A batch with one wrong bit in its last byte."""
    return made[:-1] + bytes([made[-1] ^ 1])


@pytest.mark.parametrize("number", [1, 2, 5, 100])
@pytest.mark.parametrize("key", ["k0", "k1", "x"])
def test_context_is_the_records_around(tmp_path: Path, number: int, key: str) -> None:
    put(tmp_path / "a-0", 0, *batches(0, 3), batch(9, codec=4), stored(12, Record(key=b"x")))
    put(tmp_path / "a-0", 13, broken(batch(13)), marker(16, 7), batch(17, records=1), *batches(18, 4))
    put(tmp_path / "b-0", 0, batch(0))
    every = rows(tmp_path / "a-0")[0]
    places = [at for at, row in enumerate(every) if row["key"] == key.encode()]
    wanted = [at for at in range(len(every)) if any(abs(at - place) <= number for place in places)]
    got, _ = rows(tmp_path / "a-0", key=key, context=number)
    assert [row["offset"] for row in got] == [every[at]["offset"] for at in wanted]
    assert [row["is_match"] for row in got] == [at in places for at in wanted]
    assert [row["value"] for row in got] == [every[at]["value"] for at in wanted]


def test_context_of_the_last_match_within_a_limit(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, *batches(0, 4))
    put(tmp_path / "b-0", 0, *batches(0, 4))
    got, _ = rows(tmp_path, key="k2", limit=1, context=5)
    assert [(row["topic"], row["offset"]) for row in got] == [("a", offset) for offset in range(8)]


def test_a_later_record_of_the_key_supersedes(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0), data(3, 7), marker(4, 7, commit=False), stored(5, Record(key=b"k1")))
    put(tmp_path / "a-0", 6, stored(6, Record(key=b"k2")), broken(batch(7)), stored(10, Record(key=None)))

    def printed(**conditions: Any) -> dict[int, bool | None]:
        return {row["offset"]: row["superseded"] for row in rows(tmp_path, superseded=True, **conditions)[0]}

    expected = {0: None, 1: True, 2: True, 3: None, 4: None, 5: None, 6: None, 10: None}
    assert printed() == expected  # k0 of offset 3 was aborted; 7 to 9 are in damaged bytes
    assert printed(key="k1") == {1: True, 5: None}
    assert printed(key="k1", offset=":3") == {1: True}
    put(tmp_path / "a-0", 6, stored(6, Record(key=b"k2")), stored(10, Record(key=None)))
    assert printed() == expected | {0: False, 3: False, 5: False, 6: False}


def test_damage_in_which_no_offset_is_missing_holds_no_later_record_of_the_key(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0), b"\xee" * 40, batch(3, 1))
    got, unsearched = rows(tmp_path, superseded=True)
    assert [row["superseded"] for row in got] == [True, False, False, False]
    assert len(unsearched) == 1


def test_a_time_that_is_negated_twice_has_to_be_outside_of_both(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, *(batch(at, 1, base_timestamp=NOW + at) for at in range(6)))
    assert [row["offset"] for row in rows(tmp_path, not_since=[NOW + 4, NOW + 2])[0]] == [0, 1]
    assert [row["offset"] for row in rows(tmp_path, not_until=[NOW + 2, NOW + 4])[0]] == [4, 5]
    assert [row["offset"] for row in rows(tmp_path, since=NOW + 1, not_since=NOW + 2)[0]] == [1]


def test_the_last_below_an_offset(tmp_path: Path) -> None:
    for base in (0, 9, 18):
        put(tmp_path / "a-0", base, *batches(base, 3))
    assert [row["offset"] for row in rows(tmp_path, offset="2:17", key="k1", only="last")[0]] == [16]
    assert [row["offset"] for row in rows(tmp_path, offset="2:11", only="last", limit=4)[0]] == [7, 8, 9, 10]


def test_a_wrong_offset_of_a_batch_does_not_end_a_search(tmp_path: Path) -> None:
    """No checksum covers the base offset: a bit of it was flipped."""
    wrong = (3 | 1 << 43).to_bytes(8, "big") + batch(3)[8:]
    put(tmp_path / "a-0", 0, batch(0), wrong, *batches(6, 4))
    assert [row["offset"] for row in rows(tmp_path, offset="6:8")[0]] == [6, 7]


def test_processes_and_slices_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = b"".join(batches(1000, 40, text="inner"))
    made = [
        *batches(0, 20),
        broken(batch(60)),
        batch(63, text="x" + inner.decode("latin-1")),
        *batches(66, 30, codec=2),
        data(156, 7),
        b"\xee" * 300,
        *batches(157, 40),
    ]
    put(tmp_path / "a-0", 0, *made)
    put(tmp_path / "b-0", 0, *batches(0, 3))
    conditions: list[dict[str, Any]] = [{"key": "k1"}, {"value_contains": "5"}, {"not_key": "k1"}, {}]
    expected = [rows(tmp_path, **one) for one in conditions]
    monkeypatch.setattr("kafka_log_lake.pipelines.find.logs.SLICE_BYTES", 500)
    monkeypatch.setattr("kafka_log_lake.pipelines.find.search.ALONE_BYTES", 0)
    monkeypatch.setattr("kafka_log_lake.pipelines.find.slice_search.HELD_BYTES", 400)
    assert [rows(tmp_path, cores=2, **one) for one in conditions] == expected


def rows(path: Path, **options: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    unsearched: list[Any] = []
    found = find.find(path, on_unsearched=unsearched.append, **{"cores": 1, **options})
    return [row for batch in found for row in batch.to_pylist()], unsearched


def test_a_large_batch_is_searched_in_parts(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0, records=300_000, codec=4), batch(300_000))
    for conditions, offsets in (
        ({"key": "k299999"}, [299_999]),
        ({"key": "k1", "value_contains": "v"}, [1, 300_001]),
        ({"value_contains": "v29999"}, [29_999, *range(299_990, 300_000)]),
    ):
        assert [row["offset"] for row in rows(tmp_path, **conditions)[0]] == offsets


@pytest.mark.parametrize("condition", [{"committed": True}, {"transaction": "committed"}])
def test_damage_after_the_offsets_may_hide_the_marker(tmp_path: Path, condition: dict[str, Any]) -> None:
    put(tmp_path / "a-0", 0, broken(batch(0)), data(3, 7), batch(6))
    put(tmp_path / "a-0", 9, broken(marker(9, 7)), batch(10))
    got, unsearched = rows(tmp_path, offset="3:5", **condition)
    assert not got
    assert [one.damage.first_lost for one in unsearched] == [9]  # nothing of offset 0 decides that


def test_a_file_that_is_gone_may_hold_a_later_record_of_the_key(tmp_path: Path) -> None:
    for name in ("a-0", "b-0"):
        put(tmp_path / name, 0, batch(0))
        put(tmp_path / name, 3, stored(3, Record(key=b"other")))
    found = find.find(tmp_path, cores=1, superseded=True, key="k1")
    assert next(found).column("superseded").to_pylist() == [False]
    next((tmp_path / "b-0").glob("*3.log")).unlink()
    assert next(found).column("superseded").to_pylist() == [None]


def test_an_index_of_another_file_hides_no_record(tmp_path: Path) -> None:
    made = batches(0, 50)
    path = put(tmp_path / "a-0", 0, *made)
    size = len(made[0])
    for entries in ((5, 0), (100, 33 * size), (100, 40 * size), (100, 7), (1, 1 << 30), (149, 49 * size)):
        path.with_suffix(".index").write_bytes(struct.pack(">ii", *entries))
        path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 0, entries[0]))
        for low in (0, 99, 101, 130, 149):
            assert [r["offset"] for r in rows(tmp_path, offset=f"{low}:")[0]] == list(range(low, 150))


def test_a_wrong_value_in_python_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0))
    with pytest.raises(UserError, match="unknown condition 'kye'; did you mean key"):
        list(find.find(tmp_path, kye="x"))
    put(tmp_path / "a-0", 0, batch(0), broken(batch(3)), b"\xee" * 40)
    with pytest.warns(UserWarning, match="offsets 3 to the end"):
        list(find.find(tmp_path, key=b"k0"))

"""``--mode latest``: after each run the newest committed record of each key, by a model of the topic."""

from __future__ import annotations

import json
import math
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from tests.support.logs import marker, put
from tests.support.segment_maker import TRANSACTIONAL, Batch, Record

Row = tuple[int, int, str]  # partition, offset, value


@dataclass
class Partition:
    """A partition as its broker has it. records: offset, key, value, timestamp, transaction."""

    number: int
    segment: bytearray = field(default_factory=bytearray)
    end: int = 0
    records: list[tuple[int, str, str | None, int, int]] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)  # producer -> transaction
    outcomes: dict[int, bool] = field(default_factory=dict)  # transaction -> committed

    def write(self, pick: random.Random, keys: list[str], clock: int) -> None:
        """One batch, of a transaction or not, or the end of a transaction."""
        producer = pick.choice([-1, -1, 7, 8])
        if producer in self.open and pick.random() < 0.4:
            self._finish(producer, pick.random() < 0.6)
            return
        made = [
            (pick.choice(keys), None if pick.random() < 0.2 else f'{{"v":{self.end + i}}}')
            for i in range(pick.randint(1, 3))
        ]
        transaction = self.open.setdefault(producer, self.end) if producer >= 0 else -1
        records = tuple(Record(key=k.encode(), value=None if v is None else v.encode()) for k, v in made)
        flags = (
            {"flags": TRANSACTIONAL, "producer_id": producer, "producer_epoch": 0} if producer >= 0 else {}
        )
        batch = Batch(records, base_offset=self.end, base_timestamp=clock, **flags)  # type: ignore[arg-type]
        self.segment += batch.encode()
        self.records += [(self.end + i, k, v, clock, transaction) for i, (k, v) in enumerate(made)]
        self.end += len(made)

    def _finish(self, producer: int, commits: bool) -> None:
        self.outcomes[self.open.pop(producer)] = commits
        self.segment += marker(self.end, producer, commits)
        self.end += 1

    def committed(self) -> list[tuple[int, str, str | None, int, int]]:
        stable = min(self.open.values(), default=self.end)
        return [one for one in self.records if one[0] < stable and self.outcomes.get(one[4], one[4] < 0)]


def newest(partitions: list[Partition]) -> dict[str, Row]:
    """Of a key in several partitions the newer record, by its timestamp."""
    found: dict[str, tuple[int, Row | None]] = {}
    for one in partitions:
        own = {key: (offset, value, at) for offset, key, value, at, _ in one.committed()}
        for key, (offset, value, at) in own.items():
            row = None if value is None else (one.number, offset, value)
            if key not in found or at > found[key][0]:
                found[key] = (at, row)
    return {key: row for key, (_, row) in found.items() if row is not None}


def latest(lake: Path, topic: str) -> tuple[dict[str, Row], str]:
    """The rows of the table, and what its last run read."""
    table = DeltaTable(lake / "latest" / topic)
    rows: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    assert len({row["key"] for row in rows}) == len(rows)
    found = {row["key"]: (row["partition"], row["offset"], row["value"]) for row in rows}
    return found, table.history(1)[0]["read"]


def run(root: Path) -> None:
    options = ["--source", str(root / "logs"), "--lake", str(root / "lake"), "--typed", "--mode", "latest"]
    assert decode_batches.main(options) == 0


@pytest.mark.parametrize("seed", [0, 1])
def test_each_run_leaves_the_newest_committed_record_of_each_key(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``fixed``: each key in one partition, as the default partitioner has it; ``moved``: in any."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    pick = random.Random(seed)
    topics = {name: [Partition(p) for p in range(3)] for name in ("fixed", "moved")}
    keys = [f"k{i}" for i in range(12)]
    own = {("fixed", p): keys[p::3] for p in range(3)}
    clock = 1_700_000_000_000
    read: dict[str, list[str]] = {name: [] for name in topics}
    for _ in range(5):
        for _ in range(pick.randint(1, 12)):
            clock += 1
            name, number = pick.choice(list(topics)), pick.randrange(3)
            topics[name][number].write(pick, own.get((name, number), keys), clock)
        for name, partitions in topics.items():
            for one in partitions:
                folder = tmp_path / "logs" / f"{name}-{one.number}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{0:020d}.log").write_bytes(bytes(one.segment))
        run(tmp_path)
        for name, partitions in topics.items():
            if any(one.end for one in partitions):
                found, how = latest(tmp_path / "lake", name)
                assert found == newest(partitions), name
                read[name].append(how)
    assert not any((tmp_path / "temporary").iterdir()), "--watch runs for months"
    assert set(read["fixed"][1:]) == {"new records"}
    assert read["moved"][-1] == "whole topic"


def test_a_negative_zero_stays_one(tmp_path: Path) -> None:
    records = (Record(b"a", b'{"v":-0.0}'), Record(b"b", b'{"v":0.5}'), Record(b"a", b'{"v":-0.0}'))
    put(tmp_path / "logs" / "t-0", 0, Batch(records).encode())
    options = ["--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"), "--typed"]
    assert decode_batches.main([*options, "--mode", "latest", "--json-values", "infer"]) == 0
    rows = DeltaTable(tmp_path / "lake/latest/t").to_pyarrow_table().to_pylist()
    assert {row["key"]: str(row["value"]["v"]) for row in rows} == {"a": "-0.0", "b": "0.5"}


NAN = struct.pack("<Q", 0x7FF8000000000001)
DOUBLES = [struct.pack("<d", 0.0), struct.pack("<d", -0.0), struct.pack("<d", math.nan), NAN]
KEYS = {
    "json": [
        b'{"id":1}',
        b'{"id": 1}',
        b'{"id":1.0}',
        b'{"id":1.00}',
        rb'{"id":"\u00e9"}',
        b'{"id":"\xc3\xa9"}',
    ],
    "avro": [b"\0\0\0\0\1" + one for one in DOUBLES],
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_that_differ_in_bytes_are_keys_of_their_own(tmp_path: Path, kind: str) -> None:
    """As for Kafka, where their values are equal too; whether a run reads all, or what is new."""
    subject = {"subject": "t-key", "version": 1}
    value = {**subject, "id": 1, "schema": '"double"', "deleted": False}
    schema = Record(
        json.dumps({"keytype": "SCHEMA", **subject, "magic": 1}).encode(), json.dumps(value).encode()
    )
    put(tmp_path / "logs" / "_schemas-0", 0, Batch([schema]).encode())
    keys = KEYS[kind]
    first = [Record(key, b"%d" % at) for at, key in enumerate(keys)]
    then = [
        Record(keys[0], b"again"),
        Record(keys[1], None),
        Record(keys[-1], b"new"),
        Record(keys[-1], b"newer"),
    ]
    segment, at = b"", 0
    for records, how in ((first, "whole topic"), (then, "new records")):
        segment += Batch(records, base_offset=at).encode()
        at += len(records)
        put(tmp_path / "logs" / "t-0", 0, segment)
        run(tmp_path)
        table = DeltaTable(tmp_path / "lake/latest/t")
        assert table.history(1)[0]["read"] == how
        offsets = sorted(row["offset"] for row in table.to_pyarrow_table().to_pylist())
        expected = {one.key: place for place, one in enumerate([*first, *then][:at]) if one.value is not None}
        gone = {keys[1]} if at > len(first) else set()
        assert offsets == sorted(place for key, place in expected.items() if key not in gone)


def test_a_topic_of_which_compaction_left_no_record_has_empty_tables(tmp_path: Path) -> None:
    made = (Record(b"a", b"1"), Record(b"\0\0\0\0\5z", b"2"))  # a key of a schema that nobody knows
    put(tmp_path / "logs" / "u-0", 0, Batch(made).encode())
    tables = ("typed/t", "latest/t", "value_errors")
    for batch, expected in ((Batch(made), [2, 2, 2]), (Batch((), last_offset_delta=1), [0, 0, 1])):
        put(tmp_path / "logs" / "t-0", 0, batch.encode())
        run(tmp_path)
        found = [DeltaTable(tmp_path / "lake" / one).to_pyarrow_table().num_rows for one in tables]
        assert found == expected

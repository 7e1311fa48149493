"""Kafka's batches inside values: against Kafka's own reading of the corpus, and with damage of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_log_lake.udfs.functions import lists
from tests.support import corpus
from tests.support.logs import batch, batches

Rows = list[dict[str, Any]]
ListsOf = Callable[[Iterator[pa.Array]], Iterator[pa.Array]]
PATHS = [path for path in corpus.segments() if path.stat().st_size < 200_000]


def rows_of(function: ListsOf, values: list[bytes | None]) -> list[Rows | None]:
    """The rows of each value; timestamps as microseconds."""
    arrays = list(function(iter([pa.array(values, pa.binary())])))
    found = pa.concat_arrays(arrays)
    kinds = {f.name: pa.int64() if pa.types.is_timestamp(f.type) else f.type for f in found.type.value_type}
    fields = [pa.field(name, kind) for name, kind in kinds.items()]
    printed: list[Rows | None] = found.cast(pa.list_(pa.struct(fields))).to_pylist()
    for row in (row for rows in printed for row in rows or []):
        if row.get("headers"):
            row["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
    return printed


def batches_in(*values: bytes | None) -> list[Rows | None]:
    return rows_of(lists.kafka_batches_array, list(values))


def records_in(*values: bytes | None) -> list[Rows | None]:
    return rows_of(lists.kafka_records_array, list(values))


def short(rows: Rows | None) -> list[tuple[Any, ...]]:
    return [(row["position"], row["status"], row["reason"], row["next_position"]) for row in rows or []]


@pytest.fixture(scope="module")
def all_at_once() -> dict[Path, tuple[Rows, Rows]]:
    """Every sound segment as one value of one column: its batches, its records."""
    contents: list[bytes | None] = [path.read_bytes() for path in PATHS]
    found = zip(PATHS, batches_in(*contents), records_in(*contents), strict=True)
    return {path: (of_batches or [], of_records or []) for path, of_batches, of_records in found}


@pytest.mark.parametrize("path", PATHS, ids=corpus.identity)
def test_segments_as_values_give_what_kafka_reads(
    all_at_once: dict[Path, tuple[Rows, Rows]], path: Path
) -> None:
    found, records = all_at_once[path]
    for row, line in zip(found, corpus.oracle_batches(path), strict=True):
        want = corpus.batch_columns(line)
        if row["magic"] < 2:  # of a wrapper Kafka's library tells other offsets: test_corpus compares them
            del want["base_offset"]
        assert {name: row[name] for name in want} == want
        assert (row["reason"], row["next_position"]) == (None, row["position"] + row["size_bytes"])
    wanted = corpus.expected_records(path)
    for row, want in zip(corpus.like_the_oracle(records, path), wanted, strict=True):
        assert {name: row[name] for name in want} == want


def test_null_and_empty_and_damage_stay_in_their_rows() -> None:
    sound, size = batch(0), len(batch(0))
    values = [sound, None, b"", b"junk", sound + sound[:30], bytes(40), b"x" * 9 + batch(3) + batch(6), sound]
    found = batches_in(*values)
    assert [short(rows) for rows in found] == [
        [(0, "ok", None, size)],
        [],
        [],
        [(0, "quarantined", "truncated", 4)],
        [(0, "ok", None, size), (size, "quarantined", "truncated", size + 30)],
        [(0, "tail", "zeros", 40)],
        [(0, "quarantined", "garbage", 9), (9, "ok", None, 9 + size), (9 + size, "ok", None, 9 + 2 * size)],
        [(0, "ok", None, size)],
    ]
    assert [rows is None for rows in found] == [value is None for value in values]
    records = records_in(*values)
    offsets = [[(row["batch_position"], row["offset"]) for row in rows or []] for rows in records]
    one = [(0, 0), (0, 1), (0, 2)]
    after = [(9, 3), (9, 4), (9, 5), (9 + size, 6), (9 + size, 7), (9 + size, 8)]
    assert offsets == [one, [], [], [], one, [], after, one]


def test_a_wrong_checksum_costs_its_batch_alone() -> None:
    parts = batches(0, 3)
    broken = bytearray(b"".join(parts))
    broken[len(parts[0]) + 70] ^= 1
    (rows,) = batches_in(bytes(broken))
    assert [(row["status"], row["reason"], row["record_count"]) for row in rows or []] == [
        ("ok", None, 3),
        ("corrupt", "crc_mismatch", 0),
        ("ok", None, 3),
    ]
    assert (rows or [])[1]["error"].startswith("crc: expected")
    (records,) = records_in(bytes(broken))
    assert [row["offset"] for row in records or []] == [0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("case", ["header-count-huge-none-0", "bomb-zstd-300m-0", "codec-5-0", "magic-3-0"])
def test_hostile_segments_have_a_row_with_the_reason(case: str) -> None:
    (path,) = (corpus.ROOT / "hostile" / case).glob("*.log")
    reason = {
        "header-count-huge-none-0": "invalid_record",
        "bomb-zstd-300m-0": "decompressed_too_large",
        "codec-5-0": "unknown_codec",
        "magic-3-0": "unknown_magic",
    }[case]
    sound = batch(0)
    around = batches_in(sound, path.read_bytes(), sound)
    assert [row["reason"] for row in around[1] or [] if row["reason"]] == [reason]
    assert short(around[0]) == short(around[2]) == [(0, "ok", None, len(sound))]


def test_a_value_ends_where_it_gives_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MOST_RECORDS", 7)
    parts = batches(0, 4)
    size, value = len(parts[0]), b"".join(parts)
    assert short(batches_in(value)[0]) == [
        (0, "ok", None, size),
        (size, "ok", None, 2 * size),
        (2 * size, "quarantined", "decompressed_too_large", len(value)),
    ]
    assert [row["offset"] for row in records_in(value)[0] or []] == [0, 1, 2, 3, 4, 5]


def test_results_are_cut_where_they_grow_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_OUTPUT_BYTES", 1000)
    monkeypatch.setattr(lists, "_RUN_BYTES", 500)
    values = [batch(3 * i) if i % 9 else None for i in range(100)]
    parts = list(lists.kafka_records_array(iter([pa.array(values, pa.binary())])))
    assert len(parts) > 5
    printed = [row for part in parts for row in part.to_pylist()]
    assert [None if rows is None else [row["offset"] for row in rows] for rows in printed] == [
        None if value is None else [3 * i, 3 * i + 1, 3 * i + 2] for i, value in enumerate(values)
    ]


_PIECES = st.sampled_from([batch(0), batch(3, codec=4), batch(6)[:50], b"", b"text", bytes(20)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.lists(_PIECES | st.binary(max_size=90), max_size=3).map(b"".join), max_size=8))
def test_every_byte_of_a_value_is_in_a_row(values: list[bytes | None]) -> None:
    """And every sound batch gives its three records, whatever lies around it."""
    found, records = batches_in(*values), records_in(*values)
    for value, rows, of_value in zip(values, found, records, strict=True):
        assert (rows is None) == (of_value is None) == (value is None)
        at = 0
        for row in rows or []:
            assert row["position"] == at
            assert (row["error"] is None) == (row["status"] == "ok")
            at = row["next_position"]
        assert at == len(value or b"")
        sound = [row for row in rows or [] if row["status"] in ("ok", "suspect")]
        assert len(of_value or []) == sum(row["record_count"] for row in sound)

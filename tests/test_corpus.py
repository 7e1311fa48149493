"""Every field of every batch and record of the bundled segments, against Kafka's own reading of them.

The oracle knows the fields that Kafka's getters give; the columns it does not know (bytes of payloads, keys,
values, headers, attributes, control types of batches) are held to the reference decoder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import corpus, fast, reference_decoder
from tests.support.reference_decoder import Decoded
from udfs import decode_segment
from udfs.format.schema import BATCHES, RECORDS

SOUND = corpus.segments(checkpoints=True)
HOSTILE = corpus.segments(hostile=True)
SMALL_LIMIT = 8 << 20


def _only(row: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in like}


@pytest.mark.parametrize("path", SOUND, ids=corpus.identity)
def test_batches_equal_kafka_s_reading(path: Path) -> None:
    decoded = fast.decode(path.read_bytes())
    expected = [corpus.batch_columns(line) for line in corpus.oracle_batches(path)]
    assert [_only(row, want) for row, want in zip(decoded.batches, expected, strict=True)] == expected
    for row in decoded.batches:
        assert (row["status"], row["error"], row["crc_computed"]) == ("ok", None, row["crc_stored"])
        assert row["max_timestamp"] == corpus.timestamp_us(row["max_timestamp_ms"])
    assert not decoded.quarantine


@pytest.mark.parametrize("path", SOUND, ids=corpus.identity)
def test_columns_that_kafka_has_no_getter_for_equal_the_reference(path: Path) -> None:
    data = path.read_bytes()
    names = {column.name for column in BATCHES.columns}
    expected = [
        {name: value for name, value in row.items() if name in names}
        for row in reference_decoder.decode(data).batches
    ]
    assert [
        _only(row, want) for row, want in zip(fast.decode(data).batches, expected, strict=True)
    ] == expected


@pytest.mark.parametrize("path", SOUND, ids=corpus.identity)
def test_records_equal_kafka_s_reading(path: Path) -> None:
    decoded = fast.decode(path.read_bytes())
    expected = corpus.expected_records(path)
    rows = corpus.like_the_oracle(decoded.records, path)
    assert [_only(row, want) for row, want in zip(rows, expected, strict=True)] == expected


@pytest.mark.parametrize("path", corpus.segments(), ids=corpus.identity)
def test_decode_segment_gives_the_columns_of_records(path: Path) -> None:
    damages: list[Any] = []
    batches = list(decode_segment(path, window_bytes=1000, on_damage=damages.append))
    rows = [row for batch in batches for row in fast.record_rows(batch)]
    expected = corpus.expected_records(path)
    assert [
        _only(row, want) for row, want in zip(corpus.like_the_oracle(rows, path), expected, strict=True)
    ] == expected
    assert not damages
    known = [
        column.name for column in RECORDS.columns if column.name not in ("topic", "partition", "generation")
    ]
    assert {tuple(batch.schema.names) for batch in batches} <= {tuple(known)}
    assert {row["segment"] for row in rows} <= {f"file://{path.resolve()}"}


def _sound_rows(decoded: Decoded) -> list[dict[str, Any]]:
    damaged = {row["position"] for row in decoded.quarantine}
    return [row for row in decoded.batches if row["position"] not in damaged]


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.parent.name)
def test_a_hostile_segment_loses_no_byte_and_no_good_batch(path: Path) -> None:
    data, facts = path.read_bytes(), corpus.hostile_facts(path)
    decoded = fast.decode(data, limit=SMALL_LIMIT)
    sound = _sound_rows(decoded)
    quarantined = sum(row["size_bytes"] for row in decoded.quarantine)
    assert sum(row["size_bytes"] for row in sound) + quarantined + decoded.tail_bytes == len(data)
    good = facts["good_batches_before"] + facts["good_batches_after"]
    assert sum(row["status"] == "ok" and row["crc_ok"] for row in sound) >= good


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.parent.name)
def test_a_hostile_batch_is_judged_as_kafka_judges_it(path: Path) -> None:
    decoded = fast.decode(path.read_bytes(), limit=SMALL_LIMIT)
    damaged = [range(q["position"], q["position"] + q["size_bytes"]) for q in decoded.quarantine]
    by_position: dict[int, list[dict[str, Any]]] = {}
    for row in decoded.records:
        by_position.setdefault(row["batch_position"], []).append(row)
    for line in corpus.hostile_facts(path)["kafka_clients"]["batches"]:
        if line["ensureValid"] != "ok" or line["recordsError"]:
            assert line["position"] not in by_position
            assert any(line["position"] in gap for gap in damaged)
    for line in corpus.oracle_records(path):
        if "offset" in line and (rows := by_position.get(line["batchPosition"])):
            want = corpus.record_columns(line)
            assert want in [_only(row, want) for row in rows]
        elif "offset" in line:
            assert any(line["batchPosition"] in gap for gap in damaged)


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.parent.name)
def test_a_hostile_segment_reads_as_the_reference_reads_it(path: Path) -> None:
    data = path.read_bytes()
    decoded = fast.decode(data, limit=SMALL_LIMIT)
    expected = reference_decoder.decode(data, limit=SMALL_LIMIT)
    assert [_only(row, want) for row, want in zip(decoded.records, expected.records, strict=True)] == (
        expected.records
    )
    assert [(row["position"], row["status"]) for row in decoded.batches] == [
        (row["position"], row["status"]) for row in expected.batches
    ]
    assert [(q["position"], q["size_bytes"]) for q in decoded.quarantine] == [
        (q["position"], q["size_bytes"]) for q in expected.quarantine
    ]
    assert (decoded.tail, decoded.tail_bytes) == (expected.tail, expected.tail_bytes)

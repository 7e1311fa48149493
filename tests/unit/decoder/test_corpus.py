"""Every field of every batch and record of the bundled segments, against Kafka's own reading of them.

Each segment is decoded once, and answers all questions about it. The oracle knows the fields that Kafka's
getters give; the columns it does not know (bytes of payloads, keys, values, headers, attributes, control
types of batches) are held to the reference decoder. What equals both holds the reference to Kafka too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.udfs import decode_segment
from kafka_log_lake.udfs.format.schema import BATCHES, RECORDS
from tests.support import corpus, fast, reference_decoder
from tests.support.fast import FastDecoded
from tests.support.reference_decoder import Decoded

pytestmark = pytest.mark.sampled
SOUND = corpus.segments(checkpoints=True)
HOSTILE = corpus.segments(hostile=True)
SMALL_LIMIT = 8 << 20
_OF_BATCHES = {column.name for column in BATCHES.columns}
_OF_A_FILE = tuple(c.name for c in RECORDS.columns if c.name not in ("topic", "partition"))

Rows = list[dict[str, Any]]


def _only(rows: Rows, like: Rows) -> Rows:
    """Of each row the columns that the row at its place in ``like`` has."""
    return [{name: row[name] for name in want} for row, want in zip(rows, like, strict=True)]


@pytest.mark.parametrize("path", SOUND, ids=corpus.identity)
def test_a_segment_is_what_kafka_reads(path: Path) -> None:
    data = path.read_bytes()
    decoded = fast.decode(data)
    of_kafka = [corpus.batch_columns(line) for line in corpus.oracle_batches(path)]
    assert _only(decoded.batches, of_kafka) == of_kafka
    for row in decoded.batches:
        assert (row["status"], row["error"], row["crc_computed"]) == ("ok", None, row["crc_stored"])
        assert row["max_timestamp"] == corpus.timestamp_us(row["max_timestamp_ms"])
    assert not decoded.quarantine
    records = corpus.expected_records(path)
    assert _only(corpus.like_the_oracle(decoded.records, path), records) == records
    _check_by_the_reference(decoded, reference_decoder.decode(data))


def _check_by_the_reference(decoded: FastDecoded, expected: Decoded) -> None:
    others = [{name: v for name, v in row.items() if name in _OF_BATCHES} for row in expected.batches]
    assert _only(decoded.batches, others) == others
    assert _only(decoded.records, expected.records) == expected.records


@pytest.mark.parametrize("path", corpus.segments(), ids=corpus.identity)
def test_decode_segment_gives_the_columns_of_records(path: Path) -> None:
    damages: list[Any] = []
    batches = list(decode_segment(path, window_bytes=1000, on_damage=damages.append))
    rows = [row for batch in batches for row in fast.record_rows(batch)]
    expected = corpus.expected_records(path)
    assert _only(corpus.like_the_oracle(rows, path), expected) == expected
    assert not damages
    assert {tuple(batch.schema.names) for batch in batches} <= {_OF_A_FILE}
    assert {row["segment"] for row in rows} <= {f"file://{path.resolve()}"}


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.parent.name)
def test_a_hostile_segment_is_judged_as_kafka_judges_it(path: Path) -> None:
    data, facts = path.read_bytes(), corpus.hostile_facts(path)
    decoded = fast.decode(data, limit=SMALL_LIMIT)
    _check_that_nothing_is_lost(decoded, len(data), facts)
    damaged = [range(q["position"], q["position"] + q["size_bytes"]) for q in decoded.quarantine]
    by_position: dict[int, Rows] = {}
    for row in decoded.records:
        by_position.setdefault(row["batch_position"], []).append(row)
    for line in facts["kafka_clients"]["batches"]:
        if line["ensureValid"] != "ok" or line["recordsError"]:
            assert line["position"] not in by_position
            assert any(line["position"] in gap for gap in damaged)
    for line in corpus.oracle_records(path):
        if "offset" in line and (rows := by_position.get(line["batchPosition"])):
            want = corpus.record_columns(line)
            assert want in [{name: row[name] for name in want} for row in rows]
        elif "offset" in line:
            assert any(line["batchPosition"] in gap for gap in damaged)
    _check_damage_by_the_reference(decoded, reference_decoder.decode(data, limit=SMALL_LIMIT))


def _check_that_nothing_is_lost(decoded: FastDecoded, length: int, facts: dict[str, Any]) -> None:
    """Every byte is in a sound batch, in quarantine or in the tail; every good batch is sound."""
    begins = {row["position"] for row in decoded.quarantine}
    sound = [row for row in decoded.batches if row["position"] not in begins]
    quarantined = sum(row["size_bytes"] for row in decoded.quarantine)
    assert sum(row["size_bytes"] for row in sound) + quarantined + decoded.tail_bytes == length
    good = facts["good_batches_before"] + facts["good_batches_after"]
    assert sum(row["status"] == "ok" and row["crc_ok"] for row in sound) >= good


def _check_damage_by_the_reference(decoded: FastDecoded, expected: Decoded) -> None:
    assert _only(decoded.records, expected.records) == expected.records

    def places(rows: Rows, what: str) -> list[tuple[int, Any]]:
        return [(row["position"], row[what]) for row in rows]

    assert places(decoded.batches, "status") == places(expected.batches, "status")
    assert places(decoded.quarantine, "size_bytes") == places(expected.quarantine, "size_bytes")
    assert (decoded.tail, decoded.tail_bytes) == (expected.tail, expected.tail_bytes)

"""The reference decoder against Kafka's own reading of real and hostile segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import corpus, reference_decoder

SOUND = corpus.segments(checkpoints=True)
HOSTILE = corpus.segments(hostile=True)
SMALL_LIMIT = 8 << 20


def _only(row: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in like}


@pytest.mark.parametrize("path", SOUND, ids=corpus.identity)
def test_reads_a_real_segment_as_kafka_does(path: Path) -> None:
    decoded = reference_decoder.decode(path.read_bytes())
    lines = corpus.oracle_records(path)
    expected = [corpus.batch_columns(line) for line in corpus.oracle_batches(path)]
    assert [_only(row, want) for row, want in zip(decoded.batches, expected, strict=True)] == expected
    assert {row["status"] for row in decoded.batches} == {"ok"}
    wanted = [corpus.record_columns(line) for line in lines]
    got = []
    for row, line, want in zip(decoded.records, lines, wanted, strict=True):
        got.append(_only(row, want))
        for field in ("key", "value"):
            got[-1][field] = corpus.shortened(row[field], line, field)
    assert got == wanted
    assert not decoded.quarantine


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.parent.name)
def test_a_hostile_segment_loses_no_byte_and_no_good_batch(path: Path) -> None:
    data, facts = path.read_bytes(), corpus.hostile_facts(path)
    decoded = reference_decoder.decode(data, limit=SMALL_LIMIT)
    damaged = {row["position"]: row["size_bytes"] for row in decoded.quarantine}
    sound = [row for row in decoded.batches if row["position"] not in damaged]
    accounted = sum(damaged.values()) + sum(row["size_bytes"] for row in sound)
    assert accounted + decoded.tail_bytes == len(data)
    good = facts["good_batches_before"] + facts["good_batches_after"]
    assert sum(row["status"] == "ok" and row["crc_ok"] for row in sound) >= good


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.parent.name)
def test_a_batch_that_kafka_refuses_gives_no_record(path: Path) -> None:
    decoded = reference_decoder.decode(path.read_bytes(), limit=SMALL_LIMIT)
    refused = {
        line["position"]
        for line in corpus.hostile_facts(path)["kafka_clients"]["batches"]
        if line["ensureValid"] != "ok" or line["recordsError"]
    }
    assert not [row for row in decoded.records if row["batch_position"] in refused]


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: path.parent.name)
def test_a_hostile_batch_that_kafka_reads_is_read_the_same_or_quarantined(path: Path) -> None:
    decoded = reference_decoder.decode(path.read_bytes(), limit=SMALL_LIMIT)
    for line in corpus.oracle_records(path):
        if "offset" not in line:
            continue
        position = line["batchPosition"]
        rows = [row for row in decoded.records if row["batch_position"] == position]
        if not rows:
            assert any(
                q["position"] <= position < q["position"] + q["size_bytes"] for q in decoded.quarantine
            )
            continue
        want = corpus.record_columns(line)
        assert want in [_only(row, want) for row in rows]

"""The decoder against Kafka's own library, on segments that these tests make.

Kafka's library reads what Hypothesis drew, one start of a JVM for all of it. What Kafka reads, the decoder
reads the same; of what Kafka refuses, no record is let through. ``test_segment_decoder`` and ``test_fuzz``
compare the reference decoder with it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.kafka.reader import read_segments
from tests.support import fast, kafka_cases, mutations, reference_decoder, strategies
from tests.support.reference_decoder import Decoded

Judged = list[tuple[bytes, list[dict[str, Any]]]]

LIMIT = 4 << 20
RECORD_COLUMNS = (
    "offset",
    "timestamp_ms",
    "key",
    "value",
    "headers",
    "sequence",
    "size_bytes",
    "control_type",
)
BATCH_COLUMNS = (
    "position",
    "size_bytes",
    "magic",
    "base_offset",
    "last_offset",
    "declared_count",
    "compression",
    "timestampType",
    "crc_stored",
    "max_timestamp_ms",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_sequence",
    "is_transactional",
    "is_control",
    "delete_horizon_ms",
)


def _drawn(strategy: st.SearchStrategy[bytes], count: int) -> list[bytes]:
    """Up to ``count`` different examples, the same ones in every run."""
    found: dict[bytes, None] = {}

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(data: bytes) -> None:
        found[data] = None

    draw()
    return list(found)


@pytest.fixture(scope="module")
def sound() -> Judged:
    """Segments of all magics, with Kafka's reading of each."""
    made = _drawn(strategies.segments().map(b"".join), 200)
    return list(zip(made, read_segments(made), strict=True))


@pytest.fixture(scope="module")
def lying() -> Judged:
    """Batches with a right checksum around damaged content, with Kafka's reading of each."""
    made = _drawn(mutations.lying_batches(), 700)
    return list(zip(made, read_segments(made), strict=True))


@pytest.fixture(scope="module")
def by_hand() -> dict[str, list[dict[str, Any]]]:
    """Kafka's reading of the cases of ``kafka_cases``, by name."""
    names = list(kafka_cases.CASES)
    return dict(zip(names, read_segments(kafka_cases.CASES[name] for name in names), strict=True))


def _only(row: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in columns}


def _kafka_records(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_only(record, RECORD_COLUMNS) for batch in batches for record in batch["records"]]


def _check_same_records(decoded: Decoded, kafka: list[dict[str, Any]]) -> None:
    assert [_only(row, RECORD_COLUMNS) for row in decoded.records] == _kafka_records(kafka)


def _check_judged_alike(decoded: Decoded, kafka: list[dict[str, Any]], data: bytes) -> None:
    """One batch: refused by Kafka, it gives no record; read by Kafka, the same ones."""
    refused = [batch["refused"] for batch in kafka if batch["refused"]]
    if refused:
        assert not decoded.records, (refused, data.hex())
        assert decoded.quarantine or decoded.tail_bytes, (refused, data.hex())
    else:
        _check_same_records(decoded, kafka)


def test_sound_segments_read_as_kafka_reads_them(sound: Judged) -> None:
    for data, kafka in sound:
        decoded = fast.decode(data)
        assert [batch["refused"] for batch in kafka] == [None] * len(kafka)
        _check_same_records(decoded, kafka)
        assert not decoded.quarantine
        for row, batch in zip(decoded.batches, kafka, strict=True):
            want = _only(batch, BATCH_COLUMNS)
            if batch["magic"] < 2:
                want["leader_epoch"] = -1
            assert _only(row, BATCH_COLUMNS) == want
            assert (row["record_count"], row["crc_ok"]) == (len(batch["records"]), True)


def _stricter(data: bytes, kafka: list[dict[str, Any]]) -> bool:
    """Where the contract asks for more than Kafka does: records that Kafka drops in silence.

    A record count of 0 before a payload, and a message that is cut at the end of a wrapper.
    """
    (batch,) = kafka
    (row,) = reference_decoder.decode(data, limit=LIMIT).batches
    if batch["refused"] or row["status"] != "invalid":
        return False
    if batch["magic"] == 2:
        return batch["declared_count"] == 0 and "bytes left after 0 records" in row["error"]
    return batch["compression"] != "none" and "bytes asked" in row["error"]


def test_content_that_lies_is_judged_as_kafka_judges_it(lying: Judged) -> None:
    refused = 0
    for data, kafka in lying:
        decoded = fast.decode(data, limit=LIMIT)
        refused += bool(kafka[0]["refused"])
        if _stricter(data, kafka):
            assert decoded.quarantine
            assert not decoded.records
        else:
            _check_judged_alike(decoded, kafka, data)
    assert refused > len(lying) // 4


@pytest.mark.parametrize("name", kafka_cases.CASES)
def test_cases_by_hand_are_judged_as_kafka_judges_them(
    name: str, by_hand: dict[str, list[dict[str, Any]]]
) -> None:
    data = kafka_cases.CASES[name]
    _check_judged_alike(fast.decode(data, limit=LIMIT), by_hand[name], data)


def test_the_cases_by_hand_hold_both_verdicts(by_hand: dict[str, list[dict[str, Any]]]) -> None:
    verdicts = [bool(batches[0]["refused"]) for batches in by_hand.values()]
    assert verdicts.count(True) > 20
    assert verdicts.count(False) > 20

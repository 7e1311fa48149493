"""Checks that a batch of the decoder under test equals the same batch of the reference decoder."""

from __future__ import annotations

from typing import Any

from kafka_log_lake.udfs.format.schema import BATCHES, RECORDS
from tests.support.reference_decoder import Decoded

_BATCH_COLUMNS = {column.name for column in BATCHES.columns} - {"error"}
_RECORD_COLUMNS = {column.name for column in RECORDS.columns}
# Of a damaged batch nothing is said of what lies in it; a wrapper's base offset lies in it too. Which of
# several faults is named, and so the status, is open: test_damage has one fault a test
_OF_CONTENT = {
    "uncompressed_bytes",
    "payload_bytes",
    "key_bytes",
    "value_bytes",
    "header_bytes",
    "control_type",
}


def batch_to_compare(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns of a reference row of ``batches`` that the decoder under test has to match."""
    names = _BATCH_COLUMNS
    if row["status"] not in ("ok", "suspect"):
        names = names - _OF_CONTENT - {"status"} - ({"base_offset"} if row["magic"] < 2 else set())
    return {name: value for name, value in row.items() if name in names}


def check_batch(row: dict[str, Any], want: dict[str, Any]) -> None:
    """Checks that a row of ``batches`` has the values of ``want``, made by ``batch_to_compare``."""
    assert {name: row[name] for name in want} == want
    assert (row["error"] is None) == (row["status"] == "ok")
    assert ("status" in want) == (row["status"] in ("ok", "suspect"))


def check_record(row: dict[str, Any], want: dict[str, Any]) -> None:
    assert {name: row[name] for name in want} == want
    assert set(row) <= _RECORD_COLUMNS


def check_batch_and_records(batch: dict[str, Any], records: list[dict[str, Any]], expected: Decoded) -> None:
    """Checks the row of ``batches`` and the records of one batch with a right checksum."""
    check_batch(batch, batch_to_compare(expected.batches[0]))
    for row, want in zip(records, expected.records, strict=True):
        check_record(row, want)

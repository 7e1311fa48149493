"""Reads the bundled segments, and what Kafka's own library read from them (``tests/data/README.md``)."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent / "data" / "corpus"
ORACLE = ROOT / "_oracle"
LEAST_TIMESTAMP, MOST_TIMESTAMP = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999, in ms
TIMESTAMP_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}


def segments(*, hostile: bool = False, checkpoints: bool = False) -> list[Path]:
    """Returns the sorted paths of the sound segments that hold bytes, or of the hostile ones."""
    found = list(ROOT.glob("*/*/*.log")) + (list(ROOT.glob("*/*/*.checkpoint")) if checkpoints else [])
    return sorted(p for p in found if (case(p) == "hostile") == hostile and (hostile or p.stat().st_size))


def case(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def identity(path: Path) -> str:
    """Returns a short name for test ids."""
    return "/".join(path.relative_to(ROOT).parts)


def topic_partition(path: Path) -> tuple[str, int]:
    match = re.fullmatch(r"(.+)-(\d+)", path.parent.name)
    assert match, path
    return match[1], int(match[2])


def _lines(path: Path, kind: str) -> list[dict[str, Any]]:
    stem = path.name.removesuffix(".log")
    file = ORACLE / path.relative_to(ROOT).parent / f"{stem}.{kind}.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def oracle_batches(path: Path) -> list[dict[str, Any]]:
    """Returns the stored lines of what Kafka's library says of each batch, lines of errors too."""
    return _lines(path, "batches")


@cache
def oracle_records(path: Path) -> list[dict[str, Any]]:
    """Returns the stored lines of what Kafka's library says of each record; lines of errors and notes too."""
    return _lines(path, "records")


def hostile_facts(path: Path) -> dict[str, Any]:
    """Returns what was done to a hostile file, and (``kafka_clients``) what Kafka's library did with it."""
    name = path.parent.name.removesuffix("-0")
    facts: dict[str, Any] = json.loads((ORACLE / "hostile" / f"{name}.json").read_text())
    return facts


def batch_columns(line: dict[str, Any]) -> dict[str, Any]:
    """Returns an oracle line of a batch with the names of the columns of ``batches``."""
    return {
        "position": line["position"],
        "size_bytes": line["sizeInBytes"],
        "magic": line["magic"],
        "base_offset": line["baseOffset"],
        "last_offset": line["lastOffset"],
        "declared_count": line["countOrNull"],
        "compression": line["compressionType"],
        "timestampType": TIMESTAMP_TYPES[line["timestampType"]],
        "crc_stored": line["crc"],
        "crc_ok": line["isValid"],
        "producer_id": line["producerId"],
        "producer_epoch": line["producerEpoch"],
        "base_sequence": line["baseSequence"],
        "last_sequence": line["lastSequence"],
        "is_transactional": line["isTransactional"],
        "is_control": line["isControlBatch"],
        "leader_epoch": line["partitionLeaderEpoch"] if line["magic"] == 2 else -1,
        "max_timestamp_ms": line["maxTimestamp"],
        "delete_horizon_ms": line["deleteHorizonMs"],
    }


def shortened(data: bytes | None, like: dict[str, Any], field: str) -> Any:
    """Returns data as the oracle stores it in ``like``: as it is, or as (length, SHA-256) if it is long."""
    if data is not None and field + "Sha256" in like:
        return len(data), hashlib.sha256(data).hexdigest()
    return data


def record_columns(line: dict[str, Any]) -> dict[str, Any]:
    """Returns an oracle line of a record with the names of the columns of ``records``."""

    def binary(field: str) -> Any:
        if field + "Sha256" in line:
            return line[field + "Length"], line[field + "Sha256"]
        text = line[field + "Base64"]
        return None if text is None else base64.b64decode(text)

    headers = [(k, None if v is None else base64.b64decode(v)) for k, v in line["headers"]]
    return {
        "batch_position": line["batchPosition"],
        "offset": line["offset"],
        "timestamp_ms": line["timestamp"],
        "timestampType": TIMESTAMP_TYPES[line["timestampType"]],
        "key": binary("key"),
        "value": binary("value"),
        "headers": headers or None,
        "sequence": line["sequence"],
        "size_bytes": line["sizeInBytes"],
        "is_control": line["isControl"],
        "control_type": line.get("controlType"),
    }


def timestamp_us(milliseconds: int) -> int | None:
    """Returns what a timestamp column holds, in microseconds; None outside its range, and for -1."""
    held = LEAST_TIMESTAMP <= milliseconds <= MOST_TIMESTAMP and milliseconds != -1
    return milliseconds * 1000 if held else None


def expected_records(path: Path) -> list[dict[str, Any]]:
    """Returns the oracle's records, with the columns that a record takes from its batch."""
    from_batch = ("magic", "producer_id", "producer_epoch", "leader_epoch", "is_transactional")
    batches = {line["position"]: batch_columns(line) for line in oracle_batches(path)}
    rows = []
    for line in oracle_records(path):
        row = record_columns(line)
        row |= {name: batches[row["batch_position"]][name] for name in from_batch}
        rows.append(row | {"timestamp": timestamp_us(row["timestamp_ms"])})
    return rows


def like_the_oracle(rows: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """Returns rows with long keys and values as the oracle stores them: (length, SHA-256)."""
    lines = oracle_records(path)
    fields = ("key", "value")
    return [
        row | {field: shortened(row[field], line, field) for field in fields}
        for row, line in zip(rows, lines, strict=True)
    ]

"""What ``kafka.tools.DumpLogSegments`` 4.1.0 prints of bundled files (``corpus/_dump``)."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.corpus import ROOT

ALL = sorted((ROOT / "_dump").glob("*.txt.gz"))
DUMPS = [dump for dump in ALL if "+__" in dump.name]  # of internal topics
HOSTILE = ROOT / "_dump" / "hostile.jsonl.gz"
_RECORD = re.compile(
    r"\| offset: (\d+) CreateTime: (-?\d+) .*?headerKeys: \[\] (?:key: (\{.*?\}) )?payload: (.*)$"
)
_MARKER = re.compile(r"\| offset: (\d+) .* endTxnMarker: (COMMIT|ABORT)")
_BATCH = re.compile(r"producerId: (-?\d+) .* isTransactional: (true|false)")


@dataclass(frozen=True)
class Dumped:
    """A data record: key and payload as the tool prints them, payload None for a tombstone."""

    offset: int
    timestamp_ms: int
    key: dict[str, Any] | None
    payload: dict[str, Any] | None


def segment(dump: Path) -> Path:
    """The segment or checkpoint that a dump is of."""
    return ROOT.joinpath(*dump.name.removesuffix(".txt.gz").split("+"))


def topic(dump: Path) -> str:
    return segment(dump).parent.name.rpartition("-")[0]


def hostile() -> list[dict[str, Any]]:
    """Of hostile files: file, text, and code, with which the tool ended; printed with --print-data-log."""
    with gzip.open(HOSTILE, "rt", encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def _lines(dump: Path) -> list[str]:
    with gzip.open(dump, "rt", encoding="utf-8") as lines:
        return lines.read().splitlines()


def _record(match: re.Match[str]) -> Dumped:
    key, payload = match[3], match[4]
    return Dumped(
        int(match[1]),
        int(match[2]),
        json.loads(key) if key else None,
        None if payload == "<DELETE>" else json.loads(payload),
    )


def records(dump: Path) -> list[Dumped]:
    return [_record(match) for line in _lines(dump) if (match := _RECORD.match(line)) is not None]


def committed(dump: Path) -> list[Dumped]:
    """The records that count: those of a transaction only once its COMMIT follows."""
    counted: list[Dumped] = []
    pending: dict[str, list[Dumped]] = {}
    producer, transactional = "", "false"
    for line in _lines(dump):
        if (batch := _BATCH.search(line)) is not None:
            producer, transactional = batch.groups()
        elif (marker := _MARKER.match(line)) is not None:
            ended = pending.pop(producer, [])
            counted += ended if marker[2] == "COMMIT" else []
        elif (match := _RECORD.match(line)) is not None:
            to = pending.setdefault(producer, []) if transactional == "true" else counted
            to.append(_record(match))
    return sorted(counted, key=lambda record: record.offset)

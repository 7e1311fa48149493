"""The copies of partitions in ``tests/data/replicas``, and what the brokers agreed on in the end."""

from __future__ import annotations

import base64
import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.recover.compare import Compared, compare
from kafka_log_lake.pipelines.recover.sources import Inventory, find_copies

DATA = Path(__file__).resolve().parent.parent / "data" / "replicas"
SCENARIOS = (
    *("s01-clean", "s02-behind", "s03-retention", "s04a-unclean-once", "s04b-unclean-twice"),
    *("s04c-unclean-silent", "s04d-winner-gone", "s05a-torn-tail", "s05b-zero-tail", "s06-recreated"),
    *("s07-leftovers", "s08a-payload-bits", "s08b-header-bits", "s08c-zero-pages", "s08d-unclean-damaged"),
    *("s08e-segments", "s08f-hit-everywhere", "s08g-twice-damaged", "s08h-compacted-damage"),
    *("s09a-base-offset", "s09b-leader-epoch", "s10a-epoch-file-missing", "s10b-epoch-file-corrupt"),
    *("s10c-silent-epoch-file-missing", "s10d-silent-metadata-left"),
)


def unpack(folder: Path) -> Path:
    """Unpacks all scenarios, and the truth as ``_oracle``."""
    for name in ("copies", "truth"):
        with tarfile.open(DATA / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="fully_trusted")
    return folder


def sources(corpus: Path, scenario: str) -> list[str]:
    """``--source`` values of a scenario: the disks of one broker have one name."""
    found = sorted((corpus / scenario).glob("broker-*"))
    return [f"{path.name.removesuffix('-disk2')}={path}" for path in found]


def compared(corpus: Path, scenario: str) -> tuple[Inventory, Iterator[Compared]]:
    inventory = find_copies(sources(corpus, scenario), lambda topic: True)
    return inventory, compare(inventory, Settings(cores=1))


@dataclass
class Truth:
    """What the brokers agreed on.

    unrecoverable: batches whole in no copy, as (first, last, epoch, records).
    """

    records: list[dict[str, Any]]
    summary: dict[str, Any]
    unrecoverable: list[tuple[int, int, int, int]]
    unrecoverable_offsets: set[int]

    @property
    def lost_offsets(self) -> set[int]:
        return {o for first, last, _, _ in self.unrecoverable for o in range(first, last + 1)}


def truth(corpus: Path, scenario: str, name: str) -> Truth | None:
    """Returns the truth of ``<topic>-<partition>``; None where there is none."""
    oracle = corpus / "_oracle"
    path, expected = oracle / scenario / f"{name}.truth.jsonl", oracle / scenario / "expect.json"
    lost: dict[str, Any] = {"unrecoverable": [], "unrecoverableOffsets": []}
    if expected.exists():
        found = [one for one in json.loads(expected.read_text())["partitions"] if one["partition"] == name]
        if not found:
            return None
        lost, path = found[0], oracle / found[0]["truth"]
    if not path.exists():
        return None
    records = [json.loads(line) for line in path.read_text().splitlines()]
    summary = json.loads(path.with_suffix(".json").read_text())
    return Truth(records, summary, list(map(tuple, lost["unrecoverable"])), set(lost["unrecoverableOffsets"]))


def comparable(record: dict[str, Any]) -> tuple[Any, ...]:
    """(offset, epoch, key, value, headers, kind of control record) of a line of the truth."""
    key, value = (None if record.get(k) is None else base64.b64decode(record[k]) for k in ("key", "value"))
    headers = record.get("headers") or []
    pairs = tuple((name, None if data is None else base64.b64decode(data)) for name, data in headers)
    return record["offset"], record["leaderEpoch"], key, value, pairs, record.get("control")


def lost_lines(corpus: Path, scenario: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(<topic>-<partition>, line) of the records that a copy has and the truth lacks."""
    for path in sorted((corpus / "_oracle" / scenario).glob("*.lost.jsonl")):
        for line in path.read_text().splitlines():
            yield path.name.removesuffix(".lost.jsonl"), json.loads(line)


def fingerprint(folder: Path) -> dict[str, tuple[int, str]]:
    """File -> (modification time, SHA-256)."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in folder.rglob("*")
        if path.is_file()
    }

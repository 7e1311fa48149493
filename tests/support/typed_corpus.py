"""Reads the bundled log directory of Confluent's serializers, and what they were given."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from kafka_log_lake import read_segment
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.plain_payloads import plain_of
from kafka_log_lake.udfs.values.schemas.registry import SCHEMAS_TOPIC, Registry

ROOT = Path(__file__).parent.parent / "data" / "typed"
DATA = ROOT / "data"


def oracle(name: str) -> list[dict[str, Any]]:
    """Returns the lines of a file of the oracle."""
    with gzip.open(ROOT / "oracle" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


TOPICS = [line["topic"] for line in oracle("_topics")]


def copy(topics: Iterable[str], into: Path) -> None:
    """Copies the partition folders of some topics."""
    for topic in topics:
        for folder in folders(topic):
            shutil.copytree(folder, into / folder.name)


def folders(topic: str) -> list[Path]:
    """Returns the partition folders of a topic."""
    return [one for one in DATA.glob(f"{topic}-*") if one.name.rpartition("-")[0] == topic]


@cache
def records(topic: str) -> dict[tuple[int, int], dict[str, Any]]:
    """(partition, offset) -> offset, key, value and headers, a list of pairs, of each data record."""
    found = {}
    for segment in sorted(DATA.glob(f"{topic}-*/*.log")):
        named = re.fullmatch(rf"{re.escape(topic)}-(\d+)", segment.parent.name)
        if named is None:
            continue
        table = read_segment(segment, columns=["offset", "key", "value", "headers", "is_control"])
        for row in table.to_pylist():
            if not row.pop("is_control"):
                row["headers"] = [(one["key"], one["value"]) for one in row["headers"] or ()]
                found[int(named[1]), row["offset"]] = row
    return found


@cache
def registry() -> Registry:
    rows = records(SCHEMAS_TOPIC).values()
    return Registry.from_records((row["offset"], row["key"], row["value"]) for row in rows)


@cache
def reader() -> PayloadReader:
    return PayloadReader(registry())


@cache
def plain(topic: str) -> dict[str, str]:
    """side -> what ``plain_of`` says of the topic's payloads."""
    rows = records(topic).values()
    return {
        side: plain_of([reader().read(topic, side, row[side], row["headers"]) for row in rows])
        for side in (KEY, VALUE)
    }

"""Topics that Streams, Connect and MirrorMaker wrote, and what their own classes decode (tests/data/apps)."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from kafka_log_lake.udfs.values.apps import mirror
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormats
from kafka_log_lake.udfs.values.typed.records import records_of

DATA = Path(__file__).resolve().parents[1] / "data" / "apps"
CLUSTERS = ("connect", "mirror-backup", "mirror-primary", "streams")
_SAID = ("kind", "key", "value", "window_size_ms", "writer", "retain_duplicates")


@cache
def kinds() -> dict[tuple[str, str], dict[str, Any]]:
    lines = map(json.loads, (DATA / "kinds.jsonl").read_text().splitlines())
    return {(line["cluster"], line["topic"]): line for line in lines}


@cache
def oracle() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The records of each cluster and topic: partition, offset, and decoded or error."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in map(json.loads, gzip.decompress((DATA / "oracle.jsonl.gz").read_bytes()).splitlines()):
        found.setdefault((line["cluster"], line["topic"]), []).append(line)
    return found


def said(cluster: str) -> dict[str, dict[str, Any]]:
    """What a file of formats says of a cluster's topics."""
    return {
        topic.replace(".", r"\."): {name: one[name] for name in _SAID if one.get(name) is not None}
        for (own, topic), one in kinds().items()
        if own == cluster
    }


def formats(cluster: str) -> TopicFormats:
    return TopicFormats.parsed(said(cluster))


def records(cluster: str, topic: str) -> Iterator[dict[str, Any]]:
    """The data records of a topic's only partition."""
    (folder,) = [one for one in (DATA / cluster).iterdir() if one.name.rpartition("-")[0] == topic]
    return records_of(sorted(f"file://{one}" for one in folder.glob("*.log")))


def wanted(cluster: str, line: dict[str, Any]) -> dict[str, Any]:
    """What the key and the value of a record are; of Connect's JSON the payload, without its schema."""
    decoded = line["decoded"]
    sides = {side: decoded.get(side) for side in ("key", "value")}
    if kinds()[cluster, line["topic"]]["kind"] == "connect-json":
        return {side: one["value"] if isinstance(one, dict) else one for side, one in sides.items()}
    return sides


def canonical(held: Any) -> Any:
    """A value of a typed table in canonical JSON."""
    if isinstance(held, bytes):
        return {"bytes": base64.b64encode(held).decode()}
    if isinstance(held, dict):
        return {name: canonical(one) for name, one in held.items()}
    if isinstance(held, list):
        if held and isinstance(held[0], dict) and held[0].keys() == {"key", "value"}:
            return [
                [one["key"], None if one["value"] is None else base64.b64encode(one["value"]).decode()]
                for one in held
            ]
        return [canonical(one) for one in held]
    return held


def together(key: Any, value: Any) -> dict[str, Any]:
    """A record of MirrorMaker, of the columns of its key and value."""
    return mirror.record(key, value)

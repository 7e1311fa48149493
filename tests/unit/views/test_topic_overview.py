"""``topic_overview``: each topic in one row, against what Kafka's consumers read of the same logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support import as_command, dumps, typed_corpus
from tests.support.corpus import ORACLE, ROOT
from tests.support.made_views import asking

CASES = (
    "v2-internal",
    "v2-codec-gzip",
    "v2-compacted",
    "v2-prefix-deleted",
    "v2-txn-commit",
    "v2-txn-abort",
    "v2-txn-open",
)

Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    lake = str(tmp_path_factory.mktemp("overview") / "lake")
    sources = [
        *(ROOT / case for case in CASES),
        typed_corpus.DATA / "_schemas-0",
        *typed_corpus.folders("pb-kinds"),
    ]
    as_command.decode(None, Settings(source=tuple(map(str, sources)), lake=lake, typed=False))
    return {row["topic"]: row for row in asking(lake)("SELECT * FROM topic_overview")}


def lines(folder: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def of_kafka() -> dict[str, dict[str, int]]:
    """Returns by topic what consumers of both isolation levels got, and the offsets of the logs."""
    found: dict[str, dict[str, int]] = {}
    for folder in (one for case in CASES for one in sorted((ORACLE / case).iterdir())):
        if not (folder / "read_committed.jsonl").exists():
            continue
        bounds = json.loads((folder / "offsets.json").read_text())
        of_topic = found.setdefault(
            folder.name.rpartition("-")[0], dict.fromkeys(("committed", "all", "offsets"), 0)
        )
        of_topic["committed"] += len(lines(folder, "read_committed.jsonl"))
        of_topic["all"] += len(lines(folder, "read_uncommitted.jsonl"))
        of_topic["offsets"] += bounds["highWatermark"] - bounds["logStartOffset"]
    return found


def readers(topic: str) -> set[str]:
    """Returns the groups whose last commit of an offset of a topic is not deleted, by Kafka's dumps."""
    last: dict[str, Any] = {}
    for dump in (one for one in dumps.DUMPS if one.name.startswith("v2-internal+__consumer_offsets")):
        for record in dumps.committed(dump):
            of_key = (record.key or {})["data"]
            if of_key.get("topic") == topic:
                last[json.dumps(of_key)] = record.payload
    return {json.loads(key)["group"] for key, payload in last.items() if payload is not None}


def test_messages_and_offsets_are_those_of_kafkas_consumers(rows: Rows) -> None:
    known = of_kafka()
    assert len(known) > 6
    for topic, counts in known.items():
        row = rows[topic]
        assert (row["committed"], row["offsets"]) == (counts["committed"], counts["offsets"]), topic
        if row["first_offset"] == 0:  # else records below the log start still lie in the first segment
            assert row["messages"] == counts["all"], topic


def test_messages_markers_and_what_was_removed_add_up(rows: Rows) -> None:
    of_whole = [
        row for row in rows.values() if row["first_offset"] == 0 and not row["topic"].startswith("__")
    ]
    assert {row["topic"] for row in of_whole} >= {"compacted", "tx-committed", "tx-aborted", "codec-gzip"}
    for row in of_whole:
        parts = ("messages", "markers", "compacted_away", "lost")
        assert sum(row[part] for part in parts) == row["offsets"], row["topic"]
        became = ("committed", "aborted", "open", "after_open")
        assert sum(row[part] for part in became) == row["messages"], row["topic"]
    assert (
        rows["tx-aborted"]["aborted"] == rows["tx-aborted"]["messages"] - rows["tx-aborted"]["committed"] > 0
    )
    assert (rows["tx-open"]["open"], rows["tx-open"]["after_open"]) == (3, 7)
    assert rows["compacted"]["compacted_away"] > 0 == rows["codec-gzip"]["compacted_away"]


def test_formats_growth_and_readers(rows: Rows) -> None:
    row = rows["codec-gzip"]
    assert sum(row["bytes_by_day"].values()) == row["bytes"]
    assert row["read_by"] == sorted(readers("codec-gzip"))
    assert rows["compacted"]["read_by"] is None
    assert rows["pb-kinds"]["value_formats"] == ["protobuf"]
    assert rows["compacted"]["keys"] <= rows["compacted"]["messages"]

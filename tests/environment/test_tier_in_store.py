"""A tier in an object store: read by ranges, also on a day when the store fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.udfs import reads
from tests.feature.tier.test_one_log import DATA, truth
from tests.support.object_store import BREAK, DROP, ERROR, PASS, Store, uri

CASE = DATA / "encrypted"


def found(store: Store, capsysbinary: pytest.CaptureFixture[bytes]) -> set[tuple[object, ...]]:
    """The records of the local log and a tier in the store."""
    key = f"key-1={CASE / 'keys' / 'key-1.private.pem'}"
    argv = [str(CASE / "log-dir"), "--tier", uri("tier"), "--tier-key", key, "--exclude-topics", "__.*"]
    capsysbinary.readouterr()
    assert find.main([*argv, "--committed", "--format", "json"]) == 0
    out, said = capsysbinary.readouterr()
    assert b"warning" not in said
    rows = [json.loads(line) for line in out.splitlines()]
    names = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
    records = [tuple(row[name] for name in names) for row in rows]
    assert len(records) == len(set(records)), "a record twice"
    return set(records)


def test_a_tier_in_a_store_gives_what_consumers_read(
    store: Store, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    shutil.copytree(CASE / "tier", store.folder / "tier")
    store.reset()
    assert found(store, capsysbinary) == truth("encrypted")
    read = {Path(path.partition("?")[0]).name for method, path in store.paths if method == "GET"}
    small = [one.name for one in (CASE / "tier").rglob("*.log") if "/small-" in str(one)]
    assert set(small) & read
    counted = reads.counted()
    objects = [(how, path) for how, path in store.paths if ".rsm-manifest" in path or ".log" in path]
    assert counted.tier_bytes == sum(
        store.sent[path] for path in {path for how, path in objects if how == "GET"}
    )
    assert counted.tier_requests == len(objects)
    store.meet = lambda number, method, path: (BREAK, DROP, ERROR, PASS, PASS)[number % 5]
    assert found(store, capsysbinary) == truth("encrypted")
    assert store.met[BREAK] + store.met[DROP] + store.met[ERROR] > 5

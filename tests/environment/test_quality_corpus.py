"""The quality report over the bundled segments, against what Kafka's own library read from them."""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.dataframes.register import register_views
from kafka_log_lake.pipelines.quality_report import command as quality_report
from tests.support import as_command, corpus
from tests.support.page import Page, check_structure
from tests.support.quality import measured, over_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOUND = [path for path in corpus.segments() if corpus.oracle_batches(path)]
HOSTILE = corpus.segments(hostile=True)
Partition = tuple[str, int | None]


@pytest.fixture(scope="module")
def bundled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of every bundled segment."""
    lake = str(tmp_path_factory.mktemp("quality") / "lake")
    as_command.decode(spark, Settings(source=(str(corpus.ROOT),), lake=lake))
    return lake


def failed(lake: str, name: str) -> set[str]:
    """Topics in which a check fails."""
    return {row["topic"] for row in measured(lake, name) if not row["passed"]}


def names(*paths: Path) -> set[str]:
    return {corpus.topic_partition(path)[0] for path in paths}


def facts(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = corpus.hostile_facts(path)["kafka_clients"]
    return found


def test_what_brokers_and_clients_wrote_is_not_damaged(bundled: str) -> None:
    for name in ("crc_failure_rate", "damaged_bytes", "invalid_batches", "offset_order", "offset_gaps"):
        assert not failed(bundled, name) & names(*SOUND), name
    for name in ("metadata_contradictions", "sequence_gaps", "torn_tails"):
        assert not failed(bundled, name) & names(*SOUND), name


def test_wrong_checksums_are_those_that_kafka_refuses(bundled: str) -> None:
    rates = over_partitions(bundled, "crc_failure_rate")
    checked = 0
    for path in HOSTILE:
        found = facts(path)
        batches = found["batches"]
        if found["iterationError"] or found["bytesLeft"] or not batches:
            continue
        if any(b["magic"] not in (0, 1, 2) for b in batches):
            continue  # no row in batches: quarantined as unknown_magic
        refused = [b for b in batches if "stored crc" in str(b["ensureValid"])]
        if re.search(
            "inner-(crc|magic-2)", path.parent.name
        ):  # of a message in a wrapper: ensureValid reads none
            refused = batches[:1]
        assert rates[corpus.topic_partition(path)] == pytest.approx(len(refused) / len(batches)), (
            path.parent.name
        )
        checked += bool(refused)
    assert checked >= 9


def test_torn_tails_are_what_kafka_leaves_unread(bundled: str) -> None:
    tails = over_partitions(bundled, "torn_tails")
    # In trunc-overhead-* the bytes left are zeros, those of the base offset: a tail of zeros, not a torn one
    cut = [
        path for path in HOSTILE if path.parent.name.startswith(("trunc-header", "trunc-mid", "trunc-last"))
    ]
    assert len(cut) >= 12
    for path in cut:
        assert tails[corpus.topic_partition(path)] == facts(path)["bytesLeft"], path.parent.name


def test_metadata_outside_the_checksum(bundled: str) -> None:
    """The names of the files say what was changed; Kafka's library accepts the checksum of all of them."""
    changed = {"bitflip-baseoffset-v2-none", "bitflip-baseoffset-v2-zstd", "base-offset-negative"}
    changed |= {"bitflip-leaderepoch-v2-none", "bitflip-leaderepoch-v2-zstd"}
    changed |= {"magic-2-becomes-1", "magic-3", "magic-127", "magic-255"}
    changed |= {"offset-goes-back"}  # the file's name is the base offset of its first batch alone
    found = failed(bundled, "metadata_contradictions")
    assert changed <= found
    assert found - changed <= {"last-offset-delta-too-large", "v1-relative-beyond-outer"}
    assert "offset-goes-back" in failed(bundled, "offset_order")


def test_bytes_of_old_formats(bundled: str) -> None:
    expected: dict[Partition, int] = defaultdict(int)
    for path in SOUND:
        sizes = [line["sizeInBytes"] for line in corpus.oracle_batches(path) if line["magic"] < 2]
        expected[corpus.topic_partition(path)] += sum(sizes)
    found = over_partitions(bundled, "old_formats")
    assert {place: found[place] for place in expected} == expected
    assert sum(expected.values()) > 0


def test_codecs_of_topics(bundled: str) -> None:
    expected: dict[str, set[str]] = defaultdict(set)
    for path in SOUND:
        for line in corpus.oracle_batches(path):
            if not line["isControlBatch"]:
                expected[corpus.topic_partition(path)[0]].add(line["compressionType"])
    found = over_partitions(bundled, "mixed_codecs")
    assert {topic: found[topic, None] for topic in expected} == {
        t: len(codecs) for t, codecs in expected.items()
    }
    assert max(map(len, expected.values())) == 5


def test_sizes_of_headers(bundled: str) -> None:
    expected: dict[Partition, float] = defaultdict(float)
    for path in SOUND:
        sizes: dict[int, list[int]] = defaultdict(list)
        for line in corpus.oracle_records(path):
            pairs = [(key.encode(), base64.b64decode(value or "")) for key, value in line["headers"]]
            sizes[line["batchPosition"]].append(sum(len(key) + len(value) for key, value in pairs))
        place = corpus.topic_partition(path)
        expected[place] = max([expected[place], *(sum(batch) / len(batch) for batch in sizes.values())])
    found = over_partitions(bundled, "header_size")
    assert {place: found[place] for place in expected} == pytest.approx(expected)
    assert max(expected.values()) > 0


def test_open_transactions(bundled: str) -> None:
    assert failed(bundled, "hanging_transactions") <= {"tx-open"}


def test_page_of_all_bundled_segments(spark: SparkSession, bundled: str, tmp_path: Path) -> None:
    """And the table of the report is there by its name in SQL, from then on."""
    register_views(spark, bundled, "records")
    assert not spark.catalog.tableExists("quality_metrics")
    quality_report.run(Settings(lake=bundled), output=str(tmp_path))
    page = Page((tmp_path / "quality.html").read_text())
    check_structure(page)
    assert len(page.of("svg")) == 5
    assert (tmp_path / "quality.html").stat().st_size < 500_000
    register_views(spark, bundled, "quality_metrics")
    rows = spark.sql("SELECT DISTINCT topic FROM quality_metrics WHERE `check` = 'torn_tails' AND NOT passed")
    assert {row.topic for row in rows.collect()} == failed(bundled, "torn_tails")

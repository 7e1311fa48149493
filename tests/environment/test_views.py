"""The views over the bundled segments, against what real consumers and Kafka's own library say of them."""

from __future__ import annotations

import base64
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.plan import ledger, missing
from kafka_log_lake.pipelines.scan.command import scan
from tests.support import as_command
from tests.support.answers import prepare_in_memory
from tests.support.corpus import ORACLE, ROOT, case, hostile_facts, oracle_batches, oracle_records, segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAMAGED = ("bitflip-crc-v0-none", "bitflip-payload-v2-zstd", "magic-3", "zstd-corrupt-head", "random-bytes")
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every sound segment, some damaged ones, and a log whose middle segment is missing."""
    folder = tmp_path_factory.mktemp("views")
    holed = folder / "holed" / "holed-0"
    shutil.copytree(ROOT / "v2-segments" / "segmented-0", holed)
    (holed / "00000000000000000065.log").unlink()
    cases = sorted({case(path) for path in segments()})
    sources = [str(ROOT / name) for name in cases] + [str(ROOT / "hostile" / f"{name}-0") for name in DAMAGED]
    made = str(folder / "lake")
    as_command.decode(spark, Settings(source=(*sources, str(holed.parent)), lake=made))
    return made


@pytest.fixture(scope="module")
def ask(spark: SparkSession, lake: str) -> Any:
    prepare_in_memory(spark, lake)
    return lambda statement: [row.asDict(recursive=True) for row in spark.sql(statement).collect()]


def folder_of(partition_dir: str) -> Path:
    return Path(partition_dir.removeprefix("file://"))


def by_folder(rows: Rows) -> dict[Path, Rows]:
    found: dict[Path, Rows] = {}
    for row in rows:
        found.setdefault(folder_of(row["partition_dir"]), []).append(row)
    return found


def logs() -> dict[Path, list[Path]]:
    """The bundled sound logs, each with its segments in order."""
    found: dict[Path, list[Path]] = {}
    for path in segments():
        found.setdefault(path.parent, []).append(path)
    return found


def records_of(log: list[Path]) -> Rows:
    return [line for path in log for line in oracle_records(path) if "offset" in line]


def test_gaps_and_delivered_offsets_make_up_the_log(ask: Any) -> None:
    """Each offset was given to a real READ_COMMITTED consumer, or is in a gap."""
    gaps = by_folder(ask("SELECT * FROM offset_gaps"))
    checked = 0
    for folder in logs():
        oracle = ORACLE / folder.relative_to(ROOT)
        if not (oracle / "read_committed.jsonl").exists():
            continue
        bounds = json.loads((oracle / "offsets.json").read_text())
        start, end = bounds["logStartOffset"], bounds["highWatermark"]
        lines = (oracle / "read_committed.jsonl").read_text().splitlines()
        delivered = [json.loads(line)["offset"] for line in lines]
        inside = [g for g in gaps.get(folder, []) if g["first_offset"] >= start and g["last_offset"] < end]
        assert len(delivered) + sum(g["offsets"] for g in inside) == end - start, folder
        for gap in inside:
            if gap["place"] == "between batches":
                assert not set(delivered) & set(range(gap["first_offset"], gap["last_offset"] + 1))
        checked += 1
    assert checked > 30


def test_compaction_is_the_cause_where_the_cleaner_ran_and_nowhere_else(ask: Any) -> None:
    found = ask("SELECT DISTINCT partition_dir FROM offset_gaps WHERE cause = 'compaction'")
    cases = {folder_of(row["partition_dir"]).relative_to(ROOT).parts[0] for row in found}
    compacted = {name for name in {case(path) for path in segments()} if "compacted" in name}
    assert compacted <= cases
    internal = {"internal-2.8", "v2-internal"}  # compacted topics too
    assert {name for name in cases - compacted - internal if not name.startswith("lib-")} == set()


def test_a_missing_segment_is_reported_with_its_offsets(ask: Any) -> None:
    (gap,) = ask("SELECT * FROM offset_gaps WHERE topic = 'holed' AND place = 'between batches'")
    assert (gap["first_offset"], gap["last_offset"], gap["offsets"]) == (65, 122, 58)
    assert gap["cause"] == "missing_segment"
    (lost,) = ask("SELECT * FROM lost_offsets WHERE topic = 'holed'")
    assert (lost["first_lost"], lost["last_lost"], lost["max_records"]) == (65, 122, 58)
    assert (lost["cause"], lost["is_certain"], lost["next_offset"]) == ("missing_segment", True, 123)


def test_scan_and_summary_tell_the_missing_offsets_of_the_view(ask: Any, lake: str) -> None:
    rows = ask(
        "SELECT topic, partition, first_lost, last_lost FROM lost_offsets WHERE cause = 'missing_segment'"
    )
    expected = {(f"{row['topic']}-{row['partition']}", row["first_lost"], row["last_lost"]) for row in rows}
    findings = DeltaTable(f"{lake}/offset_findings").to_pyarrow_table()
    found = missing.of_findings(ledger.read(f"{lake}/segments"), findings)
    assert {(log, one.first, one.last) for log, one in found} == expected == {("holed-0", 65, 122)}
    folders = ask("SELECT DISTINCT partition_dir FROM segments")
    scanned = scan(Settings(source=tuple(row["partition_dir"] for row in folders), cores=1))
    printed = {(f"{log.topic}-{log.partition}", one.first, one.last) for log, one in scanned.missing}
    assert printed == expected


@pytest.mark.parametrize("name", DAMAGED[:4])
def test_lost_offsets_are_those_that_kafka_refuses(ask: Any, name: str) -> None:
    """Between the last offset before the batch that Kafka's library refuses, and the first after it."""
    (path,) = (ROOT / "hostile" / f"{name}-0").glob("*.log")
    facts = hostile_facts(path)
    sound = [line for line in oracle_batches(path) if "baseOffset" in line]
    bad = facts["good_batches_before"]
    positions = [batch["position"] for batch in facts["kafka_clients"]["batches"]]
    before = next(b for b in sound if b["position"] == positions[bad - 1])
    after = next(b for b in sound if b["position"] == positions[bad + 1])
    (lost,) = ask(f"SELECT * FROM lost_offsets WHERE partition_dir LIKE '%/{name}-0'")
    assert (lost["first_lost"], lost["last_lost"]) == (before["lastOffset"] + 1, after["baseOffset"] - 1)
    assert lost["next_offset"] == after["baseOffset"]
    assert lost["damaged_bytes"] == positions[bad + 1] - positions[bad]
    assert lost["reset_command"].endswith(
        f"'{lost['topic']}:0' --reset-offsets --to-offset {after['baseOffset']} --execute"
    )


def test_damage_to_the_end_has_no_next_offset(ask: Any) -> None:
    (lost,) = ask("SELECT * FROM lost_offsets WHERE partition_dir LIKE '%/random-bytes-0'")
    assert (lost["first_lost"], lost["last_lost"], lost["max_records"]) == (0, None, None)
    assert (lost["next_offset"], lost["reset_command"], lost["damaged_bytes"]) == (None, None, 4000)


def test_the_hanging_transaction_of_the_broker_is_found(ask: Any) -> None:
    oracle = json.loads((ORACLE / "v2-txn-open" / "tx-open-0" / "offsets.json").read_text())
    path = ROOT / "v2-txn-open" / "tx-open-0" / "00000000000000000000.log"
    records = [r for r in oracle_records(path) if not r["isControl"]]
    (first,) = [b for b in oracle_batches(path) if b["baseOffset"] == oracle["lastStableOffset"]]
    (found,) = ask("SELECT * FROM hanging_transactions WHERE topic = 'tx-open'")
    assert (found["hangs_as_of_last_write"], found["hangs_now"]) == (False, True)  # 152 ms, by the markers
    (found,) = ask("SELECT * FROM hanging_transactions(timeout_ms => -1) WHERE topic = 'tx-open'")
    assert found["last_stable_offset"] == found["first_offset"] == oracle["lastStableOffset"]
    assert (found["producer_id"], found["producer_epoch"]) == (first["producerId"], first["producerEpoch"])
    held = [r for r in records if r["offset"] >= oracle["lastStableOffset"]]
    assert found["held_records"] == len(held)
    assert found["held_bytes"] == path.stat().st_size - first["position"]
    assert found["abort_command"] == (
        "kafka-transactions.sh --bootstrap-server HOST:9092 abort --topic 'tx-open' --partition 0 "
        f"--start-offset {oracle['lastStableOffset']}"
    )


def test_a_timeout_can_be_given(ask: Any) -> None:
    (found,) = ask("SELECT open_ms FROM hanging_transactions(timeout_ms => 0) WHERE topic = 'tx-open'")
    limit = found["open_ms"]
    assert limit == 1795247483964 - 1795247483812  # from the marker before it to the last one
    for timeout, count in ((limit - 1, 1), (limit, 0)):
        call = f"hanging_transactions(timeout_ms => {timeout})"
        rows = ask(f"SELECT * FROM {call} WHERE topic = 'tx-open' AND hangs_as_of_last_write")
        assert len(rows) == count


def test_producers_wrote_what_kafka_read(ask: Any) -> None:
    """Per producer id and epoch: first and last offset and sequence, batches and records."""
    found = by_folder(ask("SELECT * FROM producers WHERE producer_id >= 0"))
    checked = 0
    for folder, log in logs().items():
        expected: dict[tuple[int, int], Rows] = {}
        for line in (line for path in log for line in oracle_batches(path) if "producerId" in line):
            if line["magic"] == 2 and line["producerId"] >= 0 and not line["isControlBatch"]:
                expected.setdefault((line["producerId"], line["producerEpoch"]), []).append(line)
        rows = {(row["producer_id"], row["producer_epoch"]): row for row in found.get(folder, [])}
        assert rows.keys() == expected.keys(), folder
        for key, lines in expected.items():
            row = rows[key]
            assert row["first_offset"] == lines[0]["baseOffset"]
            assert row["last_offset"] == lines[-1]["lastOffset"]
            assert row["first_sequence"] == lines[0]["baseSequence"]
            assert row["last_sequence"] == lines[-1]["lastSequence"]
            assert (row["batches"], row["records"]) == (len(lines), sum(b["countOrNull"] for b in lines))
            checked += 1
    assert checked > 80


def test_live_brokers_leave_no_sequence_gap_but_by_compaction(ask: Any) -> None:
    broken = ask("SELECT * FROM producers WHERE sequence_gaps + duplicates + resets > 0")
    cases = {
        folder_of(row["partition_dir"]).relative_to(ROOT).parts
        for row in broken
        if "holed" not in row["topic"]
    }
    assert {parts[0] for parts in cases if parts[0] != "hostile"} <= {
        name for name in {case(path) for path in segments()} if "compacted" in name
    }
    (holed,) = [row for row in broken if row["topic"] == "holed"]
    assert (holed["sequence_gaps"], holed["missing_sequences"]) == (1, 58)  # of the missing segment


def test_clients_are_named_where_their_encoding_shows_it(ask: Any) -> None:
    found: dict[str, set[str | None]] = {}
    for row in ask(
        "SELECT partition_dir, client FROM producers WHERE producer_id = -1 AND topic NOT LIKE '\\\\_\\\\_%'"
    ):
        folder = folder_of(row["partition_dir"])
        if ROOT in folder.parents:
            found.setdefault(folder.relative_to(ROOT).parts[0], set()).add(row["client"])
    assert found["v2-kafkajs"] == {"KafkaJS"}
    shared = {"Sarama, aiokafka or franz-go"}
    assert found["v2-sarama"] == found["v2-aiokafka"] == found["v2-franz-go"] == shared
    others = ("v2-librdkafka", "v2-kafka-python", "v2-nonidempotent", "v1-sarama", "v0-librdkafka")
    assert all(found[name] == {None} for name in others)


def test_compaction_report_is_what_the_records_say(ask: Any) -> None:
    found = by_folder(ask("SELECT * FROM compaction_report"))
    for name in ("v2-compacted", "v0-compacted", "v2-codec-none", "v2-nulls"):
        for folder, log in logs().items():
            if folder.relative_to(ROOT).parts[0] != name:
                continue
            lines = [line for line in records_of(log) if not line["isControl"]]
            last: dict[str, Any] = {}
            for line in lines:
                if line["keyBase64"] is not None:
                    last[line["keyBase64"]] = line
            keyed = [line for line in lines if line["keyBase64"] is not None]
            first = {line["keyBase64"]: line["offset"] for line in reversed(keyed)}
            repeats = [line["offset"] for line in keyed if line["offset"] != first[line["keyBase64"]]]
            (row,) = found[folder]
            versions = Counter(line["keyBase64"] for line in keyed)
            kept = sum(line["sizeInBytes"] for line in last.values())
            assert row["records"] == len(lines)
            assert (row["null_key_records"], row["keys"]) == (len(lines) - len(keyed), len(last))
            assert row["most_versions"] == max(versions.values(), default=0)
            assert row["superseded_records"] == len(keyed) - len(last)
            assert row["superseded_bytes"] == sum(line["sizeInBytes"] for line in keyed) - kept
            tombstones = [x for x in last.values() if x.get("valueBase64", "") is None]
            assert row["tombstones"] == len(tombstones)
            assert row["first_dirty_offset"] == min(repeats, default=None)


def test_topic_profile_is_what_the_records_say(ask: Any) -> None:
    (row,) = ask("SELECT * FROM topic_profile WHERE topic = 'headers.v1'")
    paths = [path for path in segments() if path.parent.name.startswith("headers.v1-")]
    lines = [line for path in paths for line in oracle_records(path)]
    batches = [line for path in paths for line in oracle_batches(path)]
    assert (row["records"], row["batches"]) == (len(lines), len(batches))
    assert row["bytes"] == sum(path.stat().st_size for path in paths)
    sizes = [sum(len(k.encode()) + len(base64.b64decode(v or "")) for k, v in r["headers"]) for r in lines]
    assert row["header_bytes"] == sum(sizes)
    assert row["largest_headers_bytes"] == max(sizes)
    assert row["key_bytes_max"] == max(len(base64.b64decode(r["keyBase64"])) for r in lines if r["keyBase64"])
    assert row["null_keys"] == sum(r["keyBase64"] is None for r in lines)
    per_partition = Counter(path.parent.name for path in paths for _ in oracle_records(path)).values()
    assert row["skew"] == pytest.approx(max(per_partition) * len(per_partition) / sum(per_partition))
    assert sum(row["codecs"].values()) == row["bytes"]
    (mixed,) = ask("SELECT * FROM topic_profile WHERE topic = 'mixed.magic'")
    magics = Counter(
        line["magic"]
        for path in segments()
        if path.parent.name.startswith("mixed.magic-")
        for line in oracle_batches(path)
        for _ in range(line["countOrNull"] or 1)
    )
    assert mixed["magics"].keys() == magics.keys() == {0, 1, 2}


def test_logs_and_topics_add_up(ask: Any) -> None:
    for folder, (row,) in by_folder(ask("SELECT * FROM logs")).items():
        files = sorted(folder.glob("*.log"))
        assert (row["segments"], row["bytes"]) == (len(files), sum(f.stat().st_size for f in files))
        assert row["first_segment_offset"] == int(files[0].stem)
        oracle = ORACLE / folder.relative_to(ROOT) / "offsets.json" if ROOT in folder.parents else None
        if oracle is not None and oracle.exists():
            bounds = json.loads(oracle.read_text())
            assert row["log_start_offset"] == bounds["logStartOffset"], folder
            stable = bounds["lastStableOffset"]
            assert row["last_stable_offset"] == (None if stable == bounds["highWatermark"] else stable), (
                folder
            )
    summed = ask("SELECT sum(bytes) AS bytes, sum(records + control_records) AS records FROM topics")
    assert summed == ask("SELECT sum(length) AS bytes, sum(records) AS records FROM segments")

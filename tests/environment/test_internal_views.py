"""The views over Kafka's internal topics, on the bundled logs: against Kafka's dumps and offsets."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafka_log_lake
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS
from tests.support import as_command, dumps
from tests.support.answers import answer
from tests.support.corpus import ORACLE
from tests.support.corpus import ROOT as CORPUS
from tests.support.dumps import DUMPS, Dumped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internal_topics.md"
# The internal topics of one cluster, and the topics whose offsets were committed there
CASES = ("v2-internal", "v2-codec-gzip", "v2-names", "v2-txn-commit")


@pytest.fixture(scope="module")
def internal(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = str(tmp_path_factory.mktemp("internal") / "lake")
    sources = tuple(str(CORPUS / case) for case in CASES)
    as_command.decode(spark, Settings(source=sources, lake=lake))
    return lake


@pytest.fixture(scope="module")
def ask(spark: SparkSession, internal: str) -> Any:
    """Runs a statement on that lake; rows as dicts."""
    kafka_log_lake.register(spark, internal)
    return lambda sql: [row.asDict(recursive=True) for row in spark.sql(sql).collect()]


def counted(topic: str) -> list[tuple[int, Dumped]]:
    """(partition, record) of the records of a topic that count, by Kafka's dumps."""
    of_topic = [d for d in DUMPS if dumps.topic(d) == topic and dumps.segment(d).suffix == ".log"]
    chosen = [d for d in of_topic if dumps.segment(d).parts[-3] == "v2-internal"]
    return [(int(str(dumps.segment(d).parent)[-1]), r) for d in chosen for r in dumps.committed(d)]


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).replace(
        microsecond=milliseconds % 1000 * 1000, tzinfo=None
    )


def last_of_each_key(records: list[tuple[int, Dumped]]) -> set[tuple[int, int]]:
    """(partition, offset) of the last record of each key."""
    last = {(partition, json.dumps(r.key)): r.offset for partition, r in records}
    return {(partition, offset) for (partition, _), offset in last.items()}


def commit_row(partition: int, record: Dumped) -> dict[str, Any]:
    assert record.key is not None
    key, value = record.key["data"], (record.payload or {"data": {}})["data"]
    return {
        "group": key["group"],
        "topic": key["topic"],
        "partition": key["partition"],
        "committed_offset": value.get("offset"),
        "leader_epoch": value.get("leaderEpoch"),
        "metadata": value.get("metadata"),
        "commit_timestamp": moment(value["commitTimestamp"]) if value else None,
        "is_tombstone": record.payload is None,
        "log_partition": partition,
        "record_offset": record.offset,
        "record_timestamp": moment(record.timestamp_ms),
    }


def test_consumer_offsets_are_the_commits_that_count(ask: Any) -> None:
    records = [(p, r) for p, r in counted("__consumer_offsets") if r.key and r.key["type"] == "1"]
    expected = [commit_row(partition, record) for partition, record in records]
    found = ask("SELECT * FROM consumer_offsets ORDER BY log_partition, record_offset")
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    assert {row["error"] for row in found} == {None}
    current = {(row["log_partition"], row["record_offset"]) for row in found if row["is_current"]}
    assert current == last_of_each_key(records)


def test_offsets_of_an_aborted_transaction_do_not_count(ask: Any) -> None:
    """Offset 5 of partition 1 was sent in a transaction that the dump shows aborted at 6."""
    where = "FROM consumer_offsets WHERE `group` = 'grp-ctp' AND metadata = 'meta-2'"
    assert ask(f"SELECT * {where}") == []
    where = "WHERE log_partition = 1 AND record_offset < 9 ORDER BY record_offset"
    offsets = f"SELECT record_offset FROM consumer_offsets {where}"
    assert [row["record_offset"] for row in ask(offsets)] == [2, 3]


def test_consumer_groups_are_as_dumped(ask: Any) -> None:
    records = [(p, r) for p, r in counted("__consumer_offsets") if r.key and r.key["type"] != "1"]
    found = ask("SELECT * FROM consumer_groups ORDER BY log_partition, record_offset")
    assert [(row["log_partition"], row["record_offset"]) for row in found] == [
        (p, r.offset) for p, r in records
    ]
    for row, (_, r) in zip(found, records, strict=True):
        assert r.key is not None
        assert str(row["record_type"]) == r.key["type"]
        assert row["group"] == r.key["data"].get("group", r.key["data"].get("groupId"))
        assert row["member_id"] == r.key["data"].get("memberId")
        assert row["is_tombstone"] == (r.payload is None)
        data = {} if r.payload is None else r.payload["data"]
        assert json.loads(row["state"] or "{}") == data
        generation = data.get("generation", data.get("epoch", data.get("assignmentEpoch")))
        assert row["generation"] == data.get("memberEpoch", generation)
        assert (row["protocol"], row["leader"]) == (data.get("protocol"), data.get("leader"))
        assert json.loads(row["members"] or "null") == data.get("members")
    current = {(row["log_partition"], row["record_offset"]) for row in found if row["is_current"]}
    assert current == last_of_each_key(records)


def test_transaction_states_are_as_dumped(ask: Any) -> None:
    names = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
    found = ask("SELECT * FROM transaction_states ORDER BY log_partition, record_offset")
    records = counted("__transaction_state")
    assert len(found) == len(records) > 280
    for row, (partition, r) in zip(found, records, strict=True):
        assert r.key is not None
        assert r.payload is not None
        data = r.payload["data"]
        assert (row["log_partition"], row["record_offset"]) == (partition, r.offset)
        assert row["transactional_id"] == r.key["data"]["transactionalId"]
        assert (row["producer_id"], row["producer_epoch"]) == (data["producerId"], data["producerEpoch"])
        assert (row["state"], row["timeout_ms"]) == (
            names[data["transactionStatus"]],
            data["transactionTimeoutMs"],
        )
        partitions = row["partitions"] and [[p["topic"], p["partitions"]] for p in row["partitions"]]
        theirs = data["transactionPartitions"]
        assert partitions == (theirs and [[p["topic"], p["partitionIds"]] for p in theirs])
        assert row["last_update_timestamp"] == moment(data["transactionLastUpdateTimestampMs"])
        start = data["transactionStartTimestampMs"]
        assert row["start_timestamp"] == (None if start == -1 else moment(start))
        assert row["client_transaction_version"] == data.get("clientTransactionVersion", 0)
    current = {(row["log_partition"], row["record_offset"]) for row in found if row["is_current"]}
    assert current == last_of_each_key(records)


def test_cluster_metadata_is_as_dumped(ask: Any) -> None:
    found = ask("SELECT * FROM cluster_metadata ORDER BY record_offset")
    records = counted("__cluster_metadata")
    assert len(found) == len(records) == 515
    for row, (_, r) in zip(found, records, strict=True):
        assert r.payload is not None
        assert (row["record_offset"], row["version"]) == (r.offset, r.payload["version"])
        assert re.sub(r"(?<!^)([A-Z])", r"_\1", row["name"]).upper() == r.payload["type"]
        assert json.loads(row["record"]) == r.payload["data"]


def high_watermark(topic: str, partition: int) -> int:
    (file,) = [path for case in CASES for path in ORACLE.glob(f"{case}/{topic}-{partition}/offsets.json")]
    offset: int = json.loads(file.read_text())["highWatermark"]
    return offset


@pytest.mark.parametrize("group", ["group-consumer-2-é", "grp-ctp"])
def test_lag_after_all_is_up_to_the_high_watermark(ask: Any, group: str) -> None:
    found = ask(f"SELECT * FROM group_lag_at('{group}', timestamp'2027-01-01')")
    held = {
        (row["topic"], row["partition"]): row["committed_offset"]
        for row in ask(f"SELECT * FROM consumer_offsets WHERE `group` = '{group}' AND is_current")
    }
    assert {(row["topic"], row["partition"]): row["committed_offset"] for row in found} == held
    for row in found:
        end = high_watermark(row["topic"], row["partition"])
        assert (row["end_offset"], row["lag"]) == (end, end - row["committed_offset"])


@pytest.mark.parametrize(
    ("group", "year", "note"),
    [
        ("no such group", 2027, "no group of this name has a record in the partitions"),
        ("group-classic-0", 2027, "the commits of the group had been deleted, or had expired, by then"),
        ("grp-ctp", 2020, "the group committed nothing by then, but later"),
    ],
)
def test_a_group_without_a_commit_has_one_row_that_says_why(
    ask: Any, group: str, year: int, note: str
) -> None:
    (row,) = ask(f"SELECT * FROM group_lag_at('{group}', timestamp'{year}-01-01')")
    assert row.pop("note").startswith(note)
    assert set(row.values()) == {None}


# --- The page ---


def test_queries_of_the_page_print_what_it_shows(internal: str) -> None:
    shown = re.findall(
        r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(shown) == 12
    for statement, output in shown:
        assert "\n".join(answer(internal, statement, "table")) + "\n" == output


def test_columns_of_the_page_are_those_of_the_views(ask: Any, spark: SparkSession) -> None:
    """The page of columns is made from the declarations: these are what a session has."""
    views = [view for view in SESSION_VIEWS if view.in_session_only and view.has_defaults]
    assert len(views) > 10
    for view in views:
        fields = spark.table(view.name).schema.fields
        assert [(c.name, c.sql_type) for c in view.columns] == [
            (field.name, field.dataType.simpleString()) for field in fields
        ], view.name

"""Views of Kafka Connect and MirrorMaker, against what Connect's REST API and RemoteClusterUtils answered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support import as_command
from tests.support.app_views import DATA, ORACLE, STORES
from tests.support.logs import put
from tests.support.made_views import Ask, asking
from tests.support.segment_maker import Batch, Record

CONFIG = b'{"properties":{"a":"1"}}'


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    lake = str(tmp_path_factory.mktemp("apps") / "lake")
    as_command.decode(None, Settings(source=(str(DATA),), lake=lake, typed=False))
    return asking(lake)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Ask]:
    """Makes a lake of topics with these keys and values."""

    def make(**topics: list[tuple[bytes | None, bytes | None]]) -> Ask:
        for topic, pairs in topics.items():
            records = tuple(Record(key=key, value=value) for key, value in pairs)
            put(tmp_path / "logs" / f"{topic.replace('_', '-')}-0", 0, Batch(records).encode())
        lake = str(tmp_path / "lake")
        as_command.decode(None, Settings(source=(str(tmp_path / "logs"),), lake=lake, typed=False))
        return asking(lake)

    return make


def test_connectors_and_tasks_are_those_of_the_rest_api(ask: Ask) -> None:
    rest = ORACLE["connect"]["connectors"]
    rows = {row["connector"]: row for row in ask("SELECT * FROM connect_connectors")}
    assert rows.keys() == rest.keys()
    tasks = ask("SELECT connector, task, is_lost FROM connect_tasks ORDER BY ALL")
    assert tasks == [
        {"connector": name, "task": task["task"], "is_lost": False}
        for name in sorted(rest)
        for task in rest[name]["info"]["tasks"]
    ]
    for name, row in rows.items():
        assert json.loads(row["config"]) == rest[name]["info"]["config"]
        assert (row["tasks"] or 0) == len(rest[name]["info"]["tasks"])
        assert (row["lost_tasks"], row["commit_is_first"]) == (0, False)
        states = {"STARTED": "RUNNING"}
        assert (
            states.get(row["target_state"], row["target_state"]) == rest[name]["status"]["connector"]["state"]
        )


def test_states_and_topics_are_those_of_the_rest_api(ask: Ask) -> None:
    found = ask("SELECT * FROM connect_states WHERE is_current AND NOT is_tombstone")
    states = {(row["connector"], row["task"]): row for row in found if row["kind"] != "topic"}
    for name, one in ORACLE["connect"]["connectors"].items():
        for said in (one["status"]["connector"], *one["status"]["tasks"]):
            row = states.pop((name, said.get("id")))
            assert (row["state"], row["worker"]) == (said["state"], said["worker_id"])
            assert (row["version"], row["trace"]) == (said["version"], said.get("trace"))
        topics = {row["topic"] for row in found if (row["kind"], row["connector"]) == ("topic", name)}
        assert topics == {*ORACLE["connect"]["topics"][name][name]["topics"]}
    assert not states


def test_offsets_are_those_of_the_rest_api_and_a_reset_one_is_there(ask: Ask) -> None:
    rows = ask("SELECT * FROM connect_offsets WHERE offset_topic <> 'own-offsets'")
    for name, said in ORACLE["connect"]["offsets"].items():
        current = [r for r in rows if r["connector"] == name and r["is_current"] and not r["is_tombstone"]]
        found = [(json.loads(r["source_partition"]), json.loads(r["source_offset"])) for r in current]
        assert sorted(found, key=str) == sorted(
            ((o["partition"], o["offset"]) for o in said["offsets"]), key=str
        )
    (reset,) = [r for r in rows if r["is_tombstone"] and r["kind"] == "source"]
    assert (reset["connector"], reset["is_current"], reset["source_offset"]) == ("stopped-source", True, None)


def test_dead_letters_are_joined_with_the_records_that_failed(ask: Ask) -> None:
    rows = ask("SELECT * FROM dead_letters ORDER BY offset")
    assert [(r["source_topic"], r["source_partition"], r["source_offset"]) for r in rows] == [
        ("json-in", 0, at) for at in (1, 9, 13, 9, 13)
    ]
    assert {(r["writer"], r["connector"], r["task"], r["is_source_there"], r["is_same"]) for r in rows} == {
        ("connect", "file-sink", 0, True, True)
    }
    assert {r["stage"] for r in rows} == {"VALUE_CONVERTER", "TRANSFORMATION"}


def test_a_session_key_is_nowhere(ask: Ask) -> None:
    (row,) = ask("SELECT * FROM connect_records WHERE record.type = 'session-key'")
    assert "algorithm" not in json.dumps(row)
    assert {value for name, value in row["record"].items() if name not in ("store", "type")} == {None}


def test_tasks_that_compaction_lost_and_a_commit_before_its_configuration_are_flagged(
    made: Callable[..., Ask],
) -> None:
    """KafkaConfigBackingStore: a commit counts with the configurations of all its tasks."""
    ask = made(
        worker_configs=[
            (b"task-lost-1", CONFIG),
            (b"commit-lost", b'{"tasks":2}'),
            (b"connector-lost", CONFIG),
            (b"task-lost-0", CONFIG),  # never committed: compaction took the one before
            (b"connector-again", CONFIG),
            (b"task-again-0", CONFIG),
            (b"commit-again", b'{"tasks":1}'),
            (b"connector-again", None),
            (b"connector-again", CONFIG),
        ]
    )
    rows = ask("SELECT connector, tasks, lost_tasks, commit_is_first FROM connect_connectors ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [("again", None, 0, False), ("lost", 2, 1, True)]
    rows = ask("SELECT connector, task, is_lost, config FROM connect_tasks ORDER BY ALL")
    text = CONFIG.decode().removeprefix('{"properties":')[:-1]
    assert [tuple(row.values()) for row in rows] == [("lost", 0, True, None), ("lost", 1, False, text)]


def test_translated_offsets_are_those_of_remote_cluster_utils(ask: Ask) -> None:
    for group, said in ORACLE["translateOffsets"].items():
        for place, want in said.items():
            topic, _, partition = place.rpartition("-")
            (row,) = ask(f"SELECT * FROM translate_offset('{group}', '{topic}', {partition})")
            assert (row["translated_offset"], row["metadata"]) == (want["offset"], want["metadata"])
            assert row["committed_offset"] == ORACLE["targetGroups"][group][place]["offset"]
            assert (row["basis"], row["source_topic"]) == ("checkpoint", topic.removeprefix("primary."))


def test_a_failover_says_what_is_read_twice_and_what_is_skipped(ask: Ask) -> None:
    (row,) = ask("SELECT * FROM translate_offset('search', 'clicks', 0)")
    assert (row["upstream_offset"], row["translated_offset"]) == (80, 55)
    assert (row["sync_upstream_offset"], row["read_twice"]) == (54, 25)
    (row,) = ask("SELECT * FROM translate_offset('billing', 'primary.orders', 0)")  # rewound in the source
    assert (row["translated_offset"], row["committed_offset"], row["skipped"]) == (1, 64, 63)
    (row,) = ask("SELECT * FROM translate_offset('billing', 'nothing', 0)")
    assert row["note"].startswith("no checkpoint of this group")
    assert {value for name, value in row.items() if name != "note"} == {None}


def test_an_offset_has_a_note_where_mirror_maker_wrote_nothing(made: Callable[..., Ask]) -> None:
    (row,) = made(orders=[(b"k", b"v")])("SELECT * FROM translate_offset('billing', 'orders', 0)")
    assert row["note"] == "the lake has no topics of MirrorMaker's checkpoints or offset syncs"
    assert {value for name, value in row.items() if name != "note"} == {None}


def test_heartbeats_and_syncs_are_all_there(ask: Ask) -> None:
    found: dict[str, Any] = {}
    for view in ("mm2_heartbeats", "mm2_checkpoints", "mm2_offset_syncs"):
        (found[view],) = ask(
            f"SELECT count(*) AS n, count(*) FILTER (WHERE is_current) AS current FROM {view}"
        )
    assert found["mm2_heartbeats"] == {"n": 73, "current": 2}
    assert found["mm2_checkpoints"] == {"n": 9, "current": 5}
    assert found["mm2_offset_syncs"] == {"n": 45, "current": 6}


def contents(ask: Ask, topic: str, more: str = "") -> list[dict[str, Any]]:
    rows = ask(f"SELECT * FROM store('{topic}'{more})")
    for row in rows:
        key = json.loads(row["key"])
        row["key"], row["value"] = key["key"] if isinstance(key, dict) else key, json.loads(row["value"])
    return rows


@pytest.mark.parametrize(
    ("topic", "more", "kind", "names"),
    [
        ("shop-stamped-changelog", "", "plain", ("key", "value", "timestamp")),
        ("shop-amount-by-item-store-changelog", "", "plain", ("key", "value", "timestamp")),
        ("shop-sessions-changelog", "", "session-changelog", ("key", "value", "start", "end")),
        (
            "shop-views-tumbling-changelog",
            ", window_ms => 60000",
            "window-changelog",
            ("key", "value", "timestamp", "start", "end"),
        ),
        ("shop-price-history-changelog", ", is_versioned => true", "plain", ("key", "value", "timestamp")),
    ],
)
def test_a_store_has_what_interactive_queries_gave(
    ask: Ask, topic: str, more: str, kind: str, names: tuple[str, ...]
) -> None:
    """Windows and versions that the store had dropped by then are in the changelog still."""
    wanted = Counter(tuple(one[name] for name in names) for one in STORES if one["topic"] == topic)
    found: Counter[tuple[Any, ...]] = Counter()
    for row in contents(ask, topic, more):
        at = datetime.fromisoformat(row["timestamp"]).timestamp()
        row |= {"timestamp": round(at * 1000), "start": row["window_start_ms"], "end": row["window_end_ms"]}
        found[tuple(row[name] for name in names)] += 1
        assert row["kind"] == kind
    assert wanted
    assert not wanted - found
    if kind == "plain" and not more:
        assert found == wanted


def test_a_store_as_it_stood_before(ask: Ask) -> None:
    topic = "shop-stamped-changelog"
    rows = f"FROM records WHERE topic = '{topic}'"
    (first,) = ask(f"SELECT min(timestamp) AS at {rows}")
    assert {row["offset"] for row in contents(ask, topic, ", at => '0'")} == {0}
    assert contents(ask, topic, f", at => '{first['at']}'")
    assert contents(ask, topic, ", at => '2020-01-01T00:00:00Z'") == []
    at_50 = {(row["partition"], row["key"]): row["offset"] for row in contents(ask, topic, ", at => '50'")}
    last = ask(f"SELECT partition, key, max(offset) AS last {rows} AND offset <= 50 GROUP BY ALL")
    assert sorted(at_50.values()) == sorted(row["last"] for row in last)


def test_stores_are_named_with_their_application(ask: Ask) -> None:
    rows = {row["topic"]: row for row in ask("SELECT * FROM streams_stores")}
    assert rows.keys() == {one["topic"] for one in STORES}
    row = rows["shop-stamped-changelog"]
    assert (row["application"], row["store"], row["kind"]) == ("shop", "stamped", "plain")
    assert row["keys"] == len([one for one in STORES if one["topic"] == row["topic"]])


def test_tasks_of_an_application_are_those_of_its_user_data(ask: Ask) -> None:
    """``userdata.jsonl`` has what Streams' classes read of the same records."""
    rows = ask("SELECT * FROM streams_applications WHERE application = 'shop' AND generation = 4")
    members = {row["client_id"]: [r for r in rows if r["client_id"] == row["client_id"]] for row in rows}
    assert {name: len(of) for name, of in members.items()} == {
        "shop-a-StreamThread-1-consumer": 11,
        "shop-b-StreamThread-1-consumer": 11,
    }
    assert {(r["endpoint"], r["metadata_version"]) for r in members["shop-b-StreamThread-1-consumer"]} == {
        ("127.0.0.1:7001", 11)
    }
    of_task = {row["task"]: row["partitions"] for row in members["shop-b-StreamThread-1-consumer"]}
    assert of_task["0_0"] == "orders-0,payments-0"
    assert of_task["2_0"] == "shop-amount-by-item-repartition-0"
    assert of_task.keys() == {f"{subtopology}_0" for subtopology in range(11)}
    found = ask("SELECT DISTINCT task, stores FROM streams_applications WHERE application = 'pulse'")
    stores = {row["task"]: row["stores"] for row in found if row["task"]}
    assert (stores["0_0"], stores["1_0"]) == (None, ["pulse-words-count-changelog"])


def test_other_bytes_under_the_same_names_are_nobodys(made: Callable[..., Ask]) -> None:
    """A topic of such a name is an application's only if more of its records are read than not."""
    text = [(b"connector-a", b"b"), (b"key", b"{}"), (None, b"x")]
    ask = made(
        heartbeats=text,
        my_configs=text,
        connect_status=[(b"status-a", b'{"state":"RUNNING"}')],
        connect_offsets=[(b'["a",1]', b"{}"), (b"[]", None)],
        dlq=text,
        app_store_changelog=[(b"\xff", b"\x00\x01"), (b"a", b"b")],
    )
    (row,) = ask("SELECT application, kind, keys FROM streams_stores")
    assert row == {"application": None, "kind": None, "keys": 2}
    for view in ("mm2_records", "connect_records", "connect_connectors", "connect_states", "dead_letters"):
        assert ask(f"SELECT * FROM {view}") == []


def test_records_that_cannot_be_read_do_not_hide_the_others(made: Callable[..., Ask]) -> None:
    ask = made(
        integration_cfg=[
            (b"connector-a", CONFIG),
            (b"connector-b", CONFIG),
            (b"commit-b", b"{"),
            (b"connector-c", b'{"properties":1}'),
            (b"\xff", b""),
            (b"session-key", b"{}"),
            (b"target-state-a", b'{"state":"PAUSED"}'),
        ]
    )
    rows = ask("SELECT connector, target_state FROM connect_connectors ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [("a", "PAUSED"), ("b", "STARTED")]
    errors = ask("SELECT record_offset, error FROM connect_records WHERE error IS NOT NULL ORDER BY ALL")
    assert [(r["record_offset"], r["error"].split(":")[0]) for r in errors] == [
        (2, "value"),
        (3, "value"),
        (4, "key"),
    ]

"""How far groups are behind: against what Kafka's Admin answers, and lags that were made."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.udfs.files import decode_segment
from kafka_log_lake.udfs.values.internal import topics
from kafka_log_lake.udfs.values.internal.definitions import MessageDefinition, messages
from kafka_log_lake.udfs.values.internal.releases import NEWEST
from tests.support import as_command
from tests.support.logs import batch, data, marker, put
from tests.support.made_views import Ask, asking
from tests.unit.views.test_clusters_in_views import NOW, commit, noted

# Partitions of a broker of 4.2.0, and what its Admin answered just before it stopped
GROUPS = Path(__file__).resolve().parents[2] / "data" / "groups"
PARTS = ("readable", "held", "markers", "aborted", "no_records")


def decoded(source: Path, lake: Path) -> Ask:
    as_command.decode(None, Settings(source=(str(source),), lake=str(lake), typed=False))
    return asking(str(lake))


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    return decoded(GROUPS, tmp_path_factory.mktemp("groups") / "lake")


def answers(kind: bool) -> dict[tuple[str, str, int], Any]:
    """Admin's offsets by group, topic and partition. kind: of share groups, or of the others."""
    found = {}
    for group in json.loads((GROUPS / "moment.json").read_text())["groups"]:
        if (group["type"] == "Share") == kind:
            for place, offsets in (group["offsets"] or {}).items():
                topic, _, partition = place.rpartition("-")
                found[group["group"], topic, int(partition)] = offsets
    return found


def test_offsets_of_groups_of_every_protocol_are_those_that_admin_gives(ask: Ask) -> None:
    rows = ask('SELECT "group", topic, partition, committed_offset FROM group_lag')
    found = {(row["group"], row["topic"], row["partition"]): row["committed_offset"] for row in rows}
    assert found == {place: one["offset"] for place, one in answers(False).items()}


def test_a_lag_is_the_sum_of_its_parts_and_names_the_transaction_that_holds_it(ask: Ask) -> None:
    rows = ask("SELECT * FROM group_lag")
    assert all(row["lag"] == sum(row[part] for part in PARTS) for row in rows)
    assert {row["held_by"] for row in rows if row["held"]} == {"tx-open"}
    assert sum(row["readable"] for row in rows) > 100


def test_share_groups_stand_where_admin_says(ask: Ask) -> None:
    rows = ask('SELECT "group", topic, partition, start_offset, lag FROM share_groups')
    found = {
        (row["group"], row["topic"], row["partition"]): (row["start_offset"], row["lag"]) for row in rows
    }
    expected = {
        place: (None, None) if one is None else (one["startOffset"], one["lag"])
        for place, one in answers(True).items()
    }
    assert found == expected
    (row,) = ask("SELECT * FROM share_groups WHERE topic = 'gamma' AND partition = 0")
    assert (row["available"], row["acknowledged"], row["archived"]) == (1, 1, 2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """From 10 on: 3 aborted, their marker, 2 data, 1 missing, 2 committed, their marker, then one open."""
    root = tmp_path_factory.mktemp("made")
    logs = root / "logs"
    put(
        logs / "t-0",
        10,
        *(data(10, 7, 3), marker(13, 7, commit=False), batch(14, 2), data(17, 8, 2), marker(19, 8)),
        *(data(20, 9, 2), batch(22, 1)),
    )
    put(logs / "t-1", 0, batch(0, 3))
    commits = [
        commit(offset, group)
        for group, offset in ((b"far", 3), (b"near", 15), (b"at-end", 23), (b"past", 40))
    ]
    put(logs / "__consumer_offsets-0", 0, *noted(*((NOW, one) for one in commits)))
    return decoded(logs, root / "lake")


def test_what_a_lag_is_made_of(made: Ask) -> None:
    columns = ("committed_offset", "lag", *PARTS, "deleted", "past_end", "held_by_producer")
    found = {row["group"]: tuple(row[name] for name in columns) for row in made("SELECT * FROM group_lag")}
    assert found == {
        "far": (3, 13, 4, 3, 2, 3, 1, 7, 0, 9),
        "near": (15, 8, 3, 3, 1, 0, 1, 0, 0, 9),
        "at-end": (23, 0, 0, 0, 0, 0, 0, 0, 0, None),
        "past": (40, 0, 0, 0, 0, 0, 0, 0, 17, None),
    }
    notes = {row["group"]: row["note"] or "" for row in made("SELECT * FROM group_lag")}
    assert "below the log start" in notes["far"]
    assert "past the end" in notes["past"]


def test_a_lag_at_a_time_ends_where_a_transaction_was_open_then(made: Ask) -> None:
    def at(group: str) -> tuple[int, ...]:
        (row,) = made(f"SELECT * FROM group_lag_at('{group}', TIMESTAMP '2030-01-01 00:00:00Z')")
        return tuple(row[name] for name in ("lag", "end_offset", "last_stable_offset", "readable_lag"))

    assert at("near") == (8, 23, 20, 5)
    assert at("at-end") == (0, 23, 20, 0)
    assert at("far") == (13, 23, 20, 10)  # a lag begins at the log start


def test_a_record_that_is_not_known_may_be_of_any_group(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    put(logs / "t-0", 0, batch(0, 3))
    unknown = batch(1, 1)  # its key begins with a record type that no release has
    put(logs / "__consumer_offsets-0", 0, *noted((NOW, commit(1))), unknown)
    ask = decoded(logs, tmp_path / "lake")
    rows = ask("SELECT * FROM group_lag")
    assert {(row["group"], row["lag"]) for row in rows} == {(None, None), ("g", 2)}
    assert {row["note"] is not None for row in rows if row["group"] is None} == {True}
    (row,) = ask("SELECT note FROM group_lag_at('g', TIMESTAMP '2030-01-01 00:00:00Z')")
    assert "unread_internal" in row["note"]


def test_topics_that_nobody_uses(ask: Ask) -> None:
    def unused(since: str) -> set[str]:
        return {row["topic"] for row in ask(f"SELECT * FROM unused_topics(TIMESTAMP '{since}')")}

    assert unused("2020-01-01 00:00:00Z") == set()
    everything = unused("2030-01-01 00:00:00Z")
    assert everything >= {"alpha", "beta", "gamma"}
    assert not any(topic.startswith("__") for topic in everything)


# What says that records of a topic were not read, in answers that they could change
DOUBTS = {
    "__consumer_offsets": (
        'SELECT * FROM group_lag WHERE "group" IS NULL',
        'SELECT * FROM group_members WHERE "group" IS NULL AND unread_records > 0',
        "SELECT * FROM group_lag_at('nobody', TIMESTAMP '2030-01-01') WHERE note LIKE '%unread_internal%'",
        "SELECT * FROM unused_topics(TIMESTAMP '2030-01-01') WHERE unread_records > 0",
    ),
    "__share_group_state": ('SELECT * FROM share_groups WHERE "group" IS NULL AND unread_records > 0',),
    "__cluster_metadata": ("SELECT * FROM topic_settings WHERE unread_records > 0",),
    "__transaction_state": ("SELECT * FROM transaction_states WHERE error IS NOT NULL",),
}


@pytest.mark.parametrize("topic", DOUBTS)
def test_a_definition_that_is_taken_away_leaves_a_doubt(
    topic: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = (path / f"{0:020d}.log" for path in GROUPS.glob(f"{topic}-*"))
    batches = (one for log in logs for one in decode_segment(log, columns=("key", "value", "is_control")))
    rows = [row for one in batches for row in one.to_pylist() if not row["is_control"]]
    read = topics.record_reader(topic)
    names = Counter(str(read(row["key"], row["value"]).name) for row in rows)
    for name in Random(topic).sample(sorted(names), min(2, len(names))):

        def without(file: str, release: str = NEWEST, name: str = name) -> tuple[MessageDefinition, ...]:
            return tuple(one for one in messages(file, release) if one.name.removesuffix("Key") != name)

        with monkeypatch.context() as patched:
            patched.setattr(topics, "messages", without)
            topics.record_reader.cache_clear()
            (row,) = ask(f"SELECT unread_records FROM unread_internal WHERE internal_topic = '{topic}'")
            assert row["unread_records"] == names[name], name
            for doubt in DOUBTS[topic]:
                assert ask(doubt), (name, doubt)
    topics.record_reader.cache_clear()
    assert not ask(f"SELECT * FROM unread_internal WHERE internal_topic = '{topic}'")

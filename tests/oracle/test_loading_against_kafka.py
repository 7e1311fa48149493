"""What stops a loader of an internal topic: held to Kafka's own, on logs cleaned and cut at random."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kafka_log_lake.udfs.files import decode_segment
from kafka_log_lake.udfs.values.internal.loading_groups import GroupReplay
from kafka_log_lake.udfs.values.internal.loading_states import (
    ConnectReplay,
    MetadataReplay,
    ShareReplay,
    TransactionReplay,
)
from kafka_log_lake.udfs.values.internal.releases import LOADERS
from kafka_log_lake.udfs.values.internal.topics import record_reader
from tests.kafka import broker, state_loader
from tests.kafka.state_loader import Log

_CASES = 150
_DATA = Path(__file__).resolve().parents[1] / "data"
_BOTH = pytest.mark.parametrize("release", [broker.OLDEST, broker.NEWEST])
Change = Callable[[Log, Random], Log]


def _log(path: Path) -> Log:
    columns = ("key", "value", "is_control")
    rows = (
        row for batch in decode_segment(path / f"{0:020d}.log", columns=columns) for row in batch.to_pylist()
    )
    return [(row["key"], row["value"]) for row in rows if not row["is_control"]]


def _cleaned(log: Log, random: Random) -> Log:
    """A log of which a stretch was compacted, with or without its tombstones; cut anywhere."""
    first = random.choice([0, random.randrange(len(log))])
    end = random.randrange(first, len(log)) + 1
    last = {log[i][0]: i for i in range(first, end)}
    drops = random.random() < 0.6
    kept = [
        record
        for i, record in enumerate(log)
        if not first <= i < end or (last[record[0]] == i and not (drops and record[1] is None))
    ]
    return kept[: random.choice([len(kept), random.randrange(max(1, len(kept))) + 1])]


def _lossy(log: Log, random: Random) -> Log:
    """A log without a stretch of its records, as damage leaves it."""
    first = random.randrange(len(log))
    return [*log[:first], *log[first + random.randrange(1, 30) :]]


def _flipped(log: Log, random: Random) -> Log:
    """A log with a record whose value has one other byte, is cut, is null, or is another version's."""
    at = random.randrange(len(log))
    key, value = log[at]
    if value is None:
        return log
    place = random.randrange(len(value))
    other = random.choice(
        [
            value[:place] + bytes([random.randrange(256)]) + value[place + 1 :],
            value[:place],
            None,
            b"\0\x63" + value[2:],
        ]
    )
    return [*log[:at], (key, other), *log[at + 1 :]]


def _first_refused(topic: str, log: Log, replay: object, release: str = broker.NEWEST) -> int | None:
    read = record_reader(topic, release)
    found = (i for i, (key, value) in enumerate(log) if replay.add(read(key, value)) is not None)  # type: ignore[attr-defined]
    return next(found, None)


@pytest.mark.parametrize(("release", "loader"), [(broker.OLDEST, LOADERS[0]), (broker.NEWEST, LOADERS[-1])])
def test_the_record_that_stops_a_coordinator_is_the_one_that_stops_kafkas(release: str, loader: str) -> None:
    random, topic = Random(59), "__consumer_offsets"
    logs = [_log(_DATA / "groups" / f"{topic}-{partition}") for partition in (0, 1)]
    cases = [*logs, *(_cleaned(random.choice(logs), random) for _ in range(_CASES))]
    theirs = state_loader.refused(topic, cases, release)
    assert [_first_refused(topic, case, GroupReplay(loader)) for case in cases] == theirs
    assert theirs[:2] == [None, None]  # the logs as the broker left them
    assert sum(at is not None for at in theirs) > 5


@_BOTH
def test_transactions(release: str) -> None:
    random, topic = Random(59), "__transaction_state"
    logs = [_log(_DATA / "groups" / f"{topic}-0"), _log(_DATA / "shop" / f"{topic}-0")]
    cases = [*logs, *(_cleaned(_flipped(random.choice(logs), random), random) for _ in range(_CASES))]
    theirs = state_loader.refused(topic, cases, release)
    ours = [_first_refused(topic, case, TransactionReplay(release), release) for case in cases]
    assert ours == theirs
    assert theirs[:2] == [None, None]
    assert 10 < sum(at is not None for at in theirs) < _CASES


@_BOTH
def test_share_groups(release: str) -> None:
    random, topic = Random(59), "__share_group_state"
    logs = [_log(_DATA / "groups" / f"{topic}-{partition}") for partition in (0, 1)]
    changes = (_flipped, _cleaned, _lossy)
    cases = [*logs, *(random.choice(changes)(random.choice(logs), random) for _ in range(_CASES))]
    theirs = state_loader.refused(topic, cases, release)
    assert [_first_refused(topic, case, ShareReplay(release), release) for case in cases] == theirs
    assert theirs[:2] == [None, None]
    assert sum(at is not None for at in theirs) > 5


@_BOTH
def test_the_metadata_log(release: str) -> None:
    random, topic = Random(59), "__cluster_metadata"
    logs = [_log(_DATA / folder / f"{topic}-0") for folder in ("groups", "shop", "kraft/node-1")]
    cases = [*logs, *(_lossy(random.choice(logs), random) for _ in range(_CASES))]
    theirs = state_loader.refused(topic, cases, release)
    ours = [_first_refused(topic, case, MetadataReplay(release), release) for case in cases]
    assert ours == theirs
    assert theirs[:3] == [None] * 3
    assert sum(at is not None for at in theirs) > 20


def test_configurations_of_connect() -> None:
    random = Random(59)
    log = _log(_DATA / "app_views" / "connect" / "connect-configs-0")
    cases = [log, *(random.choice([_cleaned, _lossy])(log, random) for _ in range(_CASES))]
    theirs = [
        answer["connectors"] for answer in state_loader.answers("connect-configs", cases, broker.NEWEST)
    ]
    for case, expected in zip(cases, theirs, strict=True):
        replay = ConnectReplay()
        for offset, (key, value) in enumerate(case):
            replay.add(offset, key, value)
        counts = {name: replay.tasks.get(name, 0) for name in replay.connectors}
        assert {n: -1 if n in replay.inconsistent else c for n, c in counts.items()} == expected
    assert any(-1 in expected.values() for expected in theirs)

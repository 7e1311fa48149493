"""What stops a group coordinator that loads its log: held to Kafka's own, on logs cleaned at random."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kafka_log_lake.udfs.files import decode_segment
from kafka_log_lake.udfs.values.internal.loading import GroupReplay
from kafka_log_lake.udfs.values.internal.topics import record_reader
from tests.kafka import broker, group_loader
from tests.kafka.group_loader import Log

_CASES = 150
# Groups of every protocol, upgraded and downgraded online, deleted and made again
_GROUPS = Path(__file__).resolve().parents[1] / "data" / "groups"


def _log(partition: int) -> Log:
    columns = ("key", "value", "is_control")
    path = _GROUPS / f"__consumer_offsets-{partition}" / f"{0:020d}.log"
    rows = (row for batch in decode_segment(path, columns=columns) for row in batch.to_pylist())
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
    return kept[: random.choice([len(kept), random.randrange(len(kept)) + 1])]


def _first_refused(log: Log, is_strict: bool) -> int | None:
    read, replay = record_reader("__consumer_offsets"), GroupReplay(is_strict)
    found = (i for i, (key, value) in enumerate(log) if replay.add(read(key, value)) is not None)
    return next(found, None)


@pytest.mark.parametrize(("release", "is_strict"), [(broker.OLDEST, True), (broker.NEWEST, False)])
def test_the_record_that_stops_a_coordinator_is_the_one_that_stops_kafkas(
    release: str, is_strict: bool
) -> None:
    random = Random(59)
    logs = [_log(partition) for partition in (0, 1)]
    cases = [*logs, *(_cleaned(random.choice(logs), random) for _ in range(_CASES))]
    theirs = group_loader.refused(cases, release)
    assert [_first_refused(case, is_strict) for case in cases] == theirs
    assert theirs[:2] == [None, None]  # the logs as the broker left them
    assert sum(at is not None for at in theirs) > 5

"""Records of internal topics as Kafka's own tool prints them: made at random, as Kafka writes them.

The jars are those of the broker (``tests.kafka.broker``).
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_log_lake.pipelines.dump_log import command as dump_log
from kafka_log_lake.pipelines.dump_log.payloads import TOPIC_OF
from kafka_log_lake.udfs.format.layout import CONTROL_TYPES
from tests.kafka import messages as kafka
from tests.kafka.broker import NEWEST, OLDEST, broker_classpath
from tests.kafka.messages import Filled
from tests.support.java import quick_java
from tests.support.kafka_messages import filled, versioned
from tests.support.segment_maker import CONTROL, Batch, Record

_FILLINGS = 4
_CONTROL = {
    "LEADER_CHANGE": "LeaderChangeMessage",
    "SNAPSHOT_HEADER": "SnapshotHeaderRecord",
    "SNAPSHOT_FOOTER": "SnapshotFooterRecord",
    "KRAFT_VERSION": "KRaftVersionRecord",
    "KRAFT_VOTERS": "VotersRecord",
}


def _stored(file: str) -> list[tuple[Any, Filled, bytes]]:
    """Messages of a file of definitions, filled at random, as Kafka writes them."""
    random = Random(file)
    requested = [
        (message, Filled(file, message.name, version, fields))
        for message, version in versioned(file)
        for fields in [None, *_fillings(message, version, random)]
    ]
    answers = kafka.written(one for _, one in requested)
    return [(message, one, data) for (message, one), (data, _) in zip(requested, answers, strict=True)]


def _fillings(message: Any, version: int, random: Random) -> list[dict[str, Any]]:
    made = [filled(message.fields, version, random) for _ in range(_FILLINGS)]
    # States and offsets that Kafka's classes of remote log metadata take, or nearly
    limits = {"remoteLogSegmentState": 4, "remotePartitionDeleteState": 3, "startOffset": 2, "endOffset": 2}
    near = [filled(message.fields, version, random) for _ in range(3 * _FILLINGS)]
    near = [f | {name: random.randint(-1, end) for name, end in limits.items() if name in f} for f in near]
    return [*made, *near] if any(name in limits for name in made[0]) else made


def _records(topic: str) -> list[Record]:
    stored = _stored(topic.strip("_"))
    if topic in ("__cluster_metadata", "__remote_log_metadata"):
        return [Record(None, bytes([1, m.api_key, one.version]) + data) for m, one, data in stored]
    keys = {
        m.api_key: m.api_key.to_bytes(2, "big") + data for m, _, data in stored if m.kind == "coordinator-key"
    }
    records = []
    for message, one, data in stored:
        if message.kind == "coordinator-value":
            key = keys[message.api_key]
            records += [Record(key, one.version.to_bytes(2, "big") + data), Record(key, None)]
    return [*records, Record(b"\x7f\xff", b"\0\0")]


# By release, the class of Kafka's tool
_TOOLS = {OLDEST: "kafka.tools.DumpLogSegments", NEWEST: "org.apache.kafka.tools.DumpLogSegments"}


def _ask_kafka(path: Path, flag: str, code: int = 0, release: str = NEWEST) -> bytes:
    classes = ["-cp", broker_classpath(release), _TOOLS[release]]
    command = [*quick_java(), "-Dfile.encoding=UTF-8", *classes]
    done = subprocess.run(
        [*command, "--files", str(path), flag],
        env={**os.environ, "JAVA_TOOL_OPTIONS": ""},
        capture_output=True,
        check=False,
    )
    assert done.returncode == code, done.stderr.decode()[-2000:]
    return done.stdout


@pytest.mark.parametrize("release", _TOOLS)
@pytest.mark.parametrize(("option", "topic"), TOPIC_OF.items(), ids=TOPIC_OF.values())
def test_records_of_internal_topics(
    option: str, topic: str, release: str, tmp_path: Path, capsysbinary: Any
) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(Batch(_records(topic)).encode())
    flag = f"--{option.replace('_', '-')}"
    assert dump_log.main([str(path), flag, "--as", release]) == 0
    ours = capsysbinary.readouterr().out.split(b"\n")
    theirs = _ask_kafka(path, flag, release=release).split(b"\n")
    assert len(ours) == len(theirs)
    for own, expected in zip(ours, theirs, strict=True):
        if b"Error at" in expected and topic != "__remote_log_metadata":  # in words of Java's readers
            assert b"Error at" in own
        else:
            assert own == expected


def test_control_records(tmp_path: Path, capsysbinary: Any) -> None:
    codes = {name: CONTROL_TYPES.index(kind) for kind, name in _CONTROL.items()}
    records = [
        Record(b"\0\0" + codes[one.name].to_bytes(2, "big"), data)
        for _, one, data in _stored("control_records")
        if one.version == 0 and (one.fields is None or one.fields["version"] == 0)
    ]
    assert len(records) >= len(codes)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(Batch(records, flags=CONTROL).encode())
    assert dump_log.main([str(path), "--print-data-log"]) == 0
    assert capsysbinary.readouterr().out == _ask_kafka(path, "--print-data-log")


@pytest.mark.parametrize("after", [-1_000_000, 0, 1])
def test_a_time_index_whose_index_leads_to_the_end_of_the_log(
    after: int, tmp_path: Path, capsysbinary: Any
) -> None:
    log, index, times = (tmp_path / f"{0:020d}{kind}" for kind in (".log", ".index", ".timeindex"))
    log.write_bytes(Batch([Record(value=b"v"), Record(value=b"w")]).encode())
    index.write_bytes(struct.pack(">ii", 1, log.stat().st_size + after))
    times.write_bytes(struct.pack(">qi", 1_700_000_000_000, 1))
    code = dump_log.main([str(times)])
    assert code == (after != 0)
    assert capsysbinary.readouterr().out == _ask_kafka(times, "--print-data-log", code)

"""``spark.readStream.format("kafka_log")``: every record once, over triggers, restarts and changing files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.dataframes.options import Options
from kafka_log_lake.pipelines.dataframes.slices import Span, list_requested
from kafka_log_lake.pipelines.dataframes.source import sent_source
from kafka_log_lake.pipelines.dataframes.stream import StreamPosition, advance, spans
from tests.support.drawn import first
from tests.support.logs import put
from tests.support.segment_maker import Batch, Record

pytestmark = pytest.mark.sampled

SCHEMA = "topic string, partition int, offset bigint, value binary"


def batch(base: int) -> bytes:
    """Three records; all batches have the same size."""
    return Batch((Record(value=b"v"),) * 3, base_offset=base).encode()


def batches(base: int, count: int) -> list[bytes]:
    return [batch(base + 3 * i) for i in range(count)]


def test_the_progress_says_how_far_a_stream_is_behind(logs: Path) -> None:
    from kafka_log_lake.pipelines.dataframes.source import requested
    from kafka_log_lake.pipelines.dataframes.stream import KafkaLogStreamReader

    size = len(batch(0))
    reader = KafkaLogStreamReader(*requested({"path": str(logs), "maxBytesPerTrigger": str(12 * size)}, None))
    place: dict[str, Any] = reader.initialOffset()
    behind = []
    for _ in range(5):
        place = reader.latestOffset(place, reader.getDefaultReadLimit())
        latest = reader.reportLatestOffset() or {}
        behind.append(sum(one["backlog_bytes"] for one in latest.values()) // size)
    assert behind == [14, 2, 0, 0, 0]


class Stream:
    """A stream into Parquet files, with a checkpoint: each ``run`` reads what there is, then stops."""

    def __init__(self, spark: SparkSession, logs: Path, home: Path, **options: Any) -> None:
        self.spark, self.logs, self.home, self.options = spark, logs, home, options

    def _started(self, **trigger: Any) -> Any:
        reader = self.spark.readStream.format("kafka_log").schema(SCHEMA).options(**self.options)
        writer = reader.load(str(self.logs)).writeStream.format("parquet").trigger(**trigger)
        return writer.option("checkpointLocation", f"{self.home}/checkpoint").start(f"{self.home}/rows")

    def run(self) -> int:
        """How many micro-batches had rows."""
        query = self._started(availableNow=True)
        query.awaitTermination(120)
        return sum(progress.numInputRows > 0 for progress in query.recentProgress)

    def follow(self) -> Any:
        return self._started(processingTime="100 milliseconds")

    def rows(self) -> list[tuple[str, int]]:
        found = self.spark.read.schema(SCHEMA).parquet(f"{self.home}/rows").collect()
        return sorted((f"{row.topic}-{row.partition}", row.offset) for row in found)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """a-0: two segments of 30 offsets, 3 a batch; b-3: one of 6."""
    for base in (0, 30):
        put(tmp_path / "logs" / "a-0", base, *batches(base, 10))
    put(tmp_path / "logs" / "b-3", 0, *batches(0, 2))
    return tmp_path / "logs"


def expected(**ends: int) -> list[tuple[str, int]]:
    return sorted((name.replace("_", "-"), offset) for name, end in ends.items() for offset in range(end))


def wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_every_record_comes_once_over_many_triggers_and_restarts(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    stream = Stream(spark, logs, tmp_path, maxBytesPerTrigger=400, sliceBytes=300)
    assert stream.run() > 3
    assert stream.rows() == expected(a_0=60, b_3=6)
    planned = len(list((tmp_path / "checkpoint" / "offsets").iterdir()))
    assert stream.run() == 0
    assert len(list((tmp_path / "checkpoint" / "offsets").iterdir())) == planned
    active = logs / "a-0" / f"{30:020d}.log"
    append(active, batch(60) + batch(63)[:-5])  # the last one is torn
    assert stream.run() == 1
    assert stream.rows() == expected(a_0=63, b_3=6)
    append(active, batch(63)[-5:])
    put(logs / "a-0", 66, *batches(66, 3))
    put(logs / "c-1", 0, batch(0))
    stream.run()
    assert stream.rows() == expected(a_0=75, b_3=6, c_1=3)


def test_a_running_stream_takes_what_is_appended(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    stream = Stream(spark, logs, tmp_path)
    query = stream.follow()
    try:
        wait(lambda: query.lastProgress is not None and len(stream.rows()) == 66)
        append(logs / "a-0" / f"{30:020d}.log", batch(60))
        wait(lambda: len(stream.rows()) == 69)
        put(logs / "a-0", 63, batch(63))
        (logs / "a-0" / f"{0:020d}.log").unlink()  # retention
        wait(lambda: len(stream.rows()) == 72)
        assert stream.rows() == expected(a_0=66, b_3=6)
    finally:
        query.stop()


def test_a_micro_batch_that_was_not_committed_is_read_again_as_it_was_planned(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    """As if a kill came after the plan of the second micro-batch: its offsets are kept, its rows are not."""
    stream = Stream(spark, logs, tmp_path)
    stream.run()
    active = logs / "a-0" / f"{30:020d}.log"
    append(active, batch(60))
    stream.run()
    for done in (
        "checkpoint/commits/1",
        "checkpoint/commits/.1.crc",
        "rows/_spark_metadata/1",
        "rows/_spark_metadata/.1.crc",
    ):
        (tmp_path / done).unlink()
    append(active, batch(63))
    put(logs / "a-0", 66, batch(66))
    assert stream.run() == 2
    assert stream.rows() == expected(a_0=69, b_3=6)


def test_a_rewritten_segment_is_reported_and_its_rows_stay(
    spark: SparkSession, logs: Path, tmp_path: Path
) -> None:
    stream = Stream(spark, logs, tmp_path)
    stream.run()
    compacted = [batch(33), *batches(48, 4), *batches(60, 2)]  # the cleaner kept some of it, more came
    put(logs / "a-0", 30, *compacted)
    with pytest.raises(StreamingQueryException, match="was rewritten: the stream goes on at offset 60"):
        Stream(spark, logs, tmp_path, mode="failfast").run()
    stream.run()
    assert stream.rows() == expected(a_0=66, b_3=6)


# --- How far a folder is read ---


def folder(logs: Path, name: str = "a-0") -> list[Any]:
    return list_requested(Options(path=(str(logs / name),)))


def read(logs: Path, before: StreamPosition | None, after: StreamPosition) -> list[tuple[int, int, int]]:
    found = spans("a-0", folder(logs), before, after)
    return [(span.segment.file_base_offset, span.start, span.stop) for span in found]


SIZE = len(batch(0))  # of each batch in ``logs``


def test_a_limit_is_kept_and_one_batch_is_always_read(logs: Path) -> None:
    place, seen = None, []
    for limit in (1, 3 * SIZE, 3 * SIZE + 1, 8 * SIZE, 100 * SIZE, 1):
        after = advance(folder(logs), place, limit)
        seen += [read(logs, place, after)] if after is not place else []
        place = after
    assert seen == [
        [(0, 0, SIZE)],
        [(0, SIZE, 4 * SIZE)],
        [(0, 4 * SIZE, 7 * SIZE)],
        [(0, 7 * SIZE, 10 * SIZE), (30, 0, 5 * SIZE)],
        [(30, 5 * SIZE, 10 * SIZE)],
    ]
    assert place is not None
    assert place.next_offset == 60


def test_a_file_server_that_is_gone_ends_the_stream_in_one_line(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = folder(logs)

    def fails(*_: object) -> int:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "preadv", fails)
    with pytest.raises(UserError, match=r"a-0/0{18}30\.log: .*[Ss]tale file handle"):
        advance(segments, None)


def test_damage_waits_for_a_successor_and_the_log_says_so_once(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    active = logs / "a-0" / f"{30:020d}.log"
    append(active, batch(60)[:40])
    advance(folder(logs), None)
    assert not caplog.messages, "a torn batch is what a broker is writing"
    active.write_bytes(active.read_bytes()[: 10 * SIZE])
    append(active, b"no batch" + batch(60))
    first = advance(folder(logs), None)
    assert advance(folder(logs), None) == first
    (message,) = caplog.messages
    assert f"{30:020d}.log is damaged at byte {10 * SIZE:,}: the stream waits there" in message
    assert (first.segment, first.position) == (30, 10 * SIZE)
    assert advance(folder(logs), first) is first
    put(logs / "a-0", 63, batch(63))
    after = advance(folder(logs), first)
    assert read(logs, first, after) == [(30, 10 * SIZE, 11 * SIZE + 8), (63, 0, SIZE)]
    limited = advance(folder(logs), first, limit=1)
    assert read(logs, first, limited) == [(30, 10 * SIZE, 11 * SIZE + 8)]


def test_deleted_segments_are_tolerated(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = advance(folder(logs), None)
    put(logs / "a-0", 60, batch(60))
    for base in (0, 30):
        (logs / "a-0" / f"{base:020d}.log").unlink()
    after = advance(folder(logs), place)
    assert read(logs, place, after) == [(60, 0, SIZE)]
    assert caplog.messages == []  # all of them had been read
    put(logs / "a-0", 90, batch(90))
    (logs / "a-0" / f"{60:020d}.log").unlink()
    last = advance(folder(logs), place)
    assert read(logs, place, last) == [(90, 0, SIZE)]
    assert "is gone: the stream goes on at offset 90, not at 60" in caplog.text


def test_a_planned_micro_batch_is_found_by_offset_in_other_files(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log cleaner came between a micro-batch's plan and its second reading."""
    before = advance(folder(logs), None, limit=3 * SIZE)
    after = advance(folder(logs), before, limit=5 * SIZE)
    assert (before.next_offset, after.next_offset) == (9, 24)
    put(logs / "a-0", 0, batch(3), batch(12), batch(21), batch(27))
    assert read(logs, before, after) == [(0, SIZE, 3 * SIZE)]
    assert "has other files than when this micro-batch was planned" in caplog.text
    assert read(logs, after, advance(folder(logs), after)) == [(0, 3 * SIZE, 4 * SIZE), (30, 0, 10 * SIZE)]
    with pytest.raises(UserError, match="other files"):
        spans("a-0", folder(logs), before, after, failfast=True)


def test_a_planned_micro_batch_reads_what_retention_left(logs: Path) -> None:
    place = advance(folder(logs), None)
    (logs / "a-0" / f"{0:020d}.log").unlink()
    assert read(logs, None, place) == [(30, 0, 10 * SIZE)]
    assert spans("a-0", [], None, place) == []


def test_a_merged_segment_is_found_by_offset(logs: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = advance(folder(logs), None, limit=12 * SIZE)
    assert (place.segment, place.next_offset) == (30, 36)
    put(logs / "a-0", 0, batch(0), batch(33), batch(36), batch(57))
    (logs / "a-0" / f"{30:020d}.log").unlink()
    put(logs / "a-0", 60, batch(60))
    after = advance(folder(logs), place)
    assert read(logs, place, after) == [(0, 2 * SIZE, 4 * SIZE), (60, 0, SIZE)]
    assert "was merged into another segment: the stream goes on at offset 36" in caplog.text


def test_a_truncated_log_ends_the_stream(logs: Path) -> None:
    place = advance(folder(logs), None)
    put(logs / "a-0", 30, *batches(30, 5))
    with pytest.raises(UserError, match="ends before offset 45, and the stream had read up to 60: "):
        advance(folder(logs), place)


def test_a_topic_that_was_made_anew_is_read_from_its_start(
    logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = logs / "a-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    place = advance(folder(logs), None)
    metadata.write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBBB\n")
    (logs / "a-0" / f"{30:020d}.log").unlink()
    put(logs / "a-0", 0, batch(0))
    after = advance(folder(logs), place)
    assert read(logs, place, after) == [(0, 0, SIZE)]
    assert "another topic id" in caplog.text


class Broker:
    """Writes one log: batches in pieces of any size, new segments, and deletes or compacts old ones."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder, self.random, self.next, self.unwritten = folder, random, 0, b""
        self.path = put(folder, 0)

    def write(self) -> None:
        for _ in range(self.random.randint(0, 4)):
            self.unwritten += batch(self.next)
            self.next += 3
        size = self.random.randint(0, len(self.unwritten))
        append(self.path, self.unwritten[:size])
        self.unwritten = self.unwritten[size:]

    def flush(self) -> None:
        append(self.path, self.unwritten)
        self.unwritten = b""

    def roll(self) -> None:
        self.flush()
        if self.path.stat().st_size:
            self.path = put(self.folder, self.next)

    def compact(self) -> None:
        """Keeps some batches of an old segment."""
        old = sorted(path for path in self.folder.glob("*.log") if path != self.path)
        if old:
            path = self.random.choice(old)
            data = path.read_bytes()
            kept = [data[i : i + SIZE] for i in range(0, len(data), SIZE) if self.random.random() < 0.8]
            path.unlink()
            put(self.folder, int(path.stem), *kept)


@pytest.mark.parametrize("seed", first(4, range(12)))
@pytest.mark.parametrize("compacts", [False, True])
def test_whatever_a_broker_does_no_offset_comes_twice(logs: Path, seed: int, compacts: bool) -> None:
    """Without compaction each comes, in order; with it all that were there when the stream came by."""
    random = Random(seed)
    broker = Broker(logs / "x-0", random)
    place, got, gone = None, list[int](), set[int]()
    for _ in range(60):
        step = random.choice([broker.write, broker.write, broker.roll, broker.compact])
        if step != broker.compact or compacts:
            before = _offsets_on_disk(logs)
            step()
            gone |= before - _offsets_on_disk(logs)
        limit = random.choice([1, 1, 3 * SIZE, 9 * SIZE])  # it often lags behind
        after = advance(folder(logs, "x-0"), place, limit)
        if after is not place:
            found = spans("x-0", folder(logs, "x-0"), place, after)
            got += [offset for span in found for offset in _offsets(span)]
        place = after
    broker.flush()
    after = advance(folder(logs, "x-0"), place)
    got += [o for span in spans("x-0", folder(logs, "x-0"), place, after) for o in _offsets(span)]
    assert got == sorted(set(got))
    assert set(range(broker.next)) - gone <= set(got)


def _offsets(span: Span) -> list[int]:
    data = Path(span.segment.segment.removeprefix("file://")).read_bytes()[span.start : span.stop]
    bases = [int.from_bytes(data[i : i + 8], "big") for i in range(0, len(data), SIZE)]
    return [base + i for base in bases for i in range(3)]


def _offsets_on_disk(logs: Path) -> set[int]:
    found = [Span(one, 0, one.length - one.length % SIZE) for one in folder(logs, "x-0")]
    return {offset for span in found for offset in _offsets(span)}


def test_a_server_without_the_project_says_what_a_stream_needs(tmp_path: Path) -> None:
    """As a process of a server of Spark Connect, which got the class from a client and nothing else."""
    sent = cloudpickle.dumps(sent_source()({"path": str(tmp_path)}))
    code = (
        "import sys; sys.modules['kafka_log_lake'] = None; from pyspark import cloudpickle; "
        "cloudpickle.load(sys.stdin.buffer).streamReader(None)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=sent, cwd=tmp_path, env=environment, capture_output=True)
    said = done.stderr.decode().splitlines()[-1]
    assert said.startswith(
        "RuntimeError: streams of kafka_log over Spark Connect need the wheel of kafka-log-lake"
    )

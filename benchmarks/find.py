"""``find`` compared with ``cat | wc -c`` and ripgrep over the same files, and with a consumer and grep;
``dump`` compared with Kafka's own tool.

Each is a process as a person starts it; Python keeps bytecode. ``find`` looks for a text that no record
holds: all is read. cat and ripgrep check nothing; ``find`` checks every checksum, and knows records.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.harness import Pairs, Row, Scale, paired, part_main, say
from benchmarks.kafka import resolve
from benchmarks.segments import MIB, PLAIN, WORK, Kind, batches, partition_dir, segment, size_of
from kafka_log_lake.pipelines.cli.java import java_command
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.storage.byte_source import FileSource
from tests.kafka.broker import broker, broker_classpath, client

_ABSENT = "no record holds this text"
_PARTITIONS = 8
_ZSTD = replace(PLAIN, codec="zstd")
_TOOLS = "org.apache.kafka:kafka-tools:4.1.0"
_PACKAGE = "org.apache.kafka.tools"
_GREP = ("sh", "-c", 'key="$1"; shift; "$@" | grep -a -m1 "$key"', "sh")
_COMMAND = (sys.executable, "-m", "pipelines.find")


def _wall(*command: object) -> float:
    began = time.perf_counter()
    environment = {name: one for name, one in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    quiet = subprocess.DEVNULL
    subprocess.run(list(map(str, command)), stdout=quiet, stderr=quiet, check=False, env=environment)
    return time.perf_counter() - began


def _processor(*command: object) -> float:
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    _wall(*command)
    return used() - before


def _find(path: Path | str, measure: Callable[..., float], cores: int) -> float:
    return measure(*_COMMAND, path, "--value-contains", _ABSENT, "--cores", cores)


def measure(scale: Scale) -> list[Row]:
    return list(_rows(scale))


def _rows(scale: Scale) -> Iterator[Row]:
    yield from _plain(scale)
    yield _compressed(scale)
    yield from _hit(scale)
    yield _dump(scale, PLAIN, scale.job_bytes, "dump")
    yield _dump(scale, _ZSTD, scale.job_bytes, "dump, zstd")


def _tiny(kind: Kind, size: int) -> Path:
    """A log of one batch: what a search takes without bytes to search."""
    tiny = WORK / "tiny-0"
    tiny.mkdir(parents=True, exist_ok=True)
    content = segment(kind, size).read_bytes()
    (tiny / f"{0:020d}.log").write_bytes(content[: batches(content)[0][1]])
    _find(tiny, _wall, 1)  # compiles kernels where they are new
    return tiny


def _plain(scale: Scale) -> Iterator[Row]:
    tiny = _tiny(PLAIN, 2 * scale.kernel_bytes)
    logs = partition_dir("find", PLAIN, _PARTITIONS, 2 * scale.kernel_bytes)
    size, files = size_of(logs), [str(path) for path in sorted(logs.rglob("*.log"))]
    say(f"  find in {size // MIB} MiB")
    pairs = paired(
        scale.rounds,
        {
            "find": partial(_find, logs, _wall, 2),
            "start": partial(_find, tiny, _wall, 1),
            "cat": partial(_wall, "sh", "-c", 'cat "$@" | wc -c', "sh", *files),
        },
    )
    _without_start(pairs)
    yield Row(
        *(
            "find a value, two processes",
            "s",
            pairs.spread("search"),
            "cat FILES to wc",
            pairs.spread("cat"),
        ),
        ratio=pairs.ratio("search", "cat"),
        goal=0.5,
        at_least=False,
        note=f"{size // MIB} MiB, without start, which takes {pairs.spread('start').text()} s",
    )
    if shutil.which("rg"):
        pairs = paired(
            scale.rounds,
            {
                "find": partial(_find, logs, _processor, 1),
                "start": partial(_find, tiny, _processor, 1),
                "rg": partial(_processor, "rg", "-a", "--count", _ABSENT, *files),
            },
        )
        _without_start(pairs)
        yield Row(
            *("find a value", "s", pairs.spread("search"), "rg --count", pairs.spread("rg")),
            ratio=pairs.ratio("search", "rg"),
            goal=2.0,
            at_least=False,
            note=f"{size // MIB} MiB, processor time without start",
        )


def _without_start(pairs: Pairs) -> None:
    both = zip(pairs.taken["find"], pairs.taken["start"], strict=True)
    pairs.taken["search"] = [whole - start for whole, start in both]


def _compressed(scale: Scale) -> Row:
    """Next to a decoder that builds the keys alone."""
    tiny = _tiny(_ZSTD, scale.kernel_bytes)  # the library of zstd is part of the start
    logs = partition_dir("find", _ZSTD, _PARTITIONS, scale.kernel_bytes)
    say(f"  find in {size_of(logs) // MIB} MiB of zstd")
    pairs = paired(
        scale.rounds,
        {
            "find": partial(_processor, *_COMMAND, logs, "--key", _ABSENT, "--cores", 1),
            "start": partial(_processor, *_COMMAND, tiny, "--key", _ABSENT, "--cores", 1),
            "keys": partial(_keys, sorted(logs.rglob("*.log"))),
        },
    )
    _without_start(pairs)
    return Row(
        *("find a key, zstd", "s", pairs.spread("search")),
        *("the decoder, keys alone", pairs.spread("keys")),
        ratio=pairs.ratio("search", "keys"),
        goal=1.1,
        at_least=False,
        note=f"{size_of(logs) // MIB} MiB, processor time without start",
    )


def _keys(paths: list[Path]) -> float:
    began = time.process_time()
    for path in paths:
        source = FileSource(str(path))
        for _ in SegmentDecoder(source, Range(source.size()), columns=("key",), content_crc=False):
            pass
        source.close()
    return time.process_time() - began


def _hit(scale: Scale) -> Iterator[Row]:
    """The last record of a topic by its key: in files, from a live broker, and in Kafka's dump of files."""
    folder = WORK / "find-broker"
    shutil.rmtree(folder, ignore_errors=True)
    tools = os.pathsep.join([*map(str, resolve(_TOOLS)), broker_classpath()])
    java = (java_command() or "java", "-cp", tools)
    records, key = scale.topic_bytes * 4 // 1024, "the-key"
    say(f"  filling a topic with {records:,} records of 1 KiB")
    with broker(folder, {"num.partitions": str(_PARTITIONS), "log.retention.ms": "-1"}) as running:
        to = ("--bootstrap-server", running.address, "--topic", "t")
        with client(running.address) as admin:
            admin.create("t", _PARTITIONS)
        fill = ("--topic", "t", "--num-records", records, "--record-size", 1024, "--throughput", -1)
        _run(
            *java,
            f"{_PACKAGE}.ProducerPerformance",
            *fill,
            "--producer-props",
            f"bootstrap.servers={running.address}",
        )
        one = f"{key}\tfound\n"
        _run(*java, f"{_PACKAGE}.ConsoleProducer", *to, "--property", "parse.key=true", content=one)
        files = ",".join(map(str, sorted(running.logs.glob("t-*/*.log"))))
        all_ = ("--from-beginning", "--max-messages", records + 1, "--property", "print.key=true")
        consume = (*java, f"{_PACKAGE}.consumer.ConsoleConsumer", *to, *all_)
        dump = (*java, "kafka.tools.DumpLogSegments", "--print-data-log", "--files", files)
        pairs = paired(
            scale.job_rounds,
            {
                "find": partial(_wall, *_COMMAND, running.logs, "--topics", "t", "--key", key, "--limit", 1),
                "consumer": partial(_wall, *_GREP, key, *consume),
                "dump": partial(_wall, *_GREP, key, *dump),
            },
        )
    shutil.rmtree(folder)
    for peer, name in (("consumer", "console consumer | grep"), ("dump", "DumpLogSegments | grep")):
        yield Row(
            *(f"find a key, {peer}", "s", pairs.spread("find"), name, pairs.spread(peer)),
            ratio=pairs.ratio(peer, "find"),
            goal=20.0,
            note=f"{_PARTITIONS} partitions, {records / 1024:,.0f} MiB, with start",
        )


def _run(*command: object, content: str = "") -> None:
    subprocess.run(list(map(str, command)), input=content, capture_output=True, text=True, check=True)


def _dump(scale: Scale, kind: Kind, size: int, name: str) -> Row:
    """Next to a JVM without options, as the tool's script starts it but for the size of the heap."""
    path = segment(kind, size)
    named = path.with_suffix("") / f"{0:020d}.log"
    named.parent.mkdir(exist_ok=True)
    if not named.exists():
        os.link(path, named)
    say(f"  dump of {path.stat().st_size // MIB} MiB")
    java = (java_command() or "java", "-cp", broker_classpath(), "kafka.tools.DumpLogSegments")
    dump = (sys.executable, "-m", "pipelines.dump_log", "--print-data-log", named)
    pairs = paired(
        scale.job_rounds,
        {
            "dump": partial(_processor, *dump),
            "kafka": partial(_processor, *java, "--print-data-log", "--files", named),
        },
    )
    return Row(
        *(name, "s", pairs.spread("dump")),
        *("kafka.tools.DumpLogSegments", pairs.spread("kafka")),
        ratio=pairs.ratio("kafka", "dump"),
        goal=10.0,
        note=f"--print-data-log of {path.stat().st_size // MIB} MiB, processor time",
    )


if __name__ == "__main__":
    part_main("find", measure)

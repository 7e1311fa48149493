"""``find`` beside ``cat | wc -c`` and ripgrep over the same files, and ``dump`` beside Kafka's own tool.

Each is a process as a person starts it. ``find`` looks for a text that no record holds: all is read. cat and
ripgrep check nothing; ``find`` checks every checksum, and knows records.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Scale, paired, part_main, say
from benchmarks.segments import MIB, PLAIN, WORK, partition_dir, segment, size_of
from tests.kafka.broker import broker_classpath
from tests.support.java import quick_java

_ABSENT = "no record holds this text"
_PARTITIONS = 8


def _wall(*command: Any) -> float:
    began = time.perf_counter()
    subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


def _processor(*command: Any) -> float:
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    _wall(*command)
    return used() - before


def _find(path: Path | str, measure: Callable[..., float], cores: int) -> float:
    command = (sys.executable, "-m", "pipelines.find", path, "--value-contains", _ABSENT, "--cores", cores)
    return measure(*command)


def measure(scale: Scale) -> list[Row]:
    return list(_rows(scale))


def _rows(scale: Scale) -> Iterator[Row]:
    logs = partition_dir("find", PLAIN, _PARTITIONS, scale.kernel_bytes)
    size, files = size_of(logs), [str(path) for path in sorted(logs.rglob("*.log"))]
    empty = WORK / "nothing-0"
    empty.mkdir(exist_ok=True)
    (empty / f"{0:020d}.log").touch()
    say(f"  find in {size // MIB} MiB")
    _find(empty, _wall, 1)  # compiles kernels where they are new
    pairs = paired(
        scale.rounds,
        {
            "find": partial(_find, logs, _wall, 2),
            "start": partial(_find, empty, _wall, 1),
            "cat": partial(_wall, "sh", "-c", 'cat "$@" | wc -c', "sh", *files),
        },
    )
    searched = [a - b for a, b in zip(pairs.taken["find"], pairs.taken["start"], strict=True)]
    pairs.taken["search"] = searched
    name = f"find a value, {size // MIB} MiB, two processes, without start"
    yield Row(
        *(name, "s", pairs.spread("search"), "cat FILES | wc -c", pairs.spread("cat")),
        ratio=pairs.ratio("search", "cat"),
        goal=2.0,
        at_least=False,
        note=f"start {pairs.spread('start').text()} s",
    )
    if shutil.which("rg"):
        pairs = paired(
            scale.rounds,
            {
                "find": partial(_find, logs, _processor, 1),
                "start": partial(_find, empty, _processor, 1),
                "rg": partial(_processor, "rg", "-a", "--count", _ABSENT, *files),
            },
        )
        pairs.taken["search"] = [
            a - b for a, b in zip(pairs.taken["find"], pairs.taken["start"], strict=True)
        ]
        yield Row(
            *("the same, processor time", "s", pairs.spread("search"), "rg --count", pairs.spread("rg")),
            ratio=pairs.ratio("search", "rg"),
            goal=2.0,
            at_least=False,
        )
    shutil.rmtree(empty)
    yield _dump(scale)


def _dump(scale: Scale) -> Row:
    path = segment(PLAIN, scale.kernel_bytes)
    named = path.with_suffix("") / f"{0:020d}.log"
    named.parent.mkdir(exist_ok=True)
    if not named.exists():
        os.link(path, named)
    say(f"  dump of {path.stat().st_size // MIB} MiB")
    java = [*quick_java(), "-cp", broker_classpath(), "kafka.tools.DumpLogSegments"]
    pairs = paired(
        scale.rounds,
        {
            "dump": partial(
                _processor, sys.executable, "-m", "pipelines.dump_log", "--print-data-log", named
            ),
            "kafka": partial(_processor, *java, "--print-data-log", "--files", named),
        },
    )
    return Row(
        *("dump --print-data-log, processor time", "s", pairs.spread("dump")),
        *("kafka.tools.DumpLogSegments", pairs.spread("kafka")),
        ratio=pairs.ratio("kafka", "dump"),
        goal=10.0,
    )


if __name__ == "__main__":
    part_main("find", measure)

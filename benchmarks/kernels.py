"""One thread, bytes to Arrow columns with checksums, against kafka-clients over the same file.

Kafka's library looks at every field of every record and makes nothing of it; ours makes columns. Both do
several passes a round, take turns, and the fastest pass of each counts. aiokafka's C extension, which the
project does not need, is a peer where it can be installed into ``benchmarks/work``.
"""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import floor
from benchmarks.harness import Row, Scale, paired, part_main, per_second, say
from benchmarks.kafka import Iterating
from benchmarks.segments import LARGE_RECORDS, PLAIN, WORK, Kind, segment
from kafka_log_lake.udfs import decode_segment

AIOKAFKA = "aiokafka==0.14.0"
_PEERS = WORK / "peers"
_PASSES = 3
_WARM_UP = 5
_LEGACY = replace(PLAIN, magic=1, headers=0)

# Name, what the file holds, goal
CASES: tuple[tuple[str, Kind, float], ...] = (
    ("V2 none 100 B", PLAIN, 1.8),
    ("V2 none 1 KiB", LARGE_RECORDS, 1.5),
    ("V2 lz4", replace(PLAIN, codec="lz4"), 1.6),
    ("V2 snappy", replace(PLAIN, codec="snappy"), 1.6),
    ("V2 zstd", replace(PLAIN, codec="zstd"), 1.4),
    ("V2 gzip", replace(PLAIN, codec="gzip"), 1.8),
    ("V1 none", _LEGACY, 8.0),
    ("V1 lz4", replace(_LEGACY, codec="lz4"), 1.2),
)
_AIOKAFKA_GOAL = 4.0


def decode(path: Path) -> int:
    """Every record of the file into columns; the number of rows."""
    return sum(batch.num_rows for batch in decode_segment(path))


def fastest(passes: int, run: Callable[[], object]) -> float:
    """Seconds of the fastest of some passes."""
    taken = []
    for _ in range(passes):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return min(taken)


def _case(scale: Scale, name: str, kind: Kind, goal: float) -> Iterator[Row]:
    path = segment(kind, scale.kernel_bytes)
    size = path.stat().st_size
    with Iterating(path) as kafka:
        _, records = kafka.best_of(_WARM_UP)
        found = decode(path)
        if found != records:
            raise RuntimeError(f"{name}: {found} records by ours, {records} by kafka-clients")
        pairs = paired(
            scale.rounds,
            {
                "ours": lambda: fastest(_PASSES, lambda: decode(path)),
                "kafka": lambda: kafka.best_of(_PASSES)[0],
                "floor": lambda: floor.measure(path, _PASSES),
            },
        )
    rate = per_second(size)
    ours = pairs.spread("ours", rate)
    yield Row(
        name, "MB/s", ours, "kafka-clients", pairs.spread("kafka", rate), pairs.ratio("kafka", "ours"), goal
    )
    note = "time of ours / of the decompressor, the checksum and one copy"
    bottom = pairs.spread("floor", rate)
    yield Row(f"floor, {name}", "MB/s", ours, "floor", bottom, pairs.ratio("ours", "floor"), note=note)


@functools.cache
def aiokafka_records() -> Any:
    """aiokafka's MemoryRecords from ``benchmarks/work/peers``, put there on first use; None without it."""
    if not _PEERS.exists():
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"]
        target = ["--python", sys.executable, "--target", str(_PEERS), AIOKAFKA]
        try:
            subprocess.run([*uv, *target], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return None
    sys.path.append(str(_PEERS))
    try:
        return importlib.import_module("aiokafka.record._crecords.memory_records").MemoryRecords
    except ImportError:
        return None


def _iterate_aiokafka(data: bytes) -> int:
    seen = 0
    records = aiokafka_records()(data)
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise RuntimeError("aiokafka finds a checksum wrong")
        for record in batch:
            seen += record.offset >= 0 and record.value is not None
    return seen


def _against_aiokafka(scale: Scale) -> Row | None:
    if aiokafka_records() is None:
        say(f"  {AIOKAFKA} can't be installed or has no C extension here: left out")
        return None
    path = segment(PLAIN, scale.kernel_bytes)
    data = path.read_bytes()
    pairs = paired(
        scale.rounds,
        {
            "ours": lambda: fastest(_PASSES, lambda: decode(path)),
            "aiokafka": lambda: fastest(1, lambda: _iterate_aiokafka(data)),
        },
    )
    rate = per_second(len(data))
    theirs = pairs.spread("aiokafka", rate)
    ratio = pairs.ratio("aiokafka", "ours")
    return Row(
        "V2 none, aiokafka", "MB/s", pairs.spread("ours", rate), "aiokafka (C)", theirs, ratio, _AIOKAFKA_GOAL
    )


def measure(scale: Scale) -> list[Row]:
    rows = []
    for name, kind, goal in CASES:
        say(f"  {name}")
        rows += list(_case(scale, name, kind, goal))
    extra = _against_aiokafka(scale)
    return sorted([*rows, *([extra] if extra else [])], key=lambda row: row.name.startswith("floor"))


if __name__ == "__main__":
    part_main("kernels", measure)

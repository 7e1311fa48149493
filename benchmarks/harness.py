"""What a measurement is: pairs of runs in turn, the median of their ratios with the least and the most.

A machine's speed drifts, so two figures are compared only where one was taken right after the other:
A B A B ... The ratio of each pair is kept, and the goal is held against the median of these.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.segments import MIB
from kafka_log_lake.pipelines.cli.java import java_command

ROOT = Path(__file__).resolve().parent.parent
_LIBRARIES = (
    "pyspark",
    "delta-spark",
    "deltalake",
    "pyarrow",
    "numpy",
    "numba",
    "cramjam",
    "isal",
)


@dataclass(frozen=True)
class Scale:
    """How much a part measures: bytes are of segments on disk, rounds are pairs."""

    name: str
    rounds: int
    kernel_bytes: int
    job_bytes: int
    job_rounds: int
    topic_bytes: int  # broker
    one_segment: int  # memory
    sliced_segment: int
    small_segments: int
    grown_bytes: int
    read_bytes: int
    partitions: int
    listed: int
    known: int  # data files in a table's log, segments in a ledger


SCALES = {
    "tiny": Scale(
        "tiny",
        rounds=2,
        kernel_bytes=4 * MIB,
        job_bytes=16 * MIB,
        job_rounds=1,
        topic_bytes=16 * MIB,
        one_segment=64 * MIB,
        sliced_segment=64 * MIB,
        small_segments=200,
        grown_bytes=64 * MIB,
        read_bytes=64 * MIB,
        partitions=50,
        listed=10_000,
        known=10_000,
    ),
    "reduced": Scale(
        "reduced",
        rounds=5,
        kernel_bytes=64 * MIB,
        job_bytes=256 * MIB,
        job_rounds=3,
        topic_bytes=256 * MIB,
        one_segment=1024 * MIB,
        sliced_segment=512 * MIB,
        small_segments=1_000,
        grown_bytes=1024 * MIB,
        read_bytes=256 * MIB,
        partitions=1_000,
        listed=100_000,
        known=100_000,
    ),
    "full": Scale(
        "full",
        rounds=9,
        kernel_bytes=256 * MIB,
        job_bytes=1024 * MIB,
        job_rounds=3,
        topic_bytes=4096 * MIB,
        one_segment=2048 * MIB,
        sliced_segment=1024 * MIB,
        small_segments=10_000,
        grown_bytes=8192 * MIB,
        read_bytes=8192 * MIB,
        partitions=10_000,
        listed=1_000_000,
        known=10_000_000,
    ),
}


@dataclass(frozen=True)
class Spread:
    """Median of some figures with the least and the most of them."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(statistics.median(values), min(values), max(values))

    def text(self) -> str:
        if self.low == self.high:
            return short(self.median)
        return f"{short(self.median)} ({short(self.low)}-{short(self.high)})"


def short(value: float) -> str:
    """Three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


@dataclass
class Row:
    """One line of the table.

    ours, theirs: in ``unit``; ratio: what the goal speaks of, pair by pair. goal: None where there is none to
    hold it to; at_least: whether the ratio has to reach the goal or to stay below it.
    """

    name: str
    unit: str
    ours: Spread
    peer: str = ""
    theirs: Spread | None = None
    ratio: Spread | None = None
    goal: float | None = None
    at_least: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one. A row without ratio holds its own figure to it."""
        if self.goal is None:
            return None
        value = (self.ratio or self.ours).median
        return value >= self.goal if self.at_least else value <= self.goal

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "met": self.met}


@dataclass
class Pairs:
    """Figures of runs that took turns, by name, in the order of the rounds."""

    taken: dict[str, list[float]] = field(default_factory=dict)

    def spread(self, name: str, of: Callable[[float], float] = lambda value: value) -> Spread:
        return Spread.of([of(value) for value in self.taken[name]])

    def ratio(self, over: str, under: str) -> Spread:
        pairs = zip(self.taken[over], self.taken[under], strict=True)
        return Spread.of([a / b for a, b in pairs])


def paired(rounds: int, runs: Mapping[str, Callable[[], float]]) -> Pairs:
    """Every run once a round, in the order given; each returns its figure, seconds as a rule."""
    pairs = Pairs({name: [] for name in runs})
    for _ in range(rounds):
        for name, run in runs.items():
            pairs.taken[name].append(run())
    return pairs


def per_second(total_bytes: int) -> Callable[[float], float]:
    """Seconds -> MB/s."""
    return lambda seconds: total_bytes / 1e6 / seconds


def machine() -> dict[str, Any]:
    """CPU, cores, memory, system, and how busy the machine was when the part began."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def versions() -> dict[str, str]:
    """Of Python, Java, Kafka's library and what decodes and writes."""
    from benchmarks.kafka import VERSION

    shown = subprocess.run([java_command() or "java", "-version"], capture_output=True, text=True, check=True)
    found = {
        "python": platform.python_version(),
        "java": shown.stderr.split('"')[1],
        "kafka-clients": VERSION,
    }
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            found[library] = "none"
    return found


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def part_main(part: str, measure: Callable[[Scale], list[Row]]) -> None:
    """``python -m benchmarks.<part>``: runs it, prints its table, puts its figures into latest.json."""
    from benchmarks import report

    parser = argparse.ArgumentParser(description=f"Runs the part {part} of the benchmarks alone.")
    parser.add_argument("--size", choices=SCALES, default="reduced")
    scale = SCALES[parser.parse_args().size]
    report.run_part(part, measure, scale)
    report.print_table(report.load(report.store(scale.name)), [part])


def prepared_main(
    folder: Path, prepare: Callable[[int], None], measure: Callable[[int], Mapping[str, float]]
) -> None:
    """The main of a module that is given a count: prints the figures as JSON.

    They are taken in a process of their own, whose memory knows nothing of the preparing. folder: what is
    prepared; it goes at the end.
    """
    count = int(sys.argv[1])
    if len(sys.argv) > 2:
        print(json.dumps(measure(count)), flush=True)
        return
    shutil.rmtree(folder, ignore_errors=True)
    prepare(count)
    subprocess.run([*sys.orig_argv, "prepared"], check=True)
    shutil.rmtree(folder)

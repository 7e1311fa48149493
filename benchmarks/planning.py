"""Full size only: what planning very many segments takes, and opening a table of very many files."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.harness import ROOT, Row, Scale, Spread, part_main
from benchmarks.memory import peaks

_HEAP_MIB = 2048.0


def _planning(scale: Scale) -> list[Row]:
    most, output = peaks([sys.executable, "-m", "benchmarks.plan_job", str(scale.listed)])
    took = json.loads(output.splitlines()[-1])
    note = f"{scale.listed:,} listed, {took['planned']:,} to decode, the others known"
    java = Spread.of([most["java"]])
    return [
        Row("planning, driver's Java", "MiB", java, goal=_HEAP_MIB, at_least=False, note=note),
        Row("planning", "s", Spread.of([took["seconds"]]), note=note),
        Row("planning, a bounded run more", "s", Spread.of([took["seconds_a_run"]])),
    ]


def _opening(scale: Scale) -> list[Row]:
    files = scale.listed
    script = [sys.executable, "-m", "benchmarks.table_log", str(files)]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    note = f"{files:,} data files in its log"
    return [
        Row("opening a table", "s", Spread.of([found["seconds"]]), note=note),
        Row("opening a table, memory", "MiB", Spread.of([found["mib"]]), note=note),
    ]


def measure(scale: Scale) -> list[Row]:
    return [*_planning(scale), *_opening(scale)]


if __name__ == "__main__":
    part_main("planning", measure)

"""What planning very many segments takes, and opening a table of very many files."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks import plan_job
from benchmarks.harness import ROOT, Row, Scale, Spread, part_main, say
from benchmarks.job_server import clear_lakes
from benchmarks.memory import peaks

_MEMORY_MIB = 2048.0


def _planning(scale: Scale) -> list[Row]:
    count = scale.listed
    say(f"  {count:,} known segments")
    clear_lakes()
    plan_job.prepare(count)
    most, output = peaks([sys.executable, "-m", "benchmarks.plan_job", str(count), str(scale.job_rounds)])
    clear_lakes()
    took = json.loads(output.splitlines()[-1])
    mib = {"Python": took["mib"], "Java": most["java"], "a worker": most["worker"]}
    note = ", ".join(f"{name} {value:,.0f} MiB" for name, value in mib.items())
    driver = Spread.of([mib["Python"] + mib["Java"]])
    memory = f"driver's memory, {count:,} segments"

    def row(name: str, step: str, told: str) -> Row:
        return Row(name, "s", Spread.of(took["seconds"][step]), note=told)

    return [
        row(
            "nothing new, warm",
            "unchanged",
            f"{count:,} known segments: the whole job, which decodes nothing",
        ),
        row("- of that the listing", "listing", "local folders of 100 segments"),
        row("- of that reading the ledger", "ledger", ""),
        row("planning new segments", "new", f"{count:,} of them, listed and cut into runs"),
        Row(memory, "MiB", driver, goal=_MEMORY_MIB, at_least=False, note=note),
    ]


def _opening(scale: Scale) -> list[Row]:
    files = scale.listed
    say(f"  a table of {files:,} files")
    script = [sys.executable, "-m", "benchmarks.table_log", str(files)]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    note = f"{files:,} data files in its log"
    return [
        Row("opening a table", "s", Spread.of([found["seconds"]]), note=note),
        Row("one commit to it, opened", "s", Spread.of([found["commit"]]), note=note),
        Row("opening a table, memory", "MiB", Spread.of([found["mib"]]), note=note),
    ]


def measure(scale: Scale) -> list[Row]:
    return [*_planning(scale), *_opening(scale)]


if __name__ == "__main__":
    part_main("planning", measure)

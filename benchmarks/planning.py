"""What planning very many segments takes, and opening tables and a ledger that know still more."""

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

    def row(name: str, step: str, printed: str) -> Row:
        return Row(name, "s", Spread.of(took["seconds"][step]), note=printed)

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


def _found(module: str, count: int) -> dict[str, float]:
    """What a script prints that measures itself in a separate process."""
    script = [sys.executable, "-m", f"benchmarks.{module}", str(count)]
    done = subprocess.run(script, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _known(scale: Scale) -> list[Row]:
    """What the driver opens before it plans anything: a table's log, and the ledger."""
    count = scale.known
    say(f"  a table of {count:,} files")
    found = _found("table_log", count)
    note = f"{count:,} data files in its log"
    say(f"  a ledger of {count:,} segments")
    read = _found("ledger", count)
    segments = f"{count:,} segments"
    return [
        Row("opening a table", "s", Spread.of([found["seconds"]]), note=note),
        Row("one commit to it, opened", "s", Spread.of([found["commit"]]), note=note),
        Row("opening a table, memory", "MiB", Spread.of([found["mib"]]), note=note),
        Row("reading a ledger", "s", Spread.of([read["seconds"]]), note=segments),
        Row("reading a ledger, memory", "MiB", Spread.of([read["mib"]]), note=segments),
    ]


def measure(scale: Scale) -> list[Row]:
    return [*_planning(scale), *_known(scale)]


if __name__ == "__main__":
    part_main("planning", measure)

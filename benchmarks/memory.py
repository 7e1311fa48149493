"""The most memory that one large segment takes: in a worker process, in a Python worker of Spark, in Java.

The job runs as a user runs it, once without Spark, once with a Java heap of 1 GiB; the kernel's own
high-water marks of its processes are read until it ends (Linux's /proc).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.harness import ROOT, Row, Scale, Spread, part_main, say
from benchmarks.job_server import LAKES, clear_lakes
from benchmarks.segments import LARGE_RECORDS, MIB, PLAIN, partition_dir

_HEAP = "1g"
_GOAL_MIB = 600.0
_POLL_SECONDS = 0.05
_CASES = (
    ("none", PLAIN),
    ("zstd", replace(PLAIN, codec="zstd")),
    ("gzip", replace(PLAIN, codec="gzip")),
    ("snappy", replace(PLAIN, codec="snappy")),
    ("lz4, 1 KiB", replace(LARGE_RECORDS, codec="lz4")),
)


def children(parent: int) -> list[int]:
    """Process ids of all descendants."""
    found = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            direct = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in direct:
            found += [child, *children(child)]
    return found


def peak_mib(pid: int | str) -> float:
    """Most MiB that were ever resident of a process; 0 where it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def high_water(pid: int) -> tuple[str, float] | None:
    """(java or worker, most MiB ever resident) of a process; None where it is neither, or gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        peak = peak_mib(pid)
    except OSError:
        return None
    if words[0].endswith(b"java"):
        return "java", peak
    is_worker = any(word.startswith((b"pyspark.", b"kafka_log_lake.udfs.")) for word in words)
    return ("worker", peak) if is_worker else None


def peaks(command: list[str], in_spark: bool = True) -> tuple[dict[str, float], str]:
    """(MiB of the largest process of each kind, standard output) of a job run to its end."""
    most = {"java": 0.0, "worker": 0.0}
    environment = os.environ | ({"PYSPARK_SUBMIT_ARGS": "pyspark-shell"} if in_spark else {})
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as job:
        while job.poll() is None:
            for pid in children(job.pid):
                found = high_water(pid)
                if found:
                    most[found[0]] = max(most[found[0]], found[1])
            time.sleep(_POLL_SECONDS)
        assert job.stdout is not None
        output = job.stdout.read()
    if job.returncode:
        raise RuntimeError(f"the job ended with {job.returncode}")
    return most, output


def measure(scale: Scale) -> list[Row]:
    if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
        say("  no /proc with children here: left out")
        return []
    rows = []
    for name, kind in _CASES if scale.name == "full" else _CASES[:2]:
        say(f"  {name}")
        source = partition_dir("memory", kind, 1, scale.one_segment)
        job = [sys.executable, "-m", "pipelines.decode_batches", "--json", "--driver-memory", _HEAP]
        job += ["--source", str(source), "--lake", str(LAKES / "memory")]
        for kind_of_worker, in_spark in (("worker process", False), ("Python worker of Spark", True)):
            shutil.rmtree(LAKES, ignore_errors=True)
            most, output = peaks(job, in_spark)
            records = json.loads(output.splitlines()[-1])["records"]
            note = f"one segment of {scale.one_segment // MIB} MiB, {records:,} records"
            label, peak = f"{kind_of_worker}, {name}", Spread.of([most["worker"]])
            rows.append(Row(label, "MiB", peak, goal=_GOAL_MIB, at_least=False, note=note))
        rows.append(Row(f"driver's Java, {name}", "MiB", Spread.of([most["java"]]), note=f"heap {_HEAP}"))
    clear_lakes()
    return rows


if __name__ == "__main__":
    part_main("memory", measure)

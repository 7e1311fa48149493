"""Runs a layer in a child process, and sees it crash, hang or break a rule; the input is kept.

A layer that dies is started again with the next seed, until its time or its inputs are used up.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.fuzz.guarded import PAGE
from tests.fuzz.kernels import BEGIN, COMPARED, INPUTS, NUMBERS, PEAK, RECORDS, SIZE, SOUND, WITH_RECORDS

ROOT = Path(__file__).resolve().parents[2]
_START = 300  # seconds until the first input: the kernels may have to be compiled
HANG = 60  # seconds of CPU time that one input, or one block of them, may take
_WAITING = 5  # times as long by the clock: a hang need not use the CPU, and a busy machine is slow
_MOST_DEATHS = 10


@dataclass
class Report:
    """What a layer came to."""

    layer: str
    inputs: int = 0
    sound: int = 0
    with_records: int = 0
    records: int = 0
    compared: int = 0
    peak_kb: int = 0
    edges: int = 0  # of the code, that a guided layer came by
    seconds: float = 0.0
    findings: dict[str, str] = field(default_factory=dict)  # what is wrong -> name of the input

    def add(self, numbers: np.ndarray) -> None:
        self.inputs += int(numbers[INPUTS])
        self.sound += int(numbers[SOUND])
        self.with_records += int(numbers[WITH_RECORDS])
        self.records += int(numbers[RECORDS])
        self.compared += int(numbers[COMPARED])
        self.peak_kb = max(self.peak_kb, int(numbers[PEAK]))


def _numbers(folder: Path) -> np.ndarray:
    """The numbers that the child shares, zeros before it does."""
    path = folder / "numbers"
    data = path.read_bytes()[PAGE : PAGE + 8 * NUMBERS] if path.exists() else b""
    return np.frombuffer(data.ljust(8 * NUMBERS, b"\0"), dtype=np.int64)


def _last_input(folder: Path) -> bytes:
    numbers = _numbers(folder)
    begin = PAGE + int(numbers[BEGIN])
    return (folder / "input").read_bytes()[begin : begin + int(numbers[SIZE])]


def _cpu_seconds(process: int) -> float:
    """CPU time that a process has used; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _watch(child: subprocess.Popen[str], folder: Path, hang: float) -> str:
    """Wait for the child; "" where it ended by itself, else what became of it."""
    seen, since, used = 0, time.monotonic(), 0.0
    while child.poll() is None:
        time.sleep(0.05)
        inputs, now, cpu = int(_numbers(folder)[INPUTS]), time.monotonic(), _cpu_seconds(child.pid)
        if inputs != seen:
            seen, since, used = inputs, now, cpu
        if now - since > (_WAITING * hang if seen else _START) or (seen and cpu - used > hang):
            child.kill()
            child.wait()
            return f"hang: no end after {hang:.0f} s"
    if child.returncode < 0:
        return f"crash: {signal.Signals(-child.returncode).name}"
    return "" if child.returncode == 0 else f"crash: exit {child.returncode}"


def _one(report: Report, arguments: list[str], findings: Path, hang: float) -> bool:
    """One life of a child; whether it came to its end."""
    module = "tests.fuzz.guided" if report.layer == "guided" else "tests.fuzz.layers"
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile("w+") as said:
        folder = Path(name)
        command = [sys.executable, "-m", module, report.layer, name, str(findings), *arguments]
        child = subprocess.Popen(command, cwd=ROOT, text=True, stdout=said, stderr=said)
        end = _watch(child, folder, hang)
        said.seek(0)
        printed = said.read()
        report.add(_numbers(folder))
        report.edges = max([report.edges, *(int(n) for n in re.findall(r" cov: (\d+)", printed))])
        kept = folder / "kept.json"
        report.findings |= json.loads(kept.read_text()) if kept.exists() else {}
        if not end:
            return True
        data = _last_input(folder)
        if not data:
            raise RuntimeError(f"the {report.layer} layer does not start: {end}\n{printed[-4000:]}")
        stem = f"{report.layer}-{hashlib.sha256(data).hexdigest()[:10]}"
        (findings / f"{stem}.log").write_bytes(data)
        (findings / f"{stem}.txt").write_text(f"{end}\n\n{printed[-4000:]}")
        report.findings[f"{end}, {stem}"] = stem
        return False


def run(
    layer: str,
    findings: Path,
    *,
    seed: int = 0,
    seconds: float = 0,
    count: int = 0,
    files: list[Path] | None = None,
    hang: float = HANG,
) -> Report:
    """Run a layer for some seconds or inputs, or over those files."""
    findings.mkdir(parents=True, exist_ok=True)
    report, began = Report(layer), time.monotonic()
    for life in range(_MOST_DEATHS):
        left = max(1.0, seconds - report.seconds)
        arguments = ["--seed", str(seed + life), "--seconds", str(left if seconds else 0)]
        arguments += ["--count", str(max(0, count - report.inputs))]
        arguments += ["--files", *map(str, files)] if files else []
        done = _one(report, arguments, findings, hang)
        report.seconds = time.monotonic() - began
        if done or (seconds and report.seconds >= seconds) or (count and report.inputs >= count) or files:
            break
    return report

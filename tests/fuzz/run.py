"""``make fuzz``: every layer for its share of the time, with counts; what breaks a rule is kept as a file.

``python -m tests.fuzz.run [--seconds N] [--seed N] [--findings FOLDER] [--only LAYER]``. Exit code 1 where
anything was found. An input that was found and mended moves to ``tests/data/findings``, where every run of
the tests replays it.
"""

from __future__ import annotations

import argparse
import importlib.util
import secrets
import sys
from pathlib import Path

from tests.fuzz import watchdog
from tests.fuzz.watchdog import ROOT, Report

PAST = ROOT / "tests" / "data" / "findings"
FOUND = ROOT / "build" / "fuzz"
# layer -> its share of the time, what an input of it is
LAYERS = {
    "kernels": (0.12, "batches, through the kernels between guard pages"),
    "segments": (0.25, "segments, through the whole decoder between guard pages"),
    "costs": (0.08, "segments made to be costly: bytes read, memory held, CPU time"),
    "payloads": (0.10, "keys and values, by column as by itself"),
    "guided": (0.20, "inputs, guided by coverage, through the plain form (atheris)"),
    "hypothesis": (0.10, "segments, compiled equals plain (Hypothesis)"),
    "kafka": (0.15, "batches, judged by Kafka's own library"),
}
_HANG = {"kafka": 200.0}


def past_findings() -> list[Path]:
    """Inputs of past findings, and the hostile segments that are small."""
    return sorted(PAST.glob("*.log"))


def _line(report: Report, what: str) -> str:
    printed = f"{report.layer:<11} {report.inputs:>12,} {what}; {report.seconds:.0f} s"
    if report.sound:
        printed += f"; {report.sound:,} sound"
    if report.records:
        printed += f"; {report.records:,} records of {report.with_records:,}"
    if report.compared:
        printed += f"; {report.compared:,} batches compared"
    if report.edges:
        printed += f"; {report.edges:,} edges of the code"
    if report.peak_kb:
        printed += f"; peak {report.peak_kb // 1024} MiB"
    return f"{printed}; {len(report.findings)} findings"


def run_layer(name: str, seconds: float, seed: int, findings: Path) -> Report | None:
    """One layer; None where it can't run here."""
    if name == "guided" and importlib.util.find_spec("atheris") is None:
        print(f"{name:<11} needs atheris, which has wheels for Linux on x86-64 alone: left out", flush=True)
        return None
    hang = _HANG.get(name, watchdog.HANG)
    report = watchdog.run(name, findings, seed=seed, seconds=seconds, hang=hang)
    print(_line(report, LAYERS[name][1]), flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzzes the decoder for a bounded time.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument(
        "--seed", type=int, default=secrets.randbits(31), help="default: another one each time"
    )
    parser.add_argument("--findings", type=Path, default=FOUND, help="where inputs that break a rule go")
    parser.add_argument("--only", choices=LAYERS, help="all of the time for one layer")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    past = watchdog.run("findings", options.findings, seed=options.seed, files=past_findings())
    print(_line(past, f"inputs, {len(past_findings())} past findings each at several windows"), flush=True)
    reports = [past]
    for name, (share, _) in LAYERS.items():
        if options.only in (None, name):
            seconds = options.seconds * (1 if options.only else share)
            report = run_layer(name, seconds, options.seed, options.findings)
            reports += [report] if report else []
    print(f"{'all':<11} {sum(report.inputs for report in reports):>12,} inputs")
    found = {rule: name for report in reports for rule, name in report.findings.items()}
    for rule, name in found.items():
        print(f"FOUND {rule}: {options.findings / name}.log")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

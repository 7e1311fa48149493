"""A worker process that is killed in the middle of its task: no record is lost, and none is there twice.

Each command runs as a user runs it. ``tests/support/deadly`` kills a worker when it opens a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from deltalake import DeltaTable

from tests.support import logs
from tests.support.cluster import ROOT
from tests.support.segment_maker import Batch, Record

DEADLY = "b1/t-1/00000000000000000040.log"
TIERED = "tier/t-1/00000000000000000020.log"
RECORDS = [(partition, offset) for partition in (0, 1) for offset in range(60)]


def _decoded(_: str, lake: Path) -> list[tuple[int, int]]:
    rows = DeltaTable(lake / "records").to_pyarrow_table(columns=["partition", "offset"])
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _found(printed: str, _: Path) -> list[tuple[int, int]]:
    rows = map(json.loads, printed.splitlines())
    return sorted((row["partition"], row["offset"]) for row in rows)


def _scanned(printed: str, _: Path) -> list[tuple[int, int]]:
    found = json.loads(printed)
    assert [(log["records"], log["batches"]) for log in found["logs"]] == [(60, 60), (60, 60)]
    spans = [(log["partition"], range(log["first_offset"], log["last_offset"] + 1)) for log in found["logs"]]
    return [(partition, offset) for partition, span in spans for offset in span]


class Case(NamedTuple):
    """A command, where DISKS and LAKE stand for folders, and the file at which a worker dies.

    results: gives (partition, offset) of what it printed, or of its lake.
    """

    command: str
    results: Callable[[str, Path], list[tuple[int, int]]]
    deadly: str = DEADLY


RECOVER = "recover --source b1=DISKS/b1 --source b2=DISKS/b2 --lake LAKE"
CASES = {
    "decode": Case("decode --source DISKS/b1 --lake LAKE", _decoded),
    "decode, of a tier": Case("decode --source DISKS/short --tier DISKS/tier --lake LAKE", _decoded, TIERED),
    "find": Case("find DISKS/b1 --key k --format json", _found),
    "scan": Case("scan DISKS/b1 --json", _scanned),
    "recover, reading": Case(RECOVER, _decoded),
    "recover, healing": Case(RECOVER, _decoded, "_healed/t-1/"),
}


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two copies of partitions 0 and 1, each of three segments, large enough for worker processes.

    A third one has its first two segments in a tier.
    """
    root = tmp_path_factory.mktemp("disks")
    for copy in ("b1", "b2"):
        for partition in (0, 1):
            for base in (0, 20, 40):
                made = [
                    Batch([Record(b"k", os.urandom(1) * 100_000)], base_offset=base + i).encode()
                    for i in range(20)
                ]
                logs.put(root / f"{copy}/t-{partition}", base, *made)
    for path in (root / "b1").rglob("*.log"):
        place = root / ("short" if int(path.stem) >= 40 else "tier") / path.relative_to(root / "b1")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.hardlink_to(path)
    return root


def _run(case: Case, disks: Path, folder: Path, times: int) -> tuple[subprocess.CompletedProcess[str], int]:
    """Runs a command in which workers die this many times; returns it, and how many died."""
    mark = folder / "mark"
    words = case.command.replace("DISKS", str(disks)).replace("LAKE", str(folder / "lake")).split()
    deadly = {"DEADLY_FILE": case.deadly, "DEADLY_MARK": str(mark), "DEADLY_TIMES": str(times)}
    path = os.pathsep.join([str(ROOT / "tests/support/deadly"), str(ROOT)])
    command = [sys.executable, "-m", "kafka_log_lake", *words, "--cores", "2"]
    environment = {**os.environ, **deadly, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done, mark.stat().st_size if mark.exists() else 0


@pytest.mark.parametrize("name", CASES)
def test_a_killed_worker_loses_nothing_and_makes_nothing_twice(
    name: str, disks: Path, tmp_path: Path
) -> None:
    done, died = _run(CASES[name], disks, tmp_path, 1)
    assert (done.returncode, died) == (0, 1), done.stderr
    assert CASES[name].results(done.stdout, tmp_path / "lake") == RECORDS


@pytest.mark.parametrize("name", CASES)
def test_what_kills_each_worker_is_named_in_one_line(name: str, disks: Path, tmp_path: Path) -> None:
    done, died = _run(CASES[name], disks, tmp_path, 99)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert (done.returncode, died, "Traceback" in done.stderr) == (1, 4, False)
    assert line.startswith("error: a worker process was ended by SIGKILL while it read ")
    assert ("the copies of t-1" if name == "recover, healing" else CASES[name].deadly) in line

"""``recover`` of three copies against ``decode`` of one, and the comparison of copies against ``scan``.

One copy has a damaged batch in each partition, another one lost its end; ``decode`` reads the third.
Commands run as processes, with all that they start; comparing and scanning are timed within this one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.harness import Row, Scale, paired, part_main, say
from benchmarks.segments import MIB, PLAIN, WORK, batches, partition_dir, size_of
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.recover.compare import compare
from kafka_log_lake.pipelines.recover.sources import find_copies
from kafka_log_lake.pipelines.scan.command import scan

_PARTITIONS = 4
_CORES = 2
_COMPARED_GOAL, _HEALED_GOAL = 1.0, 1.3


def _copies(logs: Path) -> dict[str, Path]:
    """The same log directory as three brokers have it."""
    disks = {name: WORK / "recover-disks" / name for name in ("one", "two", "three")}
    shutil.rmtree(WORK / "recover-disks", ignore_errors=True)
    for name, disk in disks.items():
        shutil.copytree(logs, disk, copy_function=shutil.copyfile)
        for path in disk.rglob("*.log"):
            found = batches(path.read_bytes())
            position, size, _ = found[len(found) // 2]
            with path.open("r+b") as file:
                if name == "one":
                    file.seek(position + size - 1)
                    file.write(b"\xff")
                if name == "two":
                    file.truncate(position + size)
    return disks


def _run(*command: str) -> float:
    lake = tempfile.mkdtemp(dir=WORK)
    began = time.perf_counter()
    words = (sys.executable, "-m", *command, "--lake", lake, "--cores", str(_CORES))
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    taken = time.perf_counter() - began
    shutil.rmtree(lake)
    return taken


def _compare(sources: list[str]) -> float:
    began = time.perf_counter()
    inventory = find_copies(sources, lambda topic: True)
    for one in compare(inventory, Settings(cores=_CORES)):
        assert one.healed.lost == [], "a batch that one copy lacks is whole in another"
    return time.perf_counter() - began


def _scan(folder: Path) -> float:
    began = time.perf_counter()
    scan(Settings(source=(str(folder),), cores=_CORES))
    return time.perf_counter() - began


def measure(scale: Scale) -> list[Row]:
    logs = partition_dir("recover", PLAIN, _PARTITIONS, scale.kernel_bytes)
    disks = _copies(logs)
    sources = [f"{name}={disk}" for name, disk in disks.items()]
    named = [word for source in sources for word in ("--source", source)]
    size = size_of(logs) // MIB
    say(f"  recover of 3 x {size} MiB")
    _compare(sources)  # compiles kernels where they are new
    compared = paired(
        scale.rounds,
        {"compare": partial(_compare, sources), "scan": partial(_scan, WORK / "recover-disks")},
    )
    healed = paired(
        scale.job_rounds,
        {
            "recover": partial(_run, "pipelines.recover", *named),
            "decode": partial(_run, "pipelines.decode_batches", "--source", str(disks["three"])),
        },
    )
    shutil.rmtree(WORK / "recover-disks")
    return [
        Row(
            *(f"compare 3 copies of {size} MiB", "s", compared.spread("compare")),
            *("scan of the three", compared.spread("scan")),
            ratio=compared.ratio("compare", "scan"),
            goal=_COMPARED_GOAL,
            at_least=False,
        ),
        Row(
            *(f"recover 3 copies of {size} MiB, two processes", "s", healed.spread("recover")),
            *("decode of one", healed.spread("decode")),
            ratio=healed.ratio("recover", "decode"),
            goal=_HEALED_GOAL,
            at_least=False,
        ),
    ]


if __name__ == "__main__":
    part_main("recover", measure)

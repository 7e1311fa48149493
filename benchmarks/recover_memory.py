"""What ``recover`` of three copies of one partition holds in memory, where each batch has one small record.

    python -m benchmarks.recover_memory MIB

MIB: of each copy. Prints the most MiB that were ever resident in the driver and in a worker process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks.memory import children, peak_mib
from benchmarks.segments import MIB
from kafka_log_lake.udfs.format.encode import PlainRecord
from kafka_log_lake.udfs.kernels.checksums import crc32c
from kafka_log_lake.udfs.values.internal.encode import record_batch

_COPIES = 3


def _checksum(data: bytes) -> int:
    return int(crc32c(np.frombuffer(data, np.uint8), 0, len(data), 0))


def _segment(size: int) -> tuple[bytes, int]:
    """(segment, its batches) of at most ``size`` bytes: one batch again and again, at rising offsets."""
    made = record_batch([PlainRecord(0, 0, b"k", b"v" * 10)], 0, 0, _checksum)
    one = np.frombuffer(made, np.uint8)
    rows = np.tile(one, (size // len(one), 1))
    rows[:, :8] = np.arange(len(rows), dtype=">i8").view(np.uint8).reshape(-1, 8)
    return rows.tobytes(), len(rows)


def main(mib: int) -> None:
    segment, batches = _segment(mib * MIB)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "pipelines.recover", "--lake", f"{folder}/lake", "--cores", "2"]
        for number in range(_COPIES):
            place = Path(folder, f"b{number}", "t-0")
            place.mkdir(parents=True)
            (place / f"{0:020d}.log").write_bytes(segment)
            words += ["--source", f"b{number}={place.parent}"]
        driver = worker = 0.0
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
            while job.poll() is None:
                with suppress(OSError):  # a process that has ended
                    driver = max(driver, peak_mib(job.pid))
                    worker = max([worker, *map(peak_mib, children(job.pid))])
                time.sleep(0.1)
    print(f"{_COPIES} x {batches:,} batches: driver {driver:,.0f} MiB, worker process {worker:,.0f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""What it costs that tasks flush their files, and the driver its commits, before the ledger relies on them.

The job in two warm sessions by turns: in the peer's processes ``os.fsync`` does nothing.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness import Row, Scale, machine, paired, part_main
from benchmarks.job_server import JobServer, clear_lakes
from benchmarks.segments import KIB, PLAIN, partition_dir, size_of

_PARTITIONS = 100
_SMALL = replace(PLAIN, records=20)


def measure(scale: Scale) -> list[Row]:
    clear_lakes()
    cores = machine()["cores"]
    large = partition_dir("bench", PLAIN, 2, scale.job_bytes // 2)
    small = partition_dir("flushed", _SMALL, _PARTITIONS, 20 * KIB)
    with JobServer(cores) as flushing, JobServer(cores, flushes=False) as other:
        rows = []
        for name, source in {"large segments": large, "small segments": small}.items():
            for session in (flushing, other):
                session.decode(source, "flush")
            pairs = paired(
                scale.job_rounds,
                {
                    "ours": lambda source=source: flushing.decode(source, "flush"),  # type: ignore[misc]
                    "other": lambda source=source: other.decode(source, "flush"),  # type: ignore[misc]
                },
            )
            note = f"{size_of(source) / 1e6:,.0f} MB"
            ours, theirs, ratio = pairs.spread("ours"), pairs.spread("other"), pairs.ratio("ours", "other")
            rows.append(Row(f"{name}, files flushed", "s", ours, "not flushed", theirs, ratio, note=note))
    clear_lakes()
    return rows


if __name__ == "__main__":
    part_main("flush", measure)

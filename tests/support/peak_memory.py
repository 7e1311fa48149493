"""How much memory decoding takes: segments decoded one after the other in this process, nothing kept.

    python -m tests.support.peak_memory [--limit BYTES] FILE...

Prints one line of JSON: ``before_mib``, resident before the first of the files and after a small one that
brought the kernels in; ``peak_mib``, the most ever resident (Linux: VmRSS, VmHWM); ``damages``, the reasons
of the damaged ranges, with how often each was found; ``records``.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from kafka_log_lake.udfs import decode_segment
from kafka_log_lake.udfs.decoder.decoded import Damage
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED
from tests.support import corpus


def mib(field: str) -> float:
    """A field of /proc/self/status, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=MAX_BATCH_UNCOMPRESSED)
    parser.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()
    damages: Counter[str] = Counter()
    records = 0

    def count(damage: Damage) -> None:
        damages[damage.reason] += 1

    def decode(path: Path) -> int:
        limit = arguments.limit
        return sum(
            rows.num_rows for rows in decode_segment(path, on_damage=count, max_batch_uncompressed=limit)
        )

    for path in (corpus.ROOT / "v2-codec-zstd").rglob("*.log"):
        decode(path)
    damages.clear()
    before = mib("VmRSS")
    for path in arguments.files:
        records += decode(path)
    print(
        json.dumps({"before_mib": before, "peak_mib": mib("VmHWM"), "damages": damages, "records": records})
    )


if __name__ == "__main__":
    main()

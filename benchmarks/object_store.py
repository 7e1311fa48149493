"""What a store costs: requests and time to list 10,000 segments and to read one, on versitygw on loopback.

``python -m benchmarks.object_store [MiB of the segment]``. Loopback has no latency, so the requests count.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.segments import MIB, PLAIN, segment
from kafka_log_lake.pipelines.listing.list_segments import list_segments
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.storage.opening import open_source
from tests.support.object_store import BUCKET, running

_SEGMENTS, _FOLDERS = 10_000, 100


def _decode(uri: str) -> float:
    """Seconds to decode a segment, its bytes read as the job reads them."""
    began = time.perf_counter()
    source = open_source(uri)
    for _ in SegmentDecoder(source, Range(source.size())):
        pass
    source.close()
    return time.perf_counter() - began


def _reported(requests: Counter[str]) -> str:
    return ", ".join(f"{count} {method}" for method, count in sorted(requests.items()))


def main() -> None:
    path = segment(PLAIN, int(sys.argv[1] if len(sys.argv) > 1 else 256) * MIB)
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as store:
        os.environ.update(store.environment)
        for i in range(_SEGMENTS):
            place = store.folder / "many" / f"t-{i % _FOLDERS}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i:020d}.log").touch()
        began = time.perf_counter()
        found = list_segments(f"s3://{BUCKET}/many").segments.num_rows
        seconds = time.perf_counter() - began
        print(f"listing {found:,} segments: {seconds:.1f} s, {_reported(store.seen)}")
        shutil.copy(path, store.folder / "one.log")
        _decode(str(path))  # kernels are loaded
        local = _decode(str(path))
        store.reset()
        remote = _decode(f"s3://{BUCKET}/one.log")
        size = path.stat().st_size / 1e6
        times = f"local {local:.1f} s, from the store {remote:.1f} s"
        print(f"decoding {size:,.0f} MB: {times}, {_reported(store.seen)}")


if __name__ == "__main__":
    main()

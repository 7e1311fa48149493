"""Codecs of the data files: what a task takes and how much it writes, for three kinds of real data.

``python -m benchmarks.parquet_codecs``. The data are there on every machine: lines of Python's own sources,
what installed packages list of their files as JSON, and pieces of compiled libraries. A task is timed by the
processor time of this process, from a segment to closed Parquet files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import sysconfig
import time
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import Pairs, paired, say, short
from benchmarks.segments import MIB, WORK
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.encode import PlainRecord, batch_records
from kafka_log_lake.udfs.kernels.checksums import crc32c
from kafka_log_lake.udfs.spark.protocol import SLICE_SCHEMA, StageOptions
from kafka_log_lake.udfs.spark.tasks import write_tables

CODECS: tuple[tuple[str, int | None], ...] = (
    *(("zstd", 1), ("zstd", 3), ("zstd", -1), ("zstd", -5)),
    *(("lz4", None), ("snappy", None), ("gzip", 1), ("none", None)),
)
_LAKE = WORK / "codecs"
_BATCH = 100
_PIECE = 256
Pair = tuple[bytes, bytes]


def _lines() -> Iterator[Pair]:
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        for line in path.read_bytes().splitlines():
            yield path.name.encode(), line


def _files() -> Iterator[Pair]:
    for package in metadata.distributions():
        for file in package.files or ():
            printed = {
                "package": package.name,
                "version": package.version,
                "path": str(file),
                "size": file.size,
            }
            printed["hash"] = file.hash.value if file.hash else None
            yield package.name.encode(), json.dumps(printed).encode()


def _pieces() -> Iterator[Pair]:
    for path in sorted(Path(sysconfig.get_path("platlib")).rglob("*.so*")):
        data = path.read_bytes()
        for at in range(0, len(data), _PIECE):
            yield path.name.encode(), data[at : at + _PIECE]


KINDS = {"lines of text": _lines, "JSON": _files, "binary": _pieces}


def _batch(base: int, pairs: tuple[Pair, ...]) -> bytes:
    """A record batch of magic 2, uncompressed: 61 bytes of header, then the records."""
    first = 1_700_000_000_000 + base
    records = [PlainRecord(base + i, first + i, key, value) for i, (key, value) in enumerate(pairs)]
    payload = batch_records(records)
    last = len(records) - 1
    head = struct.pack(">hiqqqhii", 0, last, first, first + last, -1, -1, -1, len(records))
    checksum = int(crc32c(np.frombuffer(head + payload, np.uint8), 0, len(head) + len(payload), 0))
    length = 9 + len(head) + len(payload)
    return struct.pack(">qiibI", base, length, 0, f.MAGIC_V2, checksum) + head + payload


def _segment(kind: str, total_bytes: int) -> Path:
    path = WORK / "data" / f"codecs-{kind.replace(' ', '-')}-{total_bytes}.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        data, base, pairs = bytearray(), 0, KINDS[kind]()
        while len(data) < total_bytes and (some := tuple(islice(pairs, _BATCH))):
            data += _batch(base, some)
            base += len(some)
        path.write_bytes(data)
    return path


def _input(segment: Path) -> pa.RecordBatch:
    size = segment.stat().st_size
    row: dict[str, object] = dict.fromkeys(SLICE_SCHEMA.names)
    row.update(group_id=0, topic="t", partition=0, partition_dir="file:///", segment=f"file://{segment}")
    row.update(file_base_offset=0, length=size, modified=0, log_start_offset=0)
    row.update(start=0, stop=size, exact_start=True, has_successor=False, chunk_position=0)
    return pa.RecordBatch.from_pylist([row], schema=SLICE_SCHEMA)


def _task(segment: Path, codec: str, level: int | None) -> tuple[float, int]:
    """Seconds of processor time and bytes of Parquet of a task that decodes a segment."""
    shutil.rmtree(_LAKE, ignore_errors=True)
    options = StageOptions("run", 0, 2 * MIB, 256 * MIB, MIB, str(_LAKE), codec, level)
    began = time.process_time()
    for _ in write_tables(options)(iter([_input(segment)])):
        pass
    took = time.process_time() - began
    return took, sum(path.stat().st_size for path in _LAKE.rglob("*.parquet"))


def _measure(segment: Path, rounds: int) -> tuple[Pairs, dict[str, int]]:
    """Seconds and bytes of Parquet by codec."""
    sizes: dict[str, int] = {}

    def run(name: str, codec: str, level: int | None) -> float:
        took, sizes[name] = _task(segment, codec, level)
        return took

    names = [codec if level is None else f"{codec}:{level}" for codec, level in CODECS]
    runs = {name: partial(run, name, *codec) for name, codec in zip(names, CODECS, strict=True)}
    runs[names[0]]()  # warms up
    return paired(rounds, {**runs}), sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=int, default=64, help="bytes of each kind, at most")
    parser.add_argument("--rounds", type=int, default=5)
    requested = parser.parse_args()
    for kind in KINDS:
        segment = _segment(kind, requested.mib * MIB)
        pairs, sizes = _measure(segment, requested.rounds)
        say(f"{kind}, {segment.stat().st_size / 1e6:,.0f} MB")
        for name, written in sizes.items():
            time_, least = pairs.ratio(name, "zstd:1"), pairs.spread(name).low
            ratio = f"{short(time_.median)} ({short(time_.low)} to {short(time_.high)})"
            print(f"| {kind} | {name} | {ratio} | {short(least)} s | {written / sizes['zstd:1']:.2f} |")
    shutil.rmtree(_LAKE, ignore_errors=True)


if __name__ == "__main__":
    main()

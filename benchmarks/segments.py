"""Segment files to measure with, made once by Kafka's own library and kept in ``benchmarks/work/data``.

A file above ``DISTINCT_BYTES`` is a shorter one repeated with rising offsets: a batch's base offset lies
outside its checksum, so every repeat stays sound, and expanding, parsing and writing it costs the same.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.kafka import command
from kafka_log_lake.udfs.format import layout as f

WORK = Path(__file__).with_name("work")
MIB = 1 << 20
GIB = 1 << 30
KIB = 1 << 10
DISTINCT_BYTES = 64 * MIB


@dataclass(frozen=True)
class Kind:
    """What a segment holds: codec and magic, records a batch and bytes a value (means), headers a record."""

    codec: str
    magic: int = 2
    records: int = 100
    value_bytes: int = 90
    headers: int = 1
    seed: int = 7

    @property
    def name(self) -> str:
        return f"v{self.magic}-{self.codec}-{self.records}x{self.value_bytes}-{self.headers}h-{self.seed}"


def segment(kind: Kind, total_bytes: int) -> Path:
    """A segment of at most ``total_bytes`` bytes, short of that by less than a batch."""
    path = WORK / "data" / f"{kind.name}-{total_bytes}.log"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    if total_bytes > DISTINCT_BYTES:
        repeat(segment(kind, DISTINCT_BYTES), part, total_bytes)
    else:
        numbers = (kind.magic, kind.records, kind.value_bytes, kind.headers, total_bytes, kind.seed)
        arguments = [str(part), kind.codec, *map(str, numbers)]
        done = subprocess.run(command("MakeSegment", *arguments), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"MakeSegment failed:\n{done.stderr}")
    part.rename(path)
    return path


def batches(data: bytes | bytearray) -> list[tuple[int, int, int]]:
    """(position, size, last offset) of every batch."""
    found = []
    position = 0
    while position < len(data):
        offset, length = struct.unpack_from(">qi", data, position)
        if data[position + f.MAGIC_POS] == f.MAGIC_V2:
            offset += struct.unpack_from(">i", data, position + f.LAST_OFFSET_DELTA_POS)[0]
        found.append((position, f.LOG_OVERHEAD + length, offset))
        position += f.LOG_OVERHEAD + length
    return found


def shifted(data: bytes, by: int) -> bytearray:
    """The same batches with all offsets raised by ``by``."""
    moved = bytearray(data)
    for position, _, _ in batches(data):
        (offset,) = struct.unpack_from(">q", data, position)
        struct.pack_into(">q", moved, position, offset + by)
    return moved


def repeat(base: Path, out: Path, total_bytes: int) -> None:
    """``base`` again and again with rising offsets, up to the last batch that fits ``total_bytes``."""
    data = base.read_bytes()
    listed = batches(data)
    step = listed[-1][2] + 1
    written = 0
    with out.open("wb") as file:
        for turn in range(-(-total_bytes // len(data)) + 1):
            room = total_bytes - written
            end = max((p + size for p, size, _ in listed if p + size <= room), default=0)
            written += file.write(shifted(data, turn * step)[:end])
            if end < len(data):
                return


def partition_dir(name: str, kind: Kind, partitions: int, segment_bytes: int, segments: int = 1) -> Path:
    """A log directory of one topic; the segments of a partition follow each other in offsets.

    The partitions hold the same bytes. Big segments are hard links to one file, and cost no room.
    """
    root = WORK / "logs" / f"{name}-{kind.name}-{partitions}x{segments}x{segment_bytes}"
    if root.exists():
        return root
    made = root.with_suffix(".part")
    shutil.rmtree(made, ignore_errors=True)
    source = segment(kind, segment_bytes)
    base = source.read_bytes() if segments > 1 else b""
    step = batches(base)[-1][2] + 1 if base else 0
    for partition in range(partitions):
        folder = made / f"{name}-{partition}"
        folder.mkdir(parents=True)
        os.link(source, folder / f"{0:020d}.log")
        for turn in range(1, segments):
            (folder / f"{turn * step:020d}.log").write_bytes(shifted(base, turn * step))
    made.rename(root)
    return root


def size_of(folder: Path, pattern: str = "*.log") -> int:
    """Bytes of the files below a folder whose name matches."""
    return sum(path.stat().st_size for path in folder.rglob(pattern))


PLAIN = Kind("none")
LARGE_RECORDS = replace(PLAIN, value_bytes=1000)

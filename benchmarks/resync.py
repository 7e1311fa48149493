"""The search for the next sound batch after damage: in bytes that have none, and after one flipped length.

The near misses are what a search could take too long over: headers that are plausible, whose lengths lead to
each other a long way on, and whose checksums are wrong.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, Scale, Spread, paired, part_main, per_second, say
from benchmarks.segments import MIB, PLAIN, WORK, segment
from kafka_log_lake.udfs import decode_segment
from kafka_log_lake.udfs.decoder.decoded import Damage
from kafka_log_lake.udfs.format import layout as f


def v2_near_misses(size: int, leads: int) -> bytes:
    """Headers of magic 2 one after the other, each of which leads to another one ``leads`` bytes on."""
    body = struct.pack(">Hiqqqhii", 0, 9, 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, 10)
    length = leads // f.V2_HEADER_SIZE * f.V2_HEADER_SIZE
    header = struct.pack(">qiibI", 0, length - f.LOG_OVERHEAD, 0, 2, 0xBAD) + body
    return (header * (size // len(header) + 1))[:size]


def v1_near_misses(size: int, leads: int) -> bytes:
    """The same of magic 1."""
    length = leads // f.V1_MIN_SIZE * f.V1_MIN_SIZE
    message = struct.pack(">bbqii", 1, 0, 1_400_000_000_000, -1, length - f.V1_MIN_SIZE)
    header = struct.pack(">qiI", 0, length - f.LOG_OVERHEAD, 0xBAD) + message
    return (header * (size // len(header) + 1))[:size]


def flipped(path: Path, to: Path) -> Path:
    """The segment with one bit of a batch's length flipped, in its middle."""
    data = bytearray(path.read_bytes())
    at = 0
    while at < len(data) // 2:
        at += f.LOG_OVERHEAD + int.from_bytes(data[at + f.LENGTH_POS : at + f.LOG_OVERHEAD], "big")
    data[at + f.LENGTH_POS] ^= 0x01
    to.write_bytes(data)
    return to


def _decode(path: Path) -> tuple[float, list[Damage]]:
    damages: list[Damage] = []
    began = time.perf_counter()
    for _ in decode_segment(path, on_damage=damages.append):
        pass
    return time.perf_counter() - began, damages


def _search(name: str, make: Callable[[int], bytes], scale: Scale) -> Row:
    say(f"  {name}")
    path = WORK / "resync.log"
    path.write_bytes(make(scale.kernel_bytes))
    _, damages = _decode(path)
    if sum(damage.size for damage in damages) + MIB < scale.kernel_bytes:
        raise RuntimeError(f"{name}: {len(damages)} damaged ranges are not the whole file")
    taken = [_decode(path)[0] for _ in range(scale.rounds)]
    path.unlink()
    rate = per_second(scale.kernel_bytes)
    return Row(f"search in {name}", "MB/s", Spread.of([rate(seconds) for seconds in taken]))


def measure(scale: Scale) -> list[Row]:
    return list(_rows(scale))


def _rows(scale: Scale) -> Iterator[Row]:
    yield _search("random bytes", lambda size: np.random.default_rng(7).bytes(size), scale)
    for magic, make in ((2, v2_near_misses), (1, v1_near_misses)):
        yield _search(f"near misses of magic {magic}", partial(make, leads=MIB), scale)
        half = partial(make, leads=scale.kernel_bytes // 2)
        yield _search(f"near misses of magic {magic}, half the file long", half, scale)
    say("  one flipped length")
    sound = segment(PLAIN, scale.one_segment)
    broken = flipped(sound, WORK / "flipped.log")
    _, damages = _decode(broken)
    if len(damages) != 1:
        raise RuntimeError(f"one flipped length gave {len(damages)} damaged ranges")
    runs = {"flipped": lambda: _decode(broken)[0], "sound": lambda: _decode(sound)[0]}
    pairs = paired(scale.job_rounds, runs)
    size = broken.stat().st_size
    broken.unlink()
    note = f"{size / 1e6:,.0f} MB; one range of {damages[0].size:,} bytes in quarantine, a batch"
    ours, theirs = pairs.spread("flipped"), pairs.spread("sound")
    yield Row("one flipped length", "s", ours, "sound", theirs, pairs.ratio("flipped", "sound"), note=note)


if __name__ == "__main__":
    part_main("resync", measure)

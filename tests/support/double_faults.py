"""What ``inspect`` says of two faults in one batch, against what was done to it.

    python -m tests.support.double_faults 3000 SEED

prints how often the first cause was named rightly, was unknown, was ``possible`` and wrong, and was named
wrongly with more than that; each of the last with its seed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from kafka_log_lake.pipelines.inspect_batch.causes import CUT, OTHER, POSSIBLE, UNKNOWN, ZEROS
from tests.support.causes_named import _TEXT, _covered, look
from tests.support.segment_maker import GZIP, LZ4, NONE, ZSTD, Batch, Record

RIGHT, NOT_KNOWN, UNSURE, WRONG = "right", "unknown", "possible", "wrong"
# Fields of a header of magic 2 whose bits are flipped: begin and end
_FIELDS = {
    "base offset": (0, 8),
    "length": (8, 12),
    "leader epoch": (12, 16),
    "magic": (16, 17),
    "checksum": (17, 21),
    "attributes": (21, 23),
    "last offset delta": (23, 27),
    "base timestamp": (27, 35),
    "count": (57, 61),
}
_CUT, _TRUNCATED, _PUT_IN = "bytes missing", "file cut", "bytes put in"
_CLAIMS = {CUT: {_CUT, _TRUNCATED}, ZEROS: {"zeros"}, OTHER: {"text", "zeros", "byte", _PUT_IN}}


def _batches(random: Random) -> list[bytes]:
    made, offset = [], random.choice((0, 0, 57, 1000))
    codec = random.choice((NONE, NONE, NONE, GZIP, ZSTD, LZ4))
    for _ in range(random.randrange(2, 7)):
        count = random.randrange(1, 40)
        values: list[Callable[[], bytes]] = [
            lambda: random.randbytes(random.randrange(1, 120)),
            lambda: b'{"number":%d,"text":"some text of it"}' % random.randrange(40),
        ]
        records = [Record(b"k%d" % i, random.choice(values)()) for i in range(count)]
        made.append(Batch(records, base_offset=offset, codec=codec).encode())
        offset += count
    return made


def _flipped(random: Random, batch: bytes, begin: int, end: int) -> bytes:
    at = min(random.randrange(begin, end), len(batch) - 1)
    return batch[:at] + bytes((batch[at] ^ 1 << random.randrange(8),)) + batch[at + 1 :]


def _over(random: Random, batch: bytes, new: bytes) -> bytes:
    at = random.randrange(max(1, len(batch) - len(new)))
    return (batch[:at] + new + batch[at + len(new) :])[: len(batch)]


def _faulty(random: Random, batch: bytes, kind: str) -> bytes:
    if kind in _FIELDS or kind == "payload":
        return _flipped(random, batch, *_FIELDS.get(kind, (61, len(batch))))
    size = random.randrange(8, 60)
    if kind == "byte":
        return _over(random, batch, random.randbytes(1))
    if kind == "zeros":
        return _over(random, batch, bytes(size))
    if kind == "text":
        return _over(random, batch, _TEXT[:size])
    at = random.randrange(max(1, len(batch) - size))
    if kind == _CUT:
        return batch[:at] + batch[at + size :]
    return batch[:at] + random.randbytes(size) + batch[at:]


_KINDS = (*_FIELDS, "payload", "byte", "zeros", "text", _CUT, _PUT_IN)


def tried(seed: int, folder: Path) -> tuple[str, str]:
    """(verdict, what was done and said) of two random faults, and now and then a file that is cut too."""
    random = Random(seed)
    batches = _batches(random)
    number = random.randrange(len(batches))
    kinds = random.choices(_KINDS, k=2)
    changed = batches[number]
    for kind in kinds:
        changed = _faulty(random, changed, kind)
    data = b"".join([*batches[:number], changed, *batches[number + 1 :]])
    if random.random() < 0.15:
        kinds.append(_TRUNCATED)
        data = data[: -random.randrange(1, 40)]
    path = folder / f"{int.from_bytes(batches[0][:8], 'big'):020d}.log"
    path.write_bytes(data)
    found = look(path, sum(map(len, batches[:number])))
    if found is None or not found.causes or found.causes[0].kind == UNKNOWN:
        return NOT_KNOWN, ""
    first = found.causes[0]
    if first.mended is not None:
        is_right = _covered(first.mended) in map(_covered, batches)
    elif "the length is wrong" in first.text and first.kind == OTHER:
        is_right = "length" in kinds
    else:
        is_right = not _CLAIMS.get(first.kind, set()).isdisjoint(kinds)
    verdict = RIGHT if is_right else UNSURE if first.certainty == POSSIBLE else WRONG
    return verdict, f"{', '.join(kinds)}: {first.certainty}: {first.text}"


def main(count: int, seed: int = 1) -> int:
    counted = Counter[str]()
    with TemporaryDirectory() as folder:
        for one in range(seed, seed + count):
            verdict, said = tried(one, Path(folder))
            counted[verdict] += 1
            if verdict == WRONG:
                print(f"seed {one}: {said}")
    print(", ".join(f"{verdict}: {counted[verdict]:,}" for verdict in (RIGHT, NOT_KNOWN, UNSURE, WRONG)))
    return 1 if counted[WRONG] else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

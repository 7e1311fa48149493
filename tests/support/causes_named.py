"""Compares what ``inspect`` says about random damage of a known kind with what was done to the file.

    python -m tests.support.causes_named 5000 SEED

prints for each kind of damage how often the cause was named rightly, was unknown, and was named wrongly; each
wrong one with its seed.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.inspect_batch.batch import Inspection, inspect
from kafka_log_lake.pipelines.inspect_batch.causes import BIT, BYTE, CUT, ORDER, OTHER, UNKNOWN, ZEROS
from kafka_log_lake.pipelines.inspect_batch.locate import Locator
from tests.support import corpus
from tests.support.segment_maker import GZIP, NONE, Batch, Record

_MOST = 200_000  # bytes of a file
_TEXT = b"2024-05-17 03:12:44,101 INFO [main] Started o.a.k.Server, took 12 ms; user=app, host=db-1\n"


class Sound(NamedTuple):
    """A file without damage. batches: (position, end) of each, in bytes."""

    name: str
    data: bytes
    batches: tuple[tuple[int, int], ...]


class Damage(NamedTuple):
    """A file after damage; [begin, end): the changed bytes, empty where bytes are missing."""

    kind: str
    data: bytes
    begin: int
    end: int


def _batches(path: Path) -> tuple[tuple[int, int], ...]:
    locator = Locator(str(path))
    try:
        return tuple((one.position, one.end) for one in locator.stretches() if one.header is not None)
    finally:
        locator.close()


@cache
def sound_files() -> list[Sound]:
    """Returns the corpus, and made files whose values look like damage: zeros, text next to bytes."""
    paths = [path for path in corpus.segments() if path.stat().st_size < _MOST]
    found = [Sound(path.name, path.read_bytes(), _batches(path)) for path in paths]
    with TemporaryDirectory() as folder:
        for number in range(len(paths) // 5):
            path = Path(folder) / f"{0:020d}.log"
            path.write_bytes(_made(Random(number)))
            found.append(Sound(path.name, path.read_bytes(), _batches(path)))
    return found


def _made(random: Random) -> bytes:
    """Returns the bytes of a log with values of one sort, or of all sorts mixed."""
    sorts: list[Callable[[], bytes]] = [
        lambda: bytes(random.randrange(300)),
        lambda: random.randbytes(random.randrange(300)),
        lambda: (_TEXT * 4)[: random.randrange(300)],
        lambda: random.randbytes(20) + bytes(random.randrange(100)) + random.randbytes(20),
    ]
    chosen = sorts if random.random() < 0.5 else [random.choice(sorts)]
    made, offset = b"", 0
    for _ in range(random.randrange(2, 12)):
        records = [Record(b"k%d" % i, random.choice(chosen)()) for i in range(random.randrange(1, 30))]
        made += Batch(records, base_offset=offset, codec=random.choice((NONE, NONE, GZIP))).encode()
        offset += len(records)
    return made


# The damage


def _over(kind: str, data: bytes, at: int, new: bytes) -> Damage:
    new = new[: len(data) - at]
    return Damage(kind, data[:at] + new + data[at + len(new) :], at, at + len(new))


def _bit(random: Random, one: Sound) -> Damage:
    at = random.randrange(len(one.data))
    return _over("flipped bit", one.data, at, bytes((one.data[at] ^ 1 << random.randrange(8),)))


def _byte(random: Random, one: Sound) -> Damage:
    at = random.randrange(len(one.data))
    return _over("changed byte", one.data, at, bytes((random.randrange(256),)))


def _zero_pages(random: Random, one: Sound) -> Damage:
    page = random.choice((512, 4096))
    at = random.randrange(len(one.data)) // page * page
    return _over("pages of zeros", one.data, at, bytes(page * random.randrange(1, 4)))


def _size(random: Random, one: Sound) -> int:
    most = random.choice((16, 64, 300, 2000))
    return random.randrange(1, min(most, len(one.data)) + 1)


def _zeros(random: Random, one: Sound) -> Damage:
    return _over("zeros", one.data, random.randrange(len(one.data)), bytes(_size(random, one)))


def _text(random: Random, one: Sound) -> Damage:
    at = random.randrange(len(one.data))
    return _over("text", one.data, at, (_TEXT * 30)[random.randrange(80) :][: _size(random, one)])


def _random_bytes(random: Random, one: Sound) -> Damage:
    return _over(
        "random bytes", one.data, random.randrange(len(one.data)), random.randbytes(_size(random, one))
    )


def _part(random: Random, one: Sound) -> bytes:
    begin = random.randrange(len(one.data))
    return one.data[begin : begin + _size(random, one)]


def _other_file(random: Random, one: Sound) -> Damage:
    new = _part(random, random.choice(sound_files()))
    return _over("bytes of another file", one.data, random.randrange(len(one.data)), new)


def _other_place(random: Random, one: Sound) -> Damage:
    return _over("bytes of another place", one.data, random.randrange(len(one.data)), _part(random, one))


def _deleted(random: Random, one: Sound) -> Damage:
    at = random.randrange(len(one.data))
    data = one.data[:at] + one.data[at + _size(random, one) :]
    return Damage("bytes missing", data, at, at)


def _put_in(random: Random, one: Sound) -> Damage:
    at, size = random.randrange(len(one.data) + 1), _size(random, one)
    new = random.choice((bytes(size), random.randbytes(size), (_TEXT * 30)[:size], _part(random, one)))
    return Damage("bytes put in", one.data[:at] + new + one.data[at:], at, at + len(new))


def _truncated(random: Random, one: Sound) -> Damage:
    at = random.randrange(1, len(one.data))
    return Damage("file cut", one.data[:at], at, at)


def _swapped(random: Random, one: Sound) -> Damage:
    if len(one.batches) < 2:
        return _truncated(random, one)
    number = random.randrange(len(one.batches) - 1)
    (begin, middle), (_, end) = one.batches[number : number + 2]
    return _over("batches swapped", one.data, begin, one.data[middle:end] + one.data[begin:middle])


def _repeated(random: Random, one: Sound) -> Damage:
    begin, end = random.choice(one.batches)
    if random.random() < 0.5:
        begin = random.randrange(len(one.data))
        end = begin + len(one.data[begin : begin + _size(random, one)])
    data = one.data[:end] + one.data[begin:end] + one.data[end:]
    return Damage("block repeated", data, end, 2 * end - begin)


DAMAGES = (
    *(_bit, _byte, _zero_pages, _zeros, _text, _random_bytes, _other_file, _other_place),
    *(_deleted, _put_in, _truncated, _swapped, _repeated),
)


# What is said of it

RIGHT, NOT_KNOWN, WRONG = "right", "unknown", "wrong"


def look(path: Path, position: int) -> Inspection | None:
    """Inspects the first damage; where no checksum shows one, the batch at a position. None if it cannot."""
    locator = Locator(str(path))
    try:
        place = locator.first_damage()
        found = inspect(locator.source, locator.length, place, lambda *_: False)
        if found.status == "ok":
            place = locator.at_position(position)
            found = inspect(locator.source, locator.length, place, lambda *_: False)
        return found
    except UserError:
        return None
    finally:
        locator.close()


def _covered(batch: bytes) -> bytes:
    """Returns a batch's length field and all from the magic on, without fields that no checksum covers."""
    return batch[8:12] + batch[16:]


def verdict(sound: Sound, damage: Damage, found: Inspection | None) -> str:
    """Returns whether the first named cause is what was done: RIGHT, WRONG or NOT_KNOWN."""
    if found is None or not found.causes or found.causes[0].kind == UNKNOWN:
        return NOT_KNOWN
    first = found.causes[0]
    if first.mended is not None:
        batches = [_covered(sound.data[begin:end]) for begin, end in sound.batches]
        return RIGHT if _covered(first.mended) in batches else WRONG
    if first.kind == ORDER:
        return RIGHT if damage.kind in ("batches swapped", "block repeated", "bytes put in") else WRONG
    if first.kind in (BIT, BYTE):
        return WRONG
    claimed = range(first.position, first.position + max(1, first.size))
    touches = claimed.start <= damage.end and damage.begin <= claimed.stop
    new = damage.data[max(damage.begin, found.position) : min(damage.end, found.end)]
    if first.kind == CUT:
        return RIGHT if damage.kind in ("bytes missing", "file cut") else WRONG
    if damage.begin == damage.end or not touches:
        return WRONG
    if first.kind == ZEROS:  # of other bytes half may be zeros, by chance
        return RIGHT if not any(new) or 2 * first.size >= len(new) else WRONG
    assert first.kind == OTHER
    return RIGHT


def tried(seed: int, folder: Path) -> tuple[str, str, str]:
    """Returns (kind, verdict, what was said) for one random damage; "" where nothing was changed."""
    random = Random(seed)
    sound = random.choice(sound_files())
    damage = random.choice(DAMAGES)(random, sound)
    is_cut_between = damage.kind == "file cut" and damage.begin in (b for b, _ in sound.batches)
    if damage.data == sound.data or not damage.data or is_cut_between:
        return damage.kind, "", ""
    begin = next((b for b, end in reversed(sound.batches) if b <= damage.begin), 0)
    path = folder / sound.name
    path.write_bytes(damage.data)
    found = look(path, begin)
    said = (
        "nothing"
        if found is None or not found.causes
        else f"{found.causes[0].certainty}: {found.causes[0].text}"
    )
    at = f"{damage.begin} to {damage.end} of {sound.name}, {len(sound.data)} bytes"
    return damage.kind, verdict(sound, damage, found), f"{damage.kind} at {at}: {said}"


def main(count: int, seed: int = 1) -> int:
    began, counted = time.monotonic(), Counter[tuple[str, str]]()
    with TemporaryDirectory() as folder:
        for one in range(seed, seed + count):
            kind, answer, said = tried(one, Path(folder))
            counted[kind, answer] += answer != ""
            if answer == WRONG:
                print(f"seed {one}: {said}")
    print(f"{'damage':<24}{RIGHT:>8}{NOT_KNOWN:>9}{WRONG:>7}")
    for kind in sorted({kind for kind, _ in counted}):
        print(f"{kind:<24}{counted[kind, RIGHT]:>8,}{counted[kind, NOT_KNOWN]:>9,}{counted[kind, WRONG]:>7,}")
    wrong = sum(number for (_, answer), number in counted.items() if answer == WRONG)
    print(f"{sum(counted.values()):,} damages, {wrong:,} wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

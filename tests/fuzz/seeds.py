"""What mutation starts from: small real entries of every magic, codec and kind, and a few made ones.

Two forms: as they lie in a file, and open, with the payload expanded where it lies (the codec stays named in
the attributes), so that a change can reach what is inside.
"""

from __future__ import annotations

import struct
from functools import cache

import numpy as np

from tests.support import corpus, kafka_cases, reference_codecs, segment_maker
from tests.support.reference_decoder import decode_entry, entry_size
from tests.support.segment_maker import CONTROL, Batch, Message, Record, wrap

_MOST = 1200  # bytes of a seed
_OF_A_KIND = 4


def entries_of(data: bytes) -> list[bytes]:
    """The entries that a sound segment holds."""
    found, position = [], 0
    while size := entry_size(data, position):
        found.append(data[position : position + size])
        position += size
    return found


def _kind(entry: bytes) -> tuple[int, int, int]:
    """Magic, attributes, and how many records, roughly."""
    if entry[16] == 2:
        attributes, count = struct.unpack_from(">H", entry, 21)[0], struct.unpack_from(">i", entry, 57)[0]
        return 2, attributes, min(count, 3)
    return entry[16], entry[17], 1


def _made() -> list[bytes]:
    headers = ((b"trace", b"abc"), (b"", None), (b"\xff\xfe", b"x" * 20), (b"trace", b""))
    records = [Record(), Record(key=b"", value=b""), Record(key=b"k" * 70, value=b"v" * 200, headers=headers)]
    many = [Record(key=b"%d" % n, value=b"v" * n, timestamp_delta=n * 100) for n in range(25)]
    ends = [Record(key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 7)) for kind in (0, 1, 3, 9)]
    made = [Batch(records, base_offset=7, base_sequence=5, producer_id=9), Batch(many, codec=4)]
    made += [Batch(records * 2, codec=codec) for codec in range(5)] + [Batch(ends, flags=CONTROL), Batch()]
    entries = [batch.encode() for batch in made]
    for magic in (0, 1):
        inner = [Message(magic=magic, offset=n, key=b"k" * n, value=b"v" * 9 * n) for n in range(6)]
        entries += [inner[3].encode(), Message(magic=magic).encode()]
        entries += [wrap(inner, codec=codec, magic=magic).encode() for codec in (1, 2, 3)]
    return entries


def _by_size(entry: bytes) -> tuple[int, bytes]:
    return len(entry), entry  # those of one size too: the order of a set is another one in each process


@cache
def stored() -> tuple[bytes, ...]:
    """Entries as they lie in files: of each kind the smallest few."""
    kinds: dict[tuple[int, int, int], list[bytes]] = {}
    for path in corpus.segments():
        for entry in entries_of(path.read_bytes()):
            if len(entry) <= _MOST:
                kinds.setdefault(_kind(entry), []).append(entry)
    real = [entry for kind in sorted(kinds) for entry in sorted(set(kinds[kind]), key=_by_size)[:_OF_A_KIND]]
    odd = [entry for entry in kafka_cases.CASES.values() if len(entry) <= _MOST]
    return tuple(dict.fromkeys([*real, *_made(), *odd]))


@cache
def opened() -> tuple[bytes, ...]:
    """The same entries, those that decode, with their payload expanded in place."""
    return tuple(dict.fromkeys(o for o in map(_open, stored()) if o is not None and len(o) <= 4 * _MOST))


def _open(entry: bytes) -> bytes | None:
    if decode_entry(entry, 0).quarantine:
        return None
    codec = entry[22 if entry[16] == 2 else 17] & 7
    if codec == 0 or (entry[16] == 2 and len(entry) == 61):
        return entry
    if entry[16] == 2:
        return entry[:61] + reference_codecs.decompress(codec, entry[61:], 1 << 20, magic=2)
    at = 18 if entry[16] == 0 else 26
    at += 8 + max(0, struct.unpack_from(">i", entry, at)[0])
    return entry[:at] + reference_codecs.decompress(codec, entry[at:], 1 << 20, magic=entry[16])


def close(entry: bytes, at: int) -> bytes:
    """An open entry with its payload, from ``at`` on, compressed again by the codec that it names."""
    codec = entry[22 if entry[16] == 2 else 17] & 7
    if not 0 < codec <= (4 if entry[16] == 2 else 3):
        return entry
    payload = segment_maker.compress(codec, entry[at:])
    if entry[16] == 2:
        return entry[:at] + payload
    return entry[: at - 4] + struct.pack(">i", len(payload)) + payload


def packed(entries: tuple[bytes, ...]) -> tuple[np.ndarray, np.ndarray]:
    """All in one uint8 array, and int64 positions where each begins, the end at last."""
    starts = np.cumsum([0, *map(len, entries)], dtype=np.int64)
    return np.frombuffer(b"".join(entries), dtype=np.uint8).copy(), starts

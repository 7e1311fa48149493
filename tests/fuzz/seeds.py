"""What mutation starts from: small real batches of every magic, codec and kind, and a few made ones.

Two forms: as they lie in a file, and open, with the payload expanded where it lies (the codec stays named in
the attributes), so that a change can reach what is inside.
"""

from __future__ import annotations

import struct
from functools import cache

import numpy as np

from tests.support import corpus, kafka_cases, reference_codecs, segment_maker
from tests.support.reference_decoder import batch_size, decode_batch
from tests.support.segment_maker import CONTROL, Batch, Message, Record, wrap

_MOST = 1200  # bytes of a seed
_OF_A_KIND = 4


def batches_of(data: bytes) -> list[bytes]:
    """The batches that a sound segment holds."""
    found, position = [], 0
    while size := batch_size(data, position):
        found.append(data[position : position + size])
        position += size
    return found


def _kind(batch: bytes) -> tuple[int, int, int]:
    """Magic, attributes, and how many records, roughly."""
    if batch[16] == 2:
        attributes, count = struct.unpack_from(">H", batch, 21)[0], struct.unpack_from(">i", batch, 57)[0]
        return 2, attributes, min(count, 3)
    return batch[16], batch[17], 1


def _made() -> list[bytes]:
    headers = ((b"trace", b"abc"), (b"", None), (b"\xff\xfe", b"x" * 20), (b"trace", b""))
    records = [Record(), Record(key=b"", value=b""), Record(key=b"k" * 70, value=b"v" * 200, headers=headers)]
    many = [Record(key=b"%d" % n, value=b"v" * n, timestamp_delta=n * 100) for n in range(25)]
    ends = [Record(key=struct.pack(">hh", 0, kind), value=struct.pack(">hi", 0, 7)) for kind in (0, 1, 3, 9)]
    made = [Batch(records, base_offset=7, base_sequence=5, producer_id=9), Batch(many, codec=4)]
    made += [Batch(records * 2, codec=codec) for codec in range(5)] + [Batch(ends, flags=CONTROL), Batch()]
    batches = [batch.encode() for batch in made]
    for magic in (0, 1):
        inner = [Message(magic=magic, offset=n, key=b"k" * n, value=b"v" * 9 * n) for n in range(6)]
        batches += [inner[3].encode(), Message(magic=magic).encode()]
        batches += [wrap(inner, codec=codec, magic=magic).encode() for codec in (1, 2, 3)]
    return batches


def _by_size(batch: bytes) -> tuple[int, bytes]:
    return len(batch), batch  # those of one size too: the order of a set is another one in each process


@cache
def stored() -> tuple[bytes, ...]:
    """Batches as they lie in files: of each kind the smallest few."""
    kinds: dict[tuple[int, int, int], list[bytes]] = {}
    for path in corpus.segments():
        for batch in batches_of(path.read_bytes()):
            if len(batch) <= _MOST:
                kinds.setdefault(_kind(batch), []).append(batch)
    real = [batch for kind in sorted(kinds) for batch in sorted(set(kinds[kind]), key=_by_size)[:_OF_A_KIND]]
    odd = [batch for batch in kafka_cases.CASES.values() if len(batch) <= _MOST]
    return tuple(dict.fromkeys([*real, *_made(), *odd]))


@cache
def opened() -> tuple[bytes, ...]:
    """The same batches, those that decode, with their payload expanded in place."""
    return tuple(dict.fromkeys(o for o in map(_open, stored()) if o is not None and len(o) <= 4 * _MOST))


def _open(batch: bytes) -> bytes | None:
    if decode_batch(batch, 0).quarantine:
        return None
    codec = batch[22 if batch[16] == 2 else 17] & 7
    if codec == 0 or (batch[16] == 2 and len(batch) == 61):
        return batch
    if batch[16] == 2:
        return batch[:61] + reference_codecs.decompress(codec, batch[61:], 1 << 20, magic=2)
    at = 18 if batch[16] == 0 else 26
    at += 8 + max(0, struct.unpack_from(">i", batch, at)[0])
    return batch[:at] + reference_codecs.decompress(codec, batch[at:], 1 << 20, magic=batch[16])


def close(batch: bytes, at: int) -> bytes:
    """An open batch with its payload, from ``at`` on, compressed again by the codec that it names."""
    codec = batch[22 if batch[16] == 2 else 17] & 7
    if not 0 < codec <= (4 if batch[16] == 2 else 3):
        return batch
    payload = segment_maker.compress(codec, batch[at:])
    if batch[16] == 2:
        return batch[:at] + payload
    return batch[: at - 4] + struct.pack(">i", len(payload)) + payload


def packed(batches: tuple[bytes, ...]) -> tuple[np.ndarray, np.ndarray]:
    """All in one uint8 array, and int64 positions where each begins, the end at last."""
    starts = np.cumsum([0, *map(len, batches)], dtype=np.int64)
    return np.frombuffer(b"".join(batches), dtype=np.uint8).copy(), starts

"""Keys and values with changed bytes: each is a value or has a known reason, by column as by itself.

An input is a column of payloads of one topic's side: a line with both names, then each payload after its
length, an int32; -1 for null.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.values.json.structs import text
from kafka_log_lake.udfs.values.schemas.payload import ERROR_CLASSES
from kafka_log_lake.udfs.values.schemas.payloads import KEY, VALUE
from kafka_log_lake.udfs.values.typed.columns import SideDecoder
from kafka_log_lake.udfs.values.typed.functions import TypedFunctions
from tests.fuzz.costs import LARGE
from tests.support import typed_corpus as corpus

ROWS = 64
_LENGTH = struct.Struct(">i")
_LIES = (
    b"\xff\xff\xff\xff\x0f",
    b"\xfe" + b"\xff" * 8 + b"\x01",
    b"\x80" * 9 + b"\x01",
    b"\x01",
    b"\x7f",
    b"",
)


def is_payloads(path: Path) -> bool:
    """Whether a kept input is a column of payloads."""
    return path.stem.startswith("payloads-")


def pack(topic: str, side: str, column: list[bytes | None]) -> bytes:
    parts = [_LENGTH.pack(-1) if one is None else _LENGTH.pack(len(one)) + one for one in column]
    return f"{topic} {side}\n".encode() + b"".join(parts)


def unpack(data: bytes) -> tuple[str, str, list[bytes | None]]:
    head, _, left = data.partition(b"\n")
    topic, side = head.decode().split()
    column: list[bytes | None] = []
    while left:
        (size,) = _LENGTH.unpack_from(left)
        column.append(None if size < 0 else left[4 : 4 + size])
        left = left[4 + max(size, 0) :]
    return topic, side, column


@cache
def sound(topic: str, side: str) -> list[bytes]:
    return [row[side] for row in corpus.records(topic).values() if row[side]]


def damaged(payload: bytes, rng: random.Random) -> bytes:
    """A payload of which something is wrong, mostly after the schema id."""
    made = bytearray(payload)
    if rng.random() < 0.1:
        made[rng.randrange(min(7, len(made)))] ^= 1 << rng.randrange(8)
    at = rng.randrange(min(5, len(made) - 1), len(made))
    kind = rng.randrange(5)
    if kind == 0:
        made[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        made[at : at + 1] = rng.choice(_LIES)
    elif kind == 2:
        del made[at:]
    elif kind == 3:
        made[at : at + rng.randrange(8)] = rng.randbytes(rng.randrange(8))
    else:
        made += made[5:] * rng.randrange(1, 4)
    return bytes(made)


def columns(seed: int) -> Iterator[bytes]:
    """Inputs without end, the same ones for the same seed."""
    rng = random.Random(seed)
    places = [(topic, side) for topic in corpus.TOPICS for side in (KEY, VALUE) if sound(topic, side)]
    while True:
        topic, side = rng.choice(places)
        some = [damaged(rng.choice(sound(topic, side)), rng) for _ in range(ROWS)]
        column: list[bytes | None] = [one if rng.random() < 0.98 else None for one in some]
        data = pack(topic, side, column)
        if len(data) < LARGE:
            yield data


@cache
def _functions() -> TypedFunctions:
    return TypedFunctions(corpus.registry())


def examine(data: bytes, count: Callable[[int], None] = lambda decoded: None) -> None:
    """Fails where an input breaks a rule. count: called with the payloads that decode."""
    topic, side, payloads = unpack(data)
    decoder = SideDecoder(corpus.reader(), topic, side)
    column = pa.array(payloads, pa.binary())
    found = decoder.decode(column)
    values = found.column(decoder.types)
    values.validate(full=True)
    wrong = dict(found.wrong)
    texts = _functions().kafka_payload_json(
        pa.repeat(topic, len(column)), pa.repeat(side, len(column)), column, None
    )
    texts.validate(full=True)
    decoded = np.zeros(len(column), np.bool_)
    for _, rows, _ in found.parts:
        assert not decoded[rows].any(), "a row twice"
        decoded[rows] = True
    for row, payload in enumerate(payloads):
        one = corpus.reader().read(topic, side, payload)
        assert one.reason is None or one.reason in ERROR_CLASSES, one.reason
        assert (row in wrong) == (one.reason is not None), "the column and the exact reader differ"
        assert decoded[row] == (payload is not None and one.reason is None), "a row without value or reason"
        is_text = payload is not None and one.reason is None
        assert texts[row].as_py() == (text(one.value) if is_text else None), "the text differs"
    count(int(decoded.sum()))

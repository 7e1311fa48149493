"""Payloads with flipped bits, lying lengths and huge counts: a value or a reason each, in bounded memory."""

from __future__ import annotations

import random
import tracemalloc

import pyarrow as pa
import pytest

from tests.support import typed_corpus as corpus
from udfs.values.payload import ERROR_CLASSES
from udfs.values.typed_columns import SideDecoder

LIES = (b"\xff\xff\xff\xff\x0f", b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80" * 9 + b"\x01", b"\x01", b"\x7f")
ROWS = 400
TOPICS = (
    *("avro-nested", "avro-recursive", "avro-logical", "pb-kinds", "pb-wkt", "pb-proto2", "pb-txn"),
    *("json-schema", "mix-all"),
)


def damaged(payload: bytes, rng: random.Random) -> bytes:
    """A payload of which something is wrong, mostly behind the schema id."""
    made = bytearray(payload)
    if rng.random() < 0.1:
        made[rng.randrange(min(7, len(made)))] ^= 1 << rng.randrange(8)
    at = rng.randrange(min(5, len(made) - 1), len(made))
    kind = rng.randrange(5)
    if kind == 0:
        made[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        made[at : at + 1] = rng.choice(LIES)
    elif kind == 2:
        del made[at:]
    elif kind == 3:
        made[at : at + rng.randrange(8)] = rng.randbytes(rng.randrange(8))
    else:
        made += made[5:] * rng.randrange(1, 4)
    return bytes(made)


@pytest.mark.parametrize("topic", TOPICS)
def test_damaged_payloads_are_values_or_reasons(topic: str) -> None:
    rng = random.Random(topic)
    sound = [row["value"] for row in corpus.records(topic).values() if row["value"]]
    payloads = [damaged(rng.choice(sound), rng) for _ in range(ROWS)]
    decoder = SideDecoder(corpus.reader(), topic, "value")
    tracemalloc.start()
    found = decoder.decode(pa.array(payloads, pa.binary()))
    column = found.column(decoder.types)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    column.validate(full=True)
    wrong = dict(found.wrong)
    assert len(column) == ROWS
    assert wrong
    assert all(one.reason in ERROR_CLASSES for one in wrong.values())
    assert all(column[row].as_py() is None for row in wrong)
    assert peak < 64 << 20  # a count or a length that lies takes no memory

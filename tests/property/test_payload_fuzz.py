"""Payloads with flipped bits, lying lengths and huge counts: a value or a reason each, in bounded memory."""

from __future__ import annotations

import random
import tracemalloc

import pyarrow as pa
import pytest

from kafka_log_lake.udfs.values.schemas.payload import ERROR_CLASSES
from kafka_log_lake.udfs.values.typed.columns import SideDecoder
from tests.fuzz.payloads import damaged
from tests.support import typed_corpus as corpus

ROWS = 400
TOPICS = (
    *("avro-nested", "avro-recursive", "avro-logical", "pb-kinds", "pb-wkt", "pb-proto2", "pb-txn"),
    *("json-schema", "mix-all"),
)


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

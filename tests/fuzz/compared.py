"""The compiled decoder held to others: to its own plain form, and to Kafka's Java library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from tests.fuzz import checks, plain
from tests.fuzz.segments import Maker
from tests.kafka.reader import read_segments
from tests.support import fast, mutations, strategies
from tests.support.fast import BytesSource
from tests.support.reference_decoder import Decoded, batch_size

KAFKA_LIMIT = 4 << 20
_OF_RECORDS = ("offset", "timestamp_ms", "key", "value", "headers", "sequence", "size_bytes", "control_type")
_CUT = ("inner message:", "messageSize of an inner message:")  # at the end of a wrapper


def check_plain(data: bytes, window: int = 1 << 20, **how: Any) -> None:
    """Compiled and plain give the same batches, columns, damages and sums."""
    window = max(1, min(window, len(data)))
    compiled = checks.outcome(
        SegmentDecoder(BytesSource(data), Range(len(data), **how), window, checks.LIMIT)
    )
    with np.errstate(all="ignore"):  # what wraps in a kernel warns in NumPy
        other = checks.outcome(plain.decoder(BytesSource(data), window, checks.LIMIT, len(data), **how))
    assert vars(compiled.totals) == vars(other.totals)
    assert [vars(d) for d in compiled.damages] == [vars(d) for d in other.damages]
    for mine, theirs in zip(compiled.batches, other.batches, strict=True):
        assert mine.tolist() == theirs.tolist()
    for one, two in zip(compiled.records, other.records, strict=True):
        assert one.equals(two)


@st.composite
def _changed(draw: st.DrawFn) -> bytes:
    return Maker(draw(st.integers(0, (1 << 63) - 1))).segment()


inputs = (
    strategies.segments().map(b"".join)
    | st.lists(mutations.lying_batches(), min_size=1, max_size=3).map(b"".join)
    | _changed()
    | st.binary(max_size=200)
)
windows = st.sampled_from([64, 100, 333, 1 << 20])


def drawn_difference(seed_number: int, count: int, take: Callable[[bytes], None]) -> bytes | None:
    """The smallest of ``count`` drawn inputs on which compiled and plain differ; None: they agree."""
    failed: list[bytes] = []

    @seed(seed_number)
    @settings(max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(inputs, windows, st.booleans())
    def agree(data: bytes, window: int, has_successor: bool) -> None:
        take(data)
        try:
            check_plain(data, window, has_successor=has_successor)
        except Exception:
            failed.append(data)
            raise

    try:
        agree()
    except Exception:
        return failed[-1]
    return None


def _stricter(batch: dict[str, Any], decoded: Decoded) -> bool:
    """Where the contract asks more than Kafka does: an unknown magic, records that Kafka drops in silence."""
    if not 0 <= batch["magic"] <= 2:
        return [row["reason"] for row in decoded.quarantine] == ["unknown_magic"]
    row = decoded.batches[0]
    if row["magic"] == 2:
        return batch["declared_count"] == 0 and row["status"] == "invalid"
    return batch["compression"] != "none" and row["error"].startswith(_CUT)


def check_kafka(data: bytes, kafka: list[dict[str, Any]]) -> str:
    """One batch, against what Kafka's library made of it: "read", "refused", "stricter" or "unframed".

    Unframed: the batch's length is wrong. Kafka gives up on the rest of the file, this project looks for
    what follows; that the bytes are accounted for is all there is to check.
    """
    decoded = fast.decode(data, limit=KAFKA_LIMIT)
    accounted = decoded.totals.sound_bytes + decoded.totals.quarantined_bytes + decoded.tail_bytes
    assert accounted == len(data)
    known = len(data) > 16 and data[16] <= 2
    if len(kafka) != 1 or kafka[0].get("size_bytes") != len(data) or (known and not batch_size(data, 0)):
        return "unframed"
    (batch,) = kafka
    if batch["refused"]:
        assert not decoded.records, batch["refused"]
        empty = data[16] == 2 and len(data) == 61  # no records: the header is all there is
        assert decoded.quarantine or empty, batch["refused"]
        return "refused"
    if decoded.quarantine and _stricter(batch, decoded):
        assert not decoded.records
        return "stricter"
    got = [{name: row[name] for name in _OF_RECORDS} for row in decoded.records]
    want = [{name: row[name] for name in _OF_RECORDS} for row in batch["records"]]
    assert got == want, [row["error"] for row in decoded.batches]
    return "read"


def kafka_round(seed_number: int, count: int) -> tuple[dict[str, int], list[tuple[bytes, str]]]:
    """``count`` changed batches, judged by Kafka in one run: how many of each verdict, and what differs."""
    maker = Maker(seed_number)
    made = [maker.batch() for _ in range(count)]
    verdicts = dict.fromkeys(("read", "refused", "stricter", "unframed"), 0)
    differing = []
    for data, kafka in zip(made, read_segments(made), strict=True):
        try:
            verdicts[check_kafka(data, kafka)] += 1
        except AssertionError as error:
            differing.append((data, str(error)))
    return verdicts, differing

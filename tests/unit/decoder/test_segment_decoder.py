"""The compiled decoder held to the plain one on drawn segments: columns, windows, slices, damage."""

from __future__ import annotations

import struct
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.udfs.decoder.segment_decoder import WINDOW_BYTES
from tests.support import fast, mutations, reference_decoder, strategies
from tests.support.agreement import batch_to_compare, check_batch, check_record
from tests.support.drawn import examples, first, step_of
from tests.support.reference_decoder import Decoded
from tests.support.segment_maker import CODEC_NAMES, ZSTD, Batch, Record

LIMIT = 1 << 20
QUICK = examples(60)
windows = st.sampled_from([64, 100, 333, 4096, WINDOW_BYTES])


def _check_equal(decoded: Decoded, expected: Decoded) -> None:
    for row, want in zip(decoded.batches, map(batch_to_compare, expected.batches), strict=True):
        check_batch(row, want)
    for row, want in zip(decoded.records, expected.records, strict=True):
        check_record(row, want)
    ranges = [(q["position"], q["size_bytes"]) for q in expected.quarantine]
    assert [(q["position"], q["size_bytes"]) for q in decoded.quarantine] == ranges
    assert (decoded.tail, decoded.tail_bytes) == (expected.tail, expected.tail_bytes)


@QUICK
@given(strategies.segments().map(b"".join), windows)
def test_sound_segments_equal_the_reference_through_any_window(data: bytes, window: int) -> None:
    _check_equal(fast.decode(data, window_bytes=window), reference_decoder.decode(data))


@examples(150)
@given(st.lists(mutations.lying_batches(), min_size=1, max_size=4).map(b"".join), windows)
def test_content_that_lies_equals_the_reference(data: bytes, window: int) -> None:
    _check_equal(
        fast.decode(data, window_bytes=window, limit=LIMIT), reference_decoder.decode(data, limit=LIMIT)
    )


def _in_slices(data: bytes, cuts: list[int]) -> Decoded | None:
    """The segment decoded in slices, each but the first looking for its own start; None: no chain.

    There is no chain where a slice does not begin where the one before it ended: a run sees that, and decodes
    the segment again in one piece.
    """
    joined = Decoded()
    end = 0
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if end >= stop:
            continue
        part = fast.decode(data, start=start, stop=stop, exact=start == 0)
        if part.totals.begin != end:
            return None
        end = part.totals.end
        joined.records += part.records
        joined.batches += part.batches
    assert end == len(data)
    return joined


@QUICK
@given(strategies.segments().map(b"".join), st.data())
def test_slices_that_chain_give_the_whole(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=4)))
    joined, whole = _in_slices(data, cuts), fast.decode(data)
    if joined is not None:
        assert (joined.records, joined.batches) == (whole.records, whole.batches)


@pytest.mark.parametrize("codec", first(2, CODEC_NAMES))
def test_slices_of_an_ordinary_segment_chain_wherever_it_is_cut(codec: str) -> None:
    records = [Record(key=b"key", value=b"value %d" % place, timestamp_delta=place) for place in range(3)]
    batches = [Batch(records, codec=CODEC_NAMES.index(codec), base_offset=3 * n) for n in range(4)]
    data = b"".join(batch.encode() for batch in batches)
    whole = fast.decode(data)
    for cut in range(1, len(data), 1 if codec == "none" else step_of(5)):
        joined = _in_slices(data, [cut])
        assert joined is not None
        assert (joined.records, joined.batches) == (whole.records, whole.batches)


@QUICK
@given(strategies.segments(), st.data())
def test_going_on_at_a_batch_gives_the_rest(batches: list[bytes], draw: st.DataObject) -> None:
    data = b"".join(batches)
    start = len(b"".join(batches[: draw.draw(st.integers(0, len(batches)))]))
    whole, rest = fast.decode(data), fast.decode(data, start=start)
    assert rest.batches == [row for row in whole.batches if row["position"] >= start]
    assert rest.records == [row for row in whole.records if row["batch_position"] >= start]


@st.composite
def broken(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    """The batches of a segment, and its bytes with some changed in place."""
    batches = draw(strategies.segments())
    data = bytearray(b"".join(batches))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] ^= draw(st.sampled_from([1, 0x80, 0xFF]) | st.integers(1, 255))
    return batches, bytes(data)


@examples(200)
@given(broken(), windows, st.booleans())
def test_every_byte_of_a_broken_segment_is_accounted_for(
    made: tuple[list[bytes], bytes], window: int, has_successor: bool
) -> None:
    _, data = made
    decoded = fast.decode(data, window_bytes=window, has_successor=has_successor, limit=LIMIT)
    damaged = {q["position"] for q in decoded.quarantine}
    ranges = [
        (row["position"], row["size_bytes"]) for row in decoded.batches if row["position"] not in damaged
    ]
    ranges += [(q["position"], q["size_bytes"]) for q in decoded.quarantine]
    ranges += [(len(data) - decoded.tail_bytes, decoded.tail_bytes)] if decoded.tail_bytes else []
    position = 0
    for start, size in sorted(ranges):
        assert start == position
        position += size
    assert position == len(data)
    for row in decoded.quarantine:
        assert row["next_position"] == row["position"] + row["size_bytes"]
        assert row["content"] == data[row["position"] : row["next_position"]]
        assert row["reason"]
        assert row["detail"]
    summary = decoded.totals
    assert summary.sound_bytes + summary.quarantined_bytes + summary.tail_bytes == len(data)
    assert (summary.batches, summary.records) == (len(decoded.batches), len(decoded.records))


@examples(400, derandomize=True)
@given(broken(), windows)
def test_damage_costs_only_the_batches_that_it_hits(made: tuple[list[bytes], bytes], window: int) -> None:
    """But for a torn tail: a header that claims more than the segment has may hide what follows."""
    batches, data = made
    decoded = fast.decode(data, window_bytes=window, limit=LIMIT)
    found = {row["position"] for row in decoded.batches if row["crc_ok"]}
    position = 0
    for batch in batches:
        if data[position : position + len(batch)] == batch:
            assert position in found or position >= len(data) - decoded.tail_bytes
        position += len(batch)


@QUICK
@given(st.binary(max_size=400))
def test_bytes_of_any_kind_give_no_record(data: bytes) -> None:
    decoded = fast.decode(data)
    assert not decoded.records
    assert sum(q["size_bytes"] for q in decoded.quarantine) + decoded.tail_bytes == len(data)


@cache
def _many_records(count: int) -> bytes:
    return b"".join(
        Record(value=struct.pack(">i", place), offset_delta=place).encode() for place in range(count)
    )


def _many(count: int, after: bytes = b"") -> bytes:
    """One batch of very many records, each with its own offset and value, and bytes after the last."""
    payload = _many_records(count) + after
    return Batch(
        codec=ZSTD, payload=payload, count=count, last_offset_delta=count - 1, base_offset=7
    ).encode()


def test_a_batch_of_very_many_records_comes_whole_and_in_order() -> None:
    count = 140_000
    decoded = fast.decode(_many(count))
    assert [row["offset"] for row in decoded.records] == list(range(7, 7 + count))
    assert [row["value"] for row in decoded.records] == [struct.pack(">i", place) for place in range(count)]
    (batch,) = decoded.batches
    assert (batch["record_count"], batch["status"]) == (count, "ok")
    assert batch["value_bytes"] == 4 * count


def test_a_late_fault_in_a_batch_of_very_many_records_lets_none_through() -> None:
    whole, cut = _many(140_000), _many(140_000, after=b"\0")
    decoded = fast.decode(cut + whole)
    assert {row["batch_position"] for row in decoded.records} == {len(cut)}
    assert [(row["status"], row["record_count"]) for row in decoded.batches] == [
        ("invalid", 0),
        ("ok", 140_000),
    ]
    assert [(q["position"], q["reason"]) for q in decoded.quarantine] == [(0, "invalid_record")]


@pytest.mark.parametrize("window", [100, 5000, WINDOW_BYTES])
def test_a_batch_larger_than_the_window_is_read(window: int) -> None:
    value = bytes(range(256)) * 40
    data = b"".join(Batch([Record(value=value)], base_offset=offset).encode() for offset in range(3))
    decoded = fast.decode(data, window_bytes=window)
    assert [(row["offset"], row["value"]) for row in decoded.records] == [
        (offset, value) for offset in range(3)
    ]


def test_offsets_that_go_back_between_batches_are_counted_and_are_no_damage() -> None:
    batches = [Batch([Record()], base_offset=offset).encode() for offset in (5, 6, 6, 2, 9)]
    decoded = fast.decode(b"".join(batches))
    assert decoded.totals.offset_regressions == 2
    assert {row["status"] for row in decoded.batches} == {"ok"}

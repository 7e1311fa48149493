"""Where batches end and what is none: lengths, magics, garbage, torn and zero tails, the way back.

The cases are the contract's, and those of Kafka's own ByteBufferLogInputStreamTest.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.support.damage import AFTER, BEFORE, judge, sound
from tests.support.fast import decode
from tests.support.reference_decoder import Decoded
from tests.support.segment_maker import GZIP, Batch, Message, Record, flip, wrap

pytestmark = pytest.mark.sampled

START = b"".join(BEFORE)
V0 = Message(magic=0, offset=100, value=b"value").encode()
V1 = Message(magic=1, offset=100, value=b"value").encode()
WRAPPER = wrap([Message(magic=1, offset=o, value=b"v") for o in (100, 101)], codec=GZIP).encode()
V2 = sound(100)
BATCHES = {"magic 0": V0, "magic 1": V1, "wrapper": WRAPPER, "magic 2": V2}
batches = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())


def _with_length(batch: bytes, length: int) -> bytes:
    return batch[:8] + struct.pack(">i", length) + batch[12:]


def _with_magic(batch: bytes, magic: int) -> bytes:
    return batch[:16] + bytes([magic]) + batch[17:]


def _ranges(decoded: Decoded) -> list[tuple[int, int]]:
    return [(row["position"], row["size_bytes"]) for row in decoded.quarantine]


def _offsets(decoded: Decoded) -> list[int]:
    return [row["offset"] for row in decoded.records]


# Lengths and magics, with sound batches before and after


@batches
@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 1, 13, 100_000, (1 << 31) - 1])
def test_a_length_that_can_not_be_costs_one_batch(batch: bytes, length: int) -> None:
    broken = _with_length(batch, length)
    verdict = judge(broken)
    assert verdict.reasons == ["invalid_header"]
    assert not verdict.records
    (row,) = verdict.quarantine
    assert row["size_bytes"] == len(batch)


@pytest.mark.parametrize(("batch", "length"), [(V0, 13), (V1, 21), (V2, 48)], ids=["0", "1", "2"])
def test_one_byte_less_than_the_least_length_is_no_batch(batch: bytes, length: int) -> None:
    verdict = judge(_with_length(batch, length))
    assert (verdict.reasons, verdict.batch) == (["invalid_header"], None)


@batches
@pytest.mark.parametrize("change", [-10, -1, 1, 10, 60])
def test_a_length_that_is_a_little_wrong_costs_one_batch(batch: bytes, change: int) -> None:
    (length,) = struct.unpack_from(">i", batch, 8)
    verdict = judge(_with_length(batch, length + change))
    assert not verdict.records
    assert sum(row["size_bytes"] for row in verdict.quarantine) == len(batch)


@batches
@pytest.mark.parametrize("magic", [3, 4, 127, 128, 255])
def test_an_unknown_magic_is_passed_over_by_its_length(batch: bytes, magic: int) -> None:
    verdict = judge(_with_magic(batch, magic))
    assert verdict.reasons == ["unknown_magic"]
    assert (verdict.batch, verdict.records) == (None, [])
    (row,) = verdict.quarantine
    assert row["size_bytes"] == len(batch)


@pytest.mark.parametrize(("batch", "magic"), [(V2, 1), (V2, 0), (V1, 0)], ids=["2 as 1", "2 as 0", "1 as 0"])
def test_a_magic_of_another_format_fails_by_its_checksum(batch: bytes, magic: int) -> None:
    verdict = judge(_with_magic(batch, magic))
    assert (verdict.reasons, verdict.status) == (["crc_mismatch"], "corrupt")


@pytest.mark.parametrize("size", [1, 16, 17, 61, 1000])
def test_garbage_between_batches_costs_no_batch(size: int) -> None:
    verdict = judge(b"\xee" * size)
    assert sum(row["size_bytes"] for row in verdict.quarantine) == size
    assert not verdict.records


@pytest.mark.parametrize("size", [1, 17, 200])
def test_zeros_between_batches_are_damage(size: int) -> None:
    verdict = judge(bytes(size))
    assert sum(row["size_bytes"] for row in verdict.quarantine) == size


def test_neighbours_that_are_both_corrupt_are_distinguished() -> None:
    decoded = decode(START + flip(sound(100), -1) + flip(sound(103), -1) + b"".join(AFTER))
    at = len(START)
    assert _ranges(decoded) == [(at, len(V2)), (at + len(V2), len(V2))]
    assert [row["status"] for row in decoded.batches] == ["ok", "ok", "corrupt", "corrupt", "ok", "ok"]


def test_two_lengths_past_the_end_hide_no_sound_batch() -> None:
    """Of the first batch the payload is damaged too, so that nothing but offsets says where it ended."""
    first, between, second, last = sound(96), sound(99), sound(102), sound(105)
    data = START + flip(_with_length(first, 1 << 27), -1) + between + _with_length(second, 1 << 20) + last
    decoded = decode(data)
    at = len(START)
    assert _ranges(decoded) == [(at, len(first)), (at + len(first) + len(between), len(second))]
    assert _offsets(decoded) == [*range(90, 96), *range(99, 102), *range(105, 108)]
    assert decoded.tail == "none"


# The way back


def test_a_byte_too_many_hides_no_batch_after_it() -> None:
    """Shifted by that byte a header claims more than there is, and an offset that no log goes on with."""
    decoded = decode(START + b"\x0f" + sound(96))
    assert _ranges(decoded) == [(len(START), 1)]
    assert (_offsets(decoded)[-3:], decoded.tail) == ([96, 97, 98], "none")


def test_two_bytes_too_few_hide_no_message_after_them() -> None:
    messages = [Message(magic=1, offset=offset, value=b"value").encode() for offset in range(96, 100)]
    decoded = decode(START + messages[0][2:] + b"".join(messages[1:]))
    assert _ranges(decoded) == [(len(START), len(messages[0]) - 2)]
    assert (_offsets(decoded)[-3:], decoded.tail) == ([97, 98, 99], "none")


def test_damage_at_the_start_of_a_segment() -> None:
    decoded = decode(b"\xee" * 300 + START)
    assert _ranges(decoded) == [(0, 300)]
    assert _offsets(decoded) == [90, 91, 92, 93, 94, 95]


def test_damage_after_a_batch_whose_offset_is_far_too_high() -> None:
    """The base offset lies outside the checksum: a wrong one must not hide what follows."""
    high = flip(sound(100), 1, 0x10)
    broken = _with_length(sound(103), 1 << 20)
    decoded = decode(START + high + broken + b"".join(AFTER))
    assert _offsets(decoded)[-6:] == [200, 201, 202, 203, 204, 205]
    assert _ranges(decoded) == [(len(START + high), len(broken))]


def test_a_break_after_offsets_that_go_back_hides_nothing() -> None:
    parts = [sound(5000), _with_length(sound(10), 1 << 20), sound(20), sound(30)]
    decoded = decode(b"".join(parts))
    assert _offsets(decoded) == [5000, 5001, 5002, 20, 21, 22, 30, 31, 32]
    assert _ranges(decoded) == [(len(parts[0]), len(parts[1]))]


ODD: dict[str, Batch | Message] = {  # read by Kafka, made by none
    "magic 2, a bit of no meaning": Batch([Record()], base_offset=300, flags=1 << 9),
    "magic 2, a producer id of -2": Batch([Record()], base_offset=300, producer_id=-2),
    "magic 2, offset below 0": Batch([Record()], base_offset=-300),
    "magic 1, a bit of no meaning": Message(magic=1, offset=300, attributes=1 << 6),
    "magic 0, bytes after the value": Message(magic=0, offset=300, surplus=b"xyz"),
}


@pytest.mark.parametrize("size", [1, 300, 70_000])
@pytest.mark.parametrize("batch", ODD.values(), ids=ODD.keys())
def test_a_batch_with_an_odd_header_is_found_where_no_other_is_left(
    batch: Batch | Message, size: int
) -> None:
    decoded = decode(START + b"\xee" * size + batch.encode())
    assert _ranges(decoded) == [(len(START), size)]
    assert decoded.batches[-1]["position"] == len(START) + size


@pytest.mark.parametrize("batch", ODD.values(), ids=ODD.keys())
def test_a_batch_with_an_odd_header_is_not_passed_over(batch: Batch | Message) -> None:
    broken, odd = _with_length(sound(100), 1 << 24), batch.encode()
    decoded = decode(START + broken + odd + b"".join(AFTER))
    assert _ranges(decoded) == [(len(START), len(broken))]
    assert len(START) + len(broken) in [row["position"] for row in decoded.batches]


@pytest.mark.parametrize("inner_offset", [0, 1000])
@pytest.mark.parametrize("damage", ["length", "checksum", "magic"])
def test_batches_inside_a_value_are_not_taken_for_the_log(inner_offset: int, damage: str) -> None:
    """A backup or mirror topic: values are Kafka batches, and the batch around them is damaged."""
    value = b"".join(sound(inner_offset + 3 * n) for n in range(5))
    host = Batch([Record(value=value)], base_offset=100).encode()
    broken = {
        "length": _with_length(host, 1 << 24),
        "checksum": flip(host, 25),
        "magic": _with_magic(host, 3),
    }[damage]
    verdict = judge(broken)
    assert not verdict.records
    (row,) = verdict.quarantine
    assert row["size_bytes"] == len(host)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_inside_the_last_value_are_not_taken_for_the_log(magic: int) -> None:
    """They end where the segment ends, so they lead to its end as the log does: the length decides."""
    value = b"".join(Message(magic=magic, offset=offset, value=b"inner").encode() for offset in (300, 301))
    host = Message(magic=magic, offset=100, value=value).encode()
    decoded = decode(START + flip(host, 14))
    assert _ranges(decoded) == [(len(START), len(host))]
    assert _offsets(decoded) == [90, 91, 92, 93, 94, 95]


# Tails


@batches
@pytest.mark.parametrize("has_successor", [False, True])
def test_a_batch_cut_anywhere_is_a_torn_tail_or_truncated(batch: bytes, has_successor: bool) -> None:
    for kept in range(1, len(batch)):
        rest = batch[:kept]
        decoded = decode(START + rest, has_successor=has_successor)
        assert _offsets(decoded) == [90, 91, 92, 93, 94, 95]
        if not rest.strip(b"\0"):
            assert (decoded.tail, decoded.tail_bytes, _ranges(decoded)) == ("zeros", kept, [])
        elif has_successor:
            assert _ranges(decoded) == [(len(START), kept)]
            assert (decoded.quarantine[0]["reason"], decoded.tail_bytes) == ("truncated", 0)
        else:
            assert (decoded.tail, decoded.tail_bytes, _ranges(decoded)) == ("torn", kept, [])


@pytest.mark.parametrize("size", [1, 16, 17, 100, 5000])
@pytest.mark.parametrize("has_successor", [False, True])
def test_zeros_to_the_end_are_a_tail(size: int, has_successor: bool) -> None:
    decoded = decode(START + bytes(size), has_successor=has_successor)
    assert (decoded.tail, decoded.tail_bytes) == ("zeros", size)
    assert not decoded.quarantine


def test_zeros_after_a_corrupt_batch_are_a_tail() -> None:
    decoded = decode(START + flip(V2, -1) + bytes(500))
    assert _ranges(decoded) == [(len(START), len(V2))]
    assert (decoded.tail, decoded.tail_bytes) == ("zeros", 500)


def test_a_torn_tail_after_a_corrupt_batch_stays_one() -> None:
    decoded = decode(START + flip(V2, -1) + sound(103)[:40])
    assert _ranges(decoded) == [(len(START), len(V2))]
    assert (decoded.tail, decoded.tail_bytes) == ("torn", 40)


@pytest.mark.parametrize("size", [17, 100, 5000])
def test_garbage_to_the_end_is_damage(size: int) -> None:
    decoded = decode(START + b"\xee" * size)
    assert _ranges(decoded) == [(len(START), size)]
    assert decoded.tail_bytes == 0


def test_an_unknown_magic_at_the_end_is_damage() -> None:
    decoded = decode(START + _with_magic(V2, 3))
    assert [row["reason"] for row in decoded.quarantine] == ["unknown_magic"]
    assert decoded.tail_bytes == 0


def test_an_illegal_length_at_the_end_is_damage() -> None:
    decoded = decode(START + _with_length(V2, 48))
    assert [row["reason"] for row in decoded.quarantine] == ["invalid_header"]
    assert decoded.tail_bytes == 0


@pytest.mark.parametrize("data", [b"", b"\0", bytes(1000)], ids=["nothing", "one zero", "zeros"])
def test_a_segment_without_a_batch(data: bytes) -> None:
    decoded = decode(data)
    assert (decoded.batches, decoded.records, decoded.quarantine) == ([], [], [])
    assert (decoded.tail, decoded.tail_bytes) == ("zeros" if data else "none", len(data))


def test_one_segment_may_mix_all_magics() -> None:
    parts: list[Any] = [
        Message(magic=0, offset=1),
        Message(magic=1, offset=2),
        wrap([Message(magic=0, offset=3), Message(magic=0, offset=4)], codec=GZIP, magic=0),
        Batch([Record()], base_offset=5),
        wrap([Message(offset=6), Message(offset=7)], codec=GZIP),
        Batch([Record()], base_offset=8),
        Message(magic=0, offset=9),
    ]
    decoded = decode(b"".join(part.encode() for part in parts))
    assert _offsets(decoded) == list(range(1, 10))
    assert [row["magic"] for row in decoded.batches] == [0, 1, 0, 2, 1, 2, 0]

"""Values that hold Kafka batches of their own (backups, mirrors): none of them becomes a record of the log.

Their host is damaged, in its header or its bytes, so the log has to be found again after it, among any
number of batches with right checksums. And the other way round: no sound batch of the log is given up.
"""

from __future__ import annotations

import struct

import pytest

from tests.support import fast
from tests.support.damage import AFTER, BEFORE, judge, sound
from tests.support.reference_decoder import Decoded
from tests.support.segment_maker import Batch, Message, Record, flip

pytestmark = pytest.mark.sampled

START = b"".join(BEFORE)
NUMBERS = [1, 5, 63, 64, 65, 500, 3000]


def _with_length(batch: bytes, length: int) -> bytes:
    return batch[:8] + struct.pack(">i", length) + batch[12:]


def _offsets(decoded: Decoded) -> list[int]:
    return [row["offset"] for row in decoded.records]


def _ranges(decoded: Decoded) -> list[tuple[int, int]]:
    return [(row["position"], row["size_bytes"]) for row in decoded.quarantine]


def _value(number: int, between: bytes, first_offset: int) -> bytes:
    return between.join(sound(first_offset + 3 * n) for n in range(number))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("between", [b"", b"\xee", bytes(40)], ids=["chained", "apart", "zeros between"])
@pytest.mark.parametrize("first_offset", [0, 103, 1000], ids=["below", "as the log goes on", "above"])
@pytest.mark.parametrize("damage", ["length", "length within", "bytes", "magic"])
def test_no_batch_of_a_value_is_taken_for_the_log(
    number: int, between: bytes, first_offset: int, damage: str
) -> None:
    value = _value(number, between, first_offset)
    host = Batch([Record(value=value)] * 2, base_offset=96).encode()
    broken = {
        "length": _with_length(host, 1 << 28),
        "length within": _with_length(host, len(host) // 2),
        "bytes": flip(host, 25),
        "magic": host[:16] + b"\x03" + host[17:],
    }[damage]
    verdict = judge(broken)
    assert not verdict.records
    (row,) = verdict.quarantine
    assert row["size_bytes"] == len(host)


@pytest.mark.parametrize("number", NUMBERS)
def test_nor_where_nothing_is_left_of_the_header(number: int) -> None:
    """Their offsets do not lie between those of the log before and after."""
    host = Batch([Record(value=_value(number, b"\xee", 1000))], base_offset=100).encode()
    verdict = judge(bytes(61) + host[61:])
    assert not verdict.records
    assert sum(row["size_bytes"] for row in verdict.quarantine) == len(host)


@pytest.mark.parametrize("number", [1, 70, 500])
@pytest.mark.parametrize("between", [b"", b"\xee"], ids=["chained", "apart"])
@pytest.mark.parametrize("has_successor", [False, True])
def test_nor_where_the_segment_ends_in_the_host(number: int, between: bytes, has_successor: bool) -> None:
    """A copy in progress, or an active segment: wherever it ends, at the end of a batch in the value too."""
    value = _value(number, between, 1000)
    host = Batch([Record(value=value)], base_offset=96).encode()
    begin = host.index(value)
    one = len(sound(0)) + len(between)
    cuts = {begin - 3, begin + one, begin + one - 1, begin + one // 2, begin + len(value), len(host) - 1}
    for cut in cuts - {len(host)}:
        decoded = fast.decode(START + host[:cut], has_successor=has_successor)
        assert _offsets(decoded) == [90, 91, 92, 93, 94, 95], cut
        if has_successor:
            assert [row["reason"] for row in decoded.quarantine] == ["truncated"]
            assert _ranges(decoded) == [(len(START), cut)]
        else:
            assert (decoded.tail, decoded.tail_bytes) == ("torn", cut)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("number", [2, 64, 300])
def test_messages_at_the_end_of_a_value_lead_into_the_log_and_are_none_of_it(magic: int, number: int) -> None:
    """A message ends with its value: messages in it lead to the next one as those of the log do."""
    inner = b"".join(Message(magic=magic, offset=o, value=b"inner").encode() for o in range(number))
    host = Message(magic=magic, offset=96, value=b"text" + inner).encode()
    verdict = judge(_with_length(host, 1 << 28))
    assert not verdict.records
    assert sum(row["size_bytes"] for row in verdict.quarantine) == len(host)


# What is sound is kept


@pytest.mark.parametrize("garbage", [1, 16, 61, 5000])
@pytest.mark.parametrize("count", [1, 10, 33])
def test_a_sound_batch_between_damaged_bytes_is_decoded(garbage: int, count: int) -> None:
    parts = [sound(100 + 3 * n) + b"\xee" * garbage for n in range(count)]
    decoded = fast.decode(START + b"\xee" * garbage + b"".join(parts) + b"".join(AFTER))
    between = list(range(100, 100 + 3 * count))
    assert _offsets(decoded) == [90, 91, 92, 93, 94, 95, *between, 200, 201, 202, 203, 204, 205]
    assert [size for _, size in _ranges(decoded)] == [garbage] * (count + 1)


@pytest.mark.parametrize("last", [2, -200])
@pytest.mark.parametrize("first", [96, 100])
def test_one_is_decoded_too_where_the_base_offset_after_it_is_wrong(first: int, last: int) -> None:
    """No checksum covers the base offset: a wrong one says nothing of the batches before it."""
    garbage = b"\xff" * 200
    decoded = fast.decode(START + garbage + sound(first) + garbage + sound(last))
    assert _offsets(decoded)[6:] == [first, first + 1, first + 2, last, last + 1, last + 2]
    assert [size for _, size in _ranges(decoded)] == [200, 200]


@pytest.mark.parametrize("wrong", [1 << 40, -5, 1])
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("count", [2, 4])
def test_one_wrong_base_offset_hides_no_batch_next_to_it(count: int, at: int, wrong: int) -> None:
    offsets = [100 + 3 * n for n in range(count)]
    offsets[min(at, count - 1)] = wrong
    garbage = b"\xff" * 200
    middle = b"".join(sound(offset) for offset in offsets)
    decoded = fast.decode(START + garbage + middle + garbage + b"".join(AFTER))
    assert [row["base_offset"] for row in decoded.batches] == [90, 93, *offsets, 200, 203]


def test_nor_does_one_before_the_damage() -> None:
    garbage = b"\xff" * 200
    decoded = fast.decode(START + sound(1 << 40) + garbage + sound(99) + garbage)
    assert [row["base_offset"] for row in decoded.batches] == [90, 93, 1 << 40, 99]


def test_nor_is_one_of_a_value_taken_for_the_log_there() -> None:
    host = Batch([Record(value=_value(5, b"\xee", 1000))], base_offset=96).encode()
    decoded = fast.decode(START + b"\xff" * 61 + host[61:] + sound(2))
    assert _offsets(decoded)[6:] == [2, 3, 4]


@pytest.mark.parametrize("short", [0, 1, 8, 16])
def test_a_length_that_claims_the_rest_of_the_segment_costs_one_batch(short: int) -> None:
    rest = b"".join(sound(103 + 3 * n) for n in range(20))
    host = sound(100)
    broken = _with_length(host, len(host) + len(rest) - 12 - short)
    decoded = fast.decode(START + broken + rest)
    assert _offsets(decoded)[6:] == list(range(103, 163))
    assert _ranges(decoded) == [(len(START), len(host))]


def test_lengths_that_lie_one_after_the_other_cost_a_batch_each() -> None:
    parts = []
    for n in range(200):
        parts += [_with_length(sound(6 * n), 1 << 28), sound(6 * n + 3)]
    decoded = fast.decode(b"".join(parts))
    assert _offsets(decoded) == [6 * n + 3 + k for n in range(200) for k in range(3)]
    assert [size for _, size in _ranges(decoded)] == [len(sound(0))] * 200


def test_a_batch_cut_at_the_end_of_a_segment_that_leads_nowhere() -> None:
    """Two damaged headers, the second of which reaches past the end: no batch proves itself after them."""
    data = bytes.fromhex(
        "00000000000000000000000031000000000230edeaea0001000000000000018bcfe568000000018bcfe56800ffff"
        "ffffffffffe080808080808080800000000000007200000000cb000000000000000000fd"
    ) + bytes(40)
    for has_successor in (False, True):
        decoded = fast.decode(data, has_successor=has_successor)
        assert sum(row["size_bytes"] for row in decoded.quarantine) + decoded.tail_bytes == len(data)


def test_a_lying_length_before_messages_that_lead_into_the_log_hides_no_sound_batch() -> None:
    """The first length reaches past the end; the message after it is damaged, and ends in a sound one."""
    first = bytearray(Batch([Record(value=b"v")], base_offset=0).encode())
    first[8:12] = (1 << 24).to_bytes(4, "big")
    inner = Message(magic=0, offset=1 << 60, value=b"inner").encode()
    second = bytearray(Message(magic=0, offset=1, value=b"text" + inner).encode())
    second[8:12], second[12] = (1 << 24).to_bytes(4, "big"), second[12] ^ 1
    last = Batch([Record(value=b"v")], base_offset=2).encode()
    decoded = fast.decode(bytes(first) + bytes(second) + last)
    assert [row["offset"] for row in decoded.records] == [2]
    assert decoded.tail_bytes == 0

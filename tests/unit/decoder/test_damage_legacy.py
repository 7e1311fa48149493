"""What is damage, in messages and wrappers of magic 0 and 1: one corruption a test, for every codec.

The cases are the contract's, and those of Kafka's own SimpleLegacyRecordTest,
AbstractLegacyRecordBatchTest and Lz4CompressionTest. A checksum is right, unless a test says no.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.damage import FIRST_OFFSET, check_kept, check_refused, judge
from tests.support.segment_maker import GZIP, LOG_APPEND, LZ4, SNAPPY, Message, flip, wrap

pytestmark = [pytest.mark.sampled, pytest.mark.parametrize("magic", [0, 1])]
codecs = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4], ids=["gzip", "snappy", "lz4"])

VALUES = [b"one", None, b"three"]
OFFSETS = [100, 101, 104]


def _message(magic: int, **fields: Any) -> Message:
    given: dict[str, Any] = {"magic": magic, "offset": FIRST_OFFSET, "key": b"key", "value": b"one", **fields}
    return Message(**given)


def _inner(magic: int) -> list[Message]:
    return [
        _message(magic, offset=offset, value=value, timestamp=1000 + offset)
        for offset, value in zip(OFFSETS, VALUES, strict=True)
    ]


def _wrapper(magic: int, codec: int, second: Message | None = None, **options: Any) -> Message:
    """A wrapper around three messages, the second of them replaced."""
    inner = _inner(magic)
    if second is not None:
        inner[1] = second
    return wrap(inner, codec=codec, magic=magic, **options)


def test_a_sound_message_is_ok(magic: int) -> None:
    verdict = judge(_message(magic).encode())
    check_kept(verdict, "ok", [b"one"])
    (row,) = verdict.records
    assert (row["timestamp_ms"], row["timestampType"]) == ((-1, -1), (1_400_000_000_000, 0))[magic]


@codecs
def test_a_sound_wrapper_is_ok(magic: int, codec: int) -> None:
    verdict = judge(_wrapper(magic, codec).encode())
    check_kept(verdict, "ok", VALUES)
    assert [row["offset"] for row in verdict.records] == OFFSETS
    assert [row["timestamp_ms"] for row in verdict.records] == ([-1] * 3, [1100, 1101, 1104])[magic]
    assert verdict.batch is not None
    assert (verdict.batch["base_offset"], verdict.batch["last_offset"]) == (100, 104)
    assert verdict.batch["declared_count"] is None


@pytest.mark.parametrize("position", [12, 17, -1], ids=["checksum", "attributes", "value"])
def test_a_changed_byte_of_a_message_is_corrupt(magic: int, position: int) -> None:
    batch = flip(_message(magic).encode(), position, 0x40)
    check_refused(judge(batch), batch, "corrupt", "crc_mismatch")


@codecs
def test_a_changed_byte_of_a_wrapper_is_corrupt(magic: int, codec: int) -> None:
    batch = flip(_wrapper(magic, codec).encode(), -5)
    check_refused(judge(batch), batch, "corrupt", "crc_mismatch")


@codecs
def test_a_wrong_inner_checksum_is_corrupt_though_the_wrapper_s_is_right(magic: int, codec: int) -> None:
    batch = _wrapper(magic, codec, _message(magic, offset=101, crc=12345)).encode()
    verdict = judge(batch)
    check_refused(verdict, batch, "corrupt", "crc_mismatch")
    assert verdict.batch is not None
    assert verdict.batch["crc_ok"] is True


@pytest.mark.parametrize(
    "wrong",
    [
        {"key_length": 500},
        {"key_length": (1 << 31) - 1},
        {"value_length": 4},
        {"value_length": (1 << 31) - 1},
    ],
    ids=str,
)
def test_a_length_past_the_message_is_invalid(magic: int, wrong: dict[str, int]) -> None:
    batch = _message(magic, **wrong).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
@pytest.mark.parametrize("wrong", [{"key_length": 500}, {"value_length": 500}], ids=str)
def test_a_length_past_an_inner_message_is_invalid(magic: int, codec: int, wrong: dict[str, int]) -> None:
    batch = _wrapper(magic, codec, _message(magic, offset=101, **wrong)).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
def test_a_wrapper_without_a_value_is_invalid(magic: int, codec: int) -> None:
    batch = replace(_wrapper(magic, codec), value=None).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
def test_a_wrapper_without_messages_is_invalid(magic: int, codec: int) -> None:
    batch = wrap([], codec=codec, magic=magic, outer_offset=FIRST_OFFSET).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
def test_a_wrapper_inside_a_wrapper_is_invalid(magic: int, codec: int) -> None:
    nested = replace(_wrapper(magic, GZIP), offset=101)
    batch = _wrapper(magic, codec, nested).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
@pytest.mark.parametrize("cut", [1, 4, 20, 30])
def test_a_cut_inner_message_is_invalid(magic: int, codec: int, cut: int) -> None:
    plain = b"".join(message.encode() for message in _inner(magic))
    batch = _wrapper(magic, codec, inner=plain[:-cut]).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
@pytest.mark.parametrize("length", [-(1 << 31), -3, 0, 13, 1 << 30])
def test_an_inner_length_that_lies_is_invalid(magic: int, codec: int, length: int) -> None:
    batch = _wrapper(magic, codec, _message(magic, offset=101, length=length)).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@pytest.mark.parametrize("code", [4, 5, 6, 7], ids=["zstd", "5", "6", "7"])
def test_a_codec_that_these_formats_lack_is_unsupported(magic: int, code: int) -> None:
    batch = replace(_wrapper(magic, GZIP), attributes=code).encode()
    verdict = judge(batch)
    check_refused(verdict, batch, "unsupported", "unknown_codec")
    assert verdict.batch is not None
    assert verdict.batch["compression"] == ("zstd" if code == 4 else "unknown")


@codecs
def test_a_wrapper_s_stream_that_is_cut_is_refused(magic: int, codec: int) -> None:
    wrapper = _wrapper(magic, codec)
    value = wrapper.value or b""
    batch = replace(wrapper, value=value[: len(value) * 2 // 3]).encode()
    check_refused(judge(batch), batch, "invalid", "decompression_failed")


@codecs
@pytest.mark.parametrize("over", [False, True])
def test_a_wrapper_s_expansion_stops_at_the_limit(magic: int, codec: int, over: bool) -> None:
    large = _message(magic, value=bytes(2_000_000))
    batch = wrap([large], codec=codec, magic=magic).encode()
    verdict = judge(batch, limit=len(large.encode()) - over)
    if over:
        check_refused(verdict, batch, "invalid", "decompressed_too_large")
    else:
        check_kept(verdict, "ok", [bytes(2_000_000)])


@codecs
@pytest.mark.parametrize("outer", [-1, 1, 3])
def test_an_outer_offset_below_the_last_inner_one(magic: int, codec: int, outer: int) -> None:
    """Magic 1 can't tell the offsets then; magic 0 holds them, and its header contradicts them."""
    batch = _wrapper(magic, codec, outer_offset=outer).encode()
    verdict = judge(batch)
    if magic == 1:
        check_refused(verdict, batch, "invalid", "invalid_record")
    else:
        check_kept(verdict, "suspect", VALUES)
        assert [row["offset"] for row in verdict.records] == OFFSETS


@codecs
def test_an_outer_offset_of_zero_takes_inner_offsets_as_they_are(magic: int, codec: int) -> None:
    plain = b"".join(message.encode() for message in _inner(magic))
    verdict = judge(_wrapper(magic, codec, outer_offset=0, inner=plain).encode())
    assert [row["offset"] for row in verdict.records] == OFFSETS
    assert not verdict.quarantine


@codecs
def test_inner_messages_of_the_other_magic_are_suspect(magic: int, codec: int) -> None:
    other = [replace(message, magic=1 - magic) for message in _inner(magic)]
    verdict = judge(wrap(other, codec=codec, magic=magic).encode())
    check_kept(verdict, "suspect", VALUES)
    assert {row["magic"] for row in verdict.records} == {magic}


@codecs
def test_offsets_that_fall_in_a_wrapper_are_suspect(magic: int, codec: int) -> None:
    second = _message(magic, offset=100, value=None)
    check_kept(judge(_wrapper(magic, codec, second).encode()), "suspect", VALUES)


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"key": None, "key_length": -2}, b"one"),
        ({"value": None, "value_length": -2}, None),
        ({"attributes": 0x80}, b"one"),
        ({"attributes": 0x10}, b"one"),
        ({"surplus": b"xyz"}, b"one"),
    ],
    ids=str,
)
def test_what_kafka_reads_against_the_format_is_suspect(
    magic: int, changes: dict[str, Any], value: bytes | None
) -> None:
    check_kept(judge(_message(magic, **changes).encode()), "suspect", [value])


@codecs
@pytest.mark.parametrize(
    "changes",
    [{"key": None, "key_length": -2}, {"value_length": -2}, {"attributes": 0x80}, {"surplus": b"xyz"}],
    ids=str,
)
def test_what_kafka_reads_in_a_wrapper_against_the_format_is_suspect(
    magic: int, codec: int, changes: dict[str, Any]
) -> None:
    second = _message(magic, **{"offset": 101, "value": None, **changes})
    check_kept(judge(_wrapper(magic, codec, second).encode()), "suspect", VALUES)


def test_the_timestamp_type_bit_means_nothing_in_magic_0(magic: int) -> None:
    verdict = judge(_message(magic, attributes=LOG_APPEND, timestamp=77).encode())
    check_kept(verdict, "ok" if magic == 1 else "suspect", [b"one"])
    (row,) = verdict.records
    assert (row["timestamp_ms"], row["timestampType"]) == ((-1, -1), (77, 1))[magic]


@codecs
def test_log_append_time_of_a_wrapper_holds_for_all_that_lies_in_it(magic: int, codec: int) -> None:
    verdict = judge(_wrapper(magic, codec, log_append_time=77 if magic == 1 else None).encode())
    check_kept(verdict, "ok", VALUES)
    expected = {(77, 1)} if magic == 1 else {(-1, -1)}
    assert {(row["timestamp_ms"], row["timestampType"]) for row in verdict.records} == expected


def test_an_lz4_header_checksum_matters_for_magic_1_alone(magic: int) -> None:
    batch = _wrapper(magic, LZ4, style="historic").encode()
    verdict = judge(batch)
    if magic == 0:
        check_kept(verdict, "ok", VALUES)
    else:
        check_refused(verdict, batch, "invalid", "decompression_failed")


@pytest.mark.parametrize("style", ["raw", "twice"])
def test_snappy_comes_raw_and_framed(magic: int, style: str) -> None:
    check_kept(judge(_wrapper(magic, SNAPPY, style=style).encode()), "ok", VALUES)


def test_the_smallest_message_is_ok(magic: int) -> None:
    batch = Message(magic=magic, offset=FIRST_OFFSET).encode()
    assert len(batch) == (26, 34)[magic]
    check_kept(judge(batch), "ok", [None])

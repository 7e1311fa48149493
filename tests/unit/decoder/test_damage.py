"""What is damage, in batches of magic 2: one corruption a test, for every codec.

The cases are the contract's, and those of Kafka's own DefaultRecordTest, DefaultRecordBatchTest,
MemoryRecordsTest, EndTransactionMarkerTest and ByteUtilsTest. A checksum is right, unless a test says no.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from tests.support.damage import FIRST_OFFSET, check_kept, check_refused, judge
from tests.support.segment_maker import (
    CODEC_NAMES,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND,
    NONE,
    TRANSACTIONAL,
    Batch,
    Record,
    compress,
    flip,
    varint,
    varlong,
)

pytestmark = pytest.mark.sampled
codecs = pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
compressed = pytest.mark.parametrize("codec", range(1, 5), ids=CODEC_NAMES[1:])

VALUES = [b"one", b"two", b"three"]
RECORDS = [Record(key=b"key", value=value, headers=((b"h", b"v"),)) for value in VALUES]


def _batch(codec: int = NONE, records: list[Record] | None = None, **fields: Any) -> Batch:
    chosen = RECORDS if records is None else records
    return Batch(chosen, codec=codec, base_offset=FIRST_OFFSET, **fields)


def _payload(*bodies: bytes) -> bytes:
    """Records from their bodies, each after its length."""
    return b"".join(varint(len(body)) + body for body in bodies)


@codecs
def test_a_sound_batch_is_ok(codec: int) -> None:
    check_kept(judge(_batch(codec).encode()), "ok", VALUES)


@codecs
def test_a_changed_byte_of_the_payload_is_corrupt(codec: int) -> None:
    batch = flip(_batch(codec).encode(), -3)
    check_refused(judge(batch), batch, "corrupt", "crc_mismatch")


@codecs
def test_a_changed_checksum_is_corrupt(codec: int) -> None:
    batch = flip(_batch(codec).encode(), 17)
    verdict = judge(batch)
    check_refused(verdict, batch, "corrupt", "crc_mismatch")
    assert verdict.batch is not None
    assert verdict.batch["crc_stored"] == struct.unpack_from(">I", batch, 17)[0]
    assert verdict.batch["crc_computed"] == verdict.batch["crc_stored"] ^ 0x01000000
    assert verdict.batch["crc_ok"] is False


@pytest.mark.parametrize(("name", "position"), [("base offset", 7), ("leader epoch", 15)])
def test_a_changed_byte_outside_the_checksum_is_not_noticed(name: str, position: int) -> None:
    check_kept(judge(flip(_batch().encode(), position)), "ok", VALUES)


@codecs
@pytest.mark.parametrize("count", [-1, -(1 << 31), 0, 1, 2, 4, 1000, (1 << 31) - 1])
def test_a_wrong_record_count_is_invalid(codec: int, count: int) -> None:
    batch = _batch(codec, count=count).encode()
    verdict = judge(batch)
    check_refused(verdict, batch, "invalid", "invalid_record")
    assert verdict.batch is not None
    assert verdict.batch["declared_count"] == count


@codecs
@pytest.mark.parametrize(
    "wrong",
    [
        {"body_length": -5},
        {"body_length": 0},
        {"body_length": 6},
        {"body_length": 5000},
        {"body_length": (1 << 31) - 1},
        {"key_length": 300},
        {"key_length": (1 << 31) - 1},
        {"value_length": 300},
        {"value_length": 1 << 30},
        {"header_count": -1},
        {"header_count": 0},
        {"header_count": 2},
        {"header_count": (1 << 31) - 1},
        {"header_key_length": -1},
        {"header_key_length": 300},
        {"surplus": b"xyz"},
    ],
    ids=str,
)
def test_a_record_that_lies_makes_its_whole_batch_invalid(codec: int, wrong: dict[str, Any]) -> None:
    batch = _batch(codec, [RECORDS[0], replace(RECORDS[1], **wrong), RECORDS[2]]).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
@pytest.mark.parametrize("cut", range(1, 18))
def test_a_last_record_that_is_cut_is_invalid(codec: int, cut: int) -> None:
    payload = b"".join(record.encode(place) for place, record in enumerate(RECORDS))
    batch = _batch(codec, payload=payload[:-cut]).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
def test_a_varint_of_six_bytes_is_invalid(codec: int) -> None:
    body = b"\x00\x00\x00" + varint(3, size=6) + b"key" + varint(-1) + b"\x00"
    batch = _batch(codec, [Record()], payload=_payload(body)).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
def test_a_varlong_of_eleven_bytes_is_invalid(codec: int) -> None:
    body = b"\x00" + varlong(5, size=11) + b"\x00\x01\x01\x00"
    batch = _batch(codec, [Record()], payload=_payload(body)).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@codecs
def test_bytes_after_the_last_record_are_invalid(codec: int) -> None:
    payload = b"".join(record.encode(place) for place, record in enumerate(RECORDS))
    batch = _batch(codec, payload=payload + b"\x00").encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@pytest.mark.parametrize("code", [5, 6, 7])
def test_an_unassigned_codec_is_unsupported(code: int) -> None:
    batch = _batch(codec=code).encode()
    verdict = judge(batch)
    check_refused(verdict, batch, "unsupported", "unknown_codec")
    assert verdict.batch is not None
    assert verdict.batch["compression"] == "unknown"


@compressed
def test_a_compressed_stream_that_is_cut_is_refused(codec: int) -> None:
    payload = b"".join(record.encode(place) for place, record in enumerate(RECORDS))
    stored = compress(codec, payload)
    batch = _batch(codec, stored=stored[: len(stored) * 2 // 3]).encode()
    check_refused(judge(batch), batch, "invalid", "decompression_failed")


@compressed
def test_a_payload_that_is_not_compressed_is_refused(codec: int) -> None:
    payload = b"".join(record.encode(place) for place, record in enumerate(RECORDS))
    batch = _batch(codec, stored=payload).encode()
    check_refused(judge(batch), batch, "invalid", "decompression_failed")


@compressed
@pytest.mark.parametrize("over", [False, True])
def test_expansion_stops_at_the_limit(codec: int, over: bool) -> None:
    record = Record(value=bytes(3_000_000))
    size = len(record.encode())
    batch = _batch(codec, [record]).encode()
    verdict = judge(batch, limit=size - over)
    if over:
        check_refused(verdict, batch, "invalid", "decompressed_too_large")
    else:
        check_kept(verdict, "ok", [bytes(3_000_000)])


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_a_control_record_with_a_bad_key_is_invalid(key: bytes | None) -> None:
    batch = _batch(records=[Record(key=key, value=bytes(6))], flags=CONTROL).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


@pytest.mark.parametrize("kind", [0, 1], ids=["ABORT", "COMMIT"])
@pytest.mark.parametrize("value", [None, b"", bytes(5), b"\xff\xff\x00\x00\x00\x01"])
def test_an_end_marker_with_a_bad_value_is_invalid(kind: int, value: bytes | None) -> None:
    record = Record(key=struct.pack(">hh", 0, kind), value=value)
    batch = _batch(records=[record], flags=CONTROL | TRANSACTIONAL).encode()
    check_refused(judge(batch), batch, "invalid", "invalid_record")


CONTROL_NAMES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
    7: "UNKNOWN",
    99: "UNKNOWN",
    -1: "UNKNOWN",
}


@pytest.mark.parametrize("kind", CONTROL_NAMES)
@pytest.mark.parametrize("version", [0, 1, 32767])
def test_control_records_are_kept_under_their_type(kind: int, version: int) -> None:
    value = struct.pack(">hi", version, 77) + b"newer field"
    record = Record(key=struct.pack(">hh", version, kind) + b"\x00", value=value)
    verdict = judge(_batch(records=[record], flags=CONTROL).encode())
    check_kept(verdict, "ok", [value])
    (row,) = verdict.records
    assert (row["is_control"], row["control_type"]) == (True, CONTROL_NAMES[kind])
    assert verdict.batch is not None
    assert verdict.batch["control_type"] == CONTROL_NAMES[kind]
    if kind in (0, 1):
        assert verdict.batch.get("coordinator_epoch", 77) == 77


@codecs
@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param({}, {"last_offset_delta": 1}, id="offset delta past lastOffsetDelta"),
        pytest.param({}, {"last_offset_delta": -5}, id="lastOffsetDelta below 0"),
        pytest.param({"offset_delta": 0}, {}, id="offset that stays"),
        pytest.param({"offset_delta": -7}, {}, id="offset that falls"),
        pytest.param({"key": None, "key_length": -2}, {}, id="key length -2"),
        pytest.param({"attributes": 1}, {}, id="record attributes"),
        pytest.param({"timestamp_delta": 10}, {"max_timestamp": 1_700_000_000_009}, id="timestamp above max"),
        pytest.param({}, {"flags": 0x80}, id="attribute bit 7"),
        pytest.param({}, {"flags": 0x8000}, id="attribute bit 15"),
    ],
)
def test_what_kafka_reads_against_the_format_is_suspect(
    codec: int, changes: dict[str, Any], fields: dict[str, Any]
) -> None:
    records = [RECORDS[0], replace(RECORDS[1], **changes), RECORDS[2]]
    check_kept(judge(_batch(codec, records, **fields).encode()), "suspect", VALUES)


def test_a_negative_value_length_is_read_as_null_and_suspect() -> None:
    records = [RECORDS[0], Record(value_length=-9)]
    check_kept(judge(_batch(records=records).encode()), "suspect", [b"one", None])


def test_a_negative_header_value_length_is_read_as_null_and_suspect() -> None:
    body = b"\x00\x00\x00" + varint(-1) + varint(-1) + varint(1) + varint(1) + b"h" + varint(-4)
    verdict = judge(_batch(records=[Record()], payload=_payload(body)).encode())
    check_kept(verdict, "suspect", [None])
    assert verdict.records[0]["headers"] == [("h", None)]


@codecs
@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param(
            {"offset_delta": 1}, {"last_offset_delta": 1000}, id="lastOffsetDelta past the last record"
        ),
        pytest.param({"padding": 5}, {}, id="padded varints"),
        pytest.param({"timestamp_delta": -1 << 40}, {}, id="timestamps in any order"),
        pytest.param(
            {"timestamp_delta": 1 << 40}, {"flags": LOG_APPEND, "max_timestamp": 5}, id="log append time"
        ),
        pytest.param({}, {"flags": DELETE_HORIZON}, id="delete horizon"),
        pytest.param({}, {"base_timestamp": -1, "max_timestamp": -1}, id="no timestamp"),
        pytest.param({"headers": ((b"\xff\xfe", None), (b"", b""))}, {}, id="header key that is not UTF-8"),
        pytest.param({}, {"flags": TRANSACTIONAL, "producer_id": 5, "base_sequence": 9}, id="transactional"),
    ],
)
def test_what_the_format_allows_is_ok(codec: int, changes: dict[str, Any], fields: dict[str, Any]) -> None:
    records = [RECORDS[0], replace(RECORDS[1], **changes), RECORDS[2]]
    check_kept(judge(_batch(codec, records, **fields).encode()), "ok", VALUES)


def test_offset_gaps_are_ok() -> None:
    records = [
        replace(record, offset_delta=delta) for record, delta in zip(RECORDS, (3, 17, 40), strict=True)
    ]
    verdict = judge(_batch(records=records).encode())
    check_kept(verdict, "ok", VALUES)
    assert [row["offset"] for row in verdict.records] == [103, 117, 140]


def test_an_empty_batch_is_ok() -> None:
    verdict = judge(_batch(records=[], last_offset_delta=6, base_timestamp=-1, max_timestamp=8).encode())
    check_kept(verdict, "ok", [])
    assert verdict.batch is not None
    assert (verdict.batch["base_offset"], verdict.batch["last_offset"]) == (100, 106)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_an_empty_batch_that_says_it_is_compressed_is_suspect(codec: int) -> None:
    """Kafka's ``iterator()`` gives no record of it; ``streamingIterator()``, a consumer's, wants a stream."""
    verdict = judge(_batch(records=[], codec=codec, stored=b"", last_offset_delta=6).encode())
    check_kept(verdict, "suspect", [])


def test_null_and_empty_stay_apart() -> None:
    records = [
        Record(key=None, value=None, headers=((b"h", None),)),
        Record(key=b"", value=b"", headers=((b"h", b""), (b"h", b"again"))),
        Record(key=None, value=b""),
    ]
    verdict = judge(_batch(records=records).encode())
    check_kept(verdict, "ok", [None, b"", b""])
    assert [row["key"] for row in verdict.records] == [None, b"", None]
    assert [row["headers"] for row in verdict.records] == [
        [("h", None)],
        [("h", b""), ("h", b"again")],
        None,
    ]


def test_sequences_wrap_after_the_largest_int() -> None:
    verdict = judge(_batch(producer_id=1, base_sequence=(1 << 31) - 2).encode())
    assert [row["sequence"] for row in verdict.records] == [(1 << 31) - 2, (1 << 31) - 1, 0]
    assert verdict.batch is not None
    assert verdict.batch["last_sequence"] == 0


def test_one_byte_and_one_record_are_singular() -> None:
    payload = Record(value=b"v").encode() + b"\0"
    verdict = judge(Batch((Record(),), base_offset=FIRST_OFFSET, payload=payload).encode())
    text = "records: expected their end after 1 record, found 1 byte more"
    assert [row["detail"].partition(", at ")[0] for row in verdict.quarantine] == [text]

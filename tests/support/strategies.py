"""Hypothesis strategies over ``segment_maker``: batches and segments that Kafka's library would read.

What is drawn is sound or suspect, never refused: nulls and empties, headers with repeats, bad UTF-8 in header
keys, extreme deltas, padded varints, sequences about to wrap, gaps as compaction leaves them, all magics.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.segment_maker import (
    CONTROL,
    DELETE_HORIZON,
    GZIP,
    LOG_APPEND,
    LZ4,
    NONE,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Batch,
    Message,
    Record,
    wrap,
)

INT32 = (1 << 31) - 1
INT64 = (1 << 63) - 1
STYLES = {NONE: ("",), GZIP: ("", "frames"), SNAPPY: ("", "raw", "twice"), LZ4: ("",), ZSTD: ("", "frames")}

nullable_bytes = st.none() | st.binary(max_size=40) | st.binary(min_size=130, max_size=300)
header_keys = st.sampled_from([b"", b"k", b"trace", "ключ".encode(), b"\xff\xfe", b"\xed\xa0\x80", b"\xc3"])
headers = st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=12)), max_size=4).map(tuple)
extreme_longs = st.sampled_from([0, -1, 1, 63, 64, -64, -65, 1 << 31, -(1 << 31), INT64, -INT64 - 1])
timestamp_deltas = st.integers(0, 1000) | st.integers(-INT64 - 1, INT64) | extreme_longs
timestamps = st.integers(0, 1 << 41) | extreme_longs


@st.composite
def records(draw: st.DrawFn, *, extreme: bool = True) -> Record:
    return Record(
        key=draw(nullable_bytes),
        value=draw(nullable_bytes),
        headers=draw(headers),
        timestamp_delta=draw(timestamp_deltas if extreme else st.integers(0, 1000)),
        attributes=draw(st.sampled_from([0, 0, 0, 255])),
        padding=draw(st.sampled_from([0, 0, 0, 2, 5])),
    )


@st.composite
def offset_deltas(draw: st.DrawFn, count: int) -> list[int]:
    """Rising deltas with gaps; now and then any deltas at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.lists(st.integers(-INT32 - 1, INT32), min_size=count, max_size=count))
    gaps = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    return [sum(gaps[: place + 1]) - 1 for place in range(count)]


@st.composite
def batches(draw: st.DrawFn, base_offset: int = 0) -> Batch:
    chosen = draw(st.lists(records(), min_size=1, max_size=6))
    deltas = draw(offset_deltas(len(chosen)))
    codec = draw(st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD]))
    producer = draw(st.booleans())
    return Batch(
        records=[
            Record(**{**vars(record), "offset_delta": delta})
            for record, delta in zip(chosen, deltas, strict=True)
        ],
        codec=codec,
        style=draw(st.sampled_from(STYLES[codec])),
        flags=draw(st.sampled_from([0, LOG_APPEND, DELETE_HORIZON])) | (TRANSACTIONAL if producer else 0),
        base_offset=base_offset,
        leader_epoch=draw(st.sampled_from([-1, 0, INT32])),
        last_offset_delta=draw(st.sampled_from([None, None, min(INT32, max(0, *deltas) + 100), 0])),
        base_timestamp=draw(timestamps),
        max_timestamp=draw(timestamps),
        producer_id=draw(st.sampled_from([0, 1000, INT64])) if producer else -1,
        producer_epoch=draw(st.sampled_from([0, 32767])) if producer else -1,
        base_sequence=draw(st.sampled_from([0, 7, INT32 - 1, INT32, -2])) if producer else -1,
    )


@st.composite
def control_batches(draw: st.DrawFn, base_offset: int = 0) -> Batch:
    kind = draw(st.integers(0, 7))
    version = draw(st.sampled_from([0, 1]))
    key = version.to_bytes(2, "big") + kind.to_bytes(2, "big")
    value = b"\x00\x00" + draw(st.integers(0, INT32)).to_bytes(4, "big")
    return Batch(
        records=[Record(key=key, value=value)],
        flags=CONTROL | TRANSACTIONAL,
        base_offset=base_offset,
        producer_id=1000,
        producer_epoch=1,
    )


@st.composite
def messages(draw: st.DrawFn, magic: int, offset: int) -> Message:
    return Message(
        magic=magic,
        offset=offset,
        key=draw(nullable_bytes),
        value=draw(nullable_bytes),
        timestamp=draw(timestamps),
    )


@st.composite
def wrappers(draw: st.DrawFn, magic: int, base_offset: int) -> Message:
    gaps = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    offsets = [base_offset + sum(gaps[: place + 1]) - 1 for place in range(len(gaps))]
    codec = draw(st.sampled_from([GZIP, SNAPPY, LZ4]))
    style = draw(
        st.sampled_from((*STYLES[codec], "historic") if (codec, magic) == (LZ4, 0) else STYLES[codec])
    )
    return wrap(
        [draw(messages(magic, offset)) for offset in offsets],
        codec=codec,
        magic=magic,
        log_append_time=draw(st.none() | st.integers(0, 1 << 41)) if magic == 1 else None,
        style=style,
    )


@st.composite
def segments(draw: st.DrawFn) -> list[bytes]:
    """The batches of a segment, of one magic or of several, offsets rising from batch to batch."""
    segment: list[bytes] = []
    offset = draw(st.sampled_from([0, 1, 5_000_000_000]))
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["batch", "batch", "control", "v0", "v1", "wrapper0", "wrapper1"]))
        batch: Batch | Message
        if kind == "batch":
            batch = draw(batches(offset))
        elif kind == "control":
            batch = draw(control_batches(offset))
        elif kind.startswith("v"):
            batch = draw(messages(int(kind[-1]), offset))
        else:
            batch = draw(wrappers(int(kind[-1]), offset))
        segment.append(batch.encode())
        offset = (batch.next_offset() if isinstance(batch, Batch) else batch.offset + 1) % (1 << 60)
    return segment

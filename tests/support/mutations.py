"""Hypothesis strategies of batches that lie: their checksum is right, their content is not.

Bytes are changed before the checksum is taken, so that a decoder meets the damage where checksums end: in a
compressed stream, a varint, a length, a count, an inner message.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.support import strategies as sound
from tests.support.segment_maker import (
    CONTROL,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    Batch,
    Message,
    Record,
    compress,
    wrap,
)

_TELLING_BYTES = st.sampled_from([0x00, 0x01, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]) | st.integers(0, 255)
_lengths = st.sampled_from([-(1 << 31), -3, -2, -1, 0, 1, 5, 1000, (1 << 31) - 1])


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """data with a few bytes changed, cut out, put in, or its end lost."""
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(out) - 1)))
        match draw(st.sampled_from(["set", "set", "set", "remove", "insert", "cut"])):
            case "set" if out:
                out[at] = draw(_TELLING_BYTES)
            case "remove":
                del out[at : at + draw(st.integers(1, 4))]
            case "insert":
                out[at:at] = bytes(draw(st.lists(_TELLING_BYTES, min_size=1, max_size=4)))
            case "cut":
                del out[at:]
    return bytes(out)


@st.composite
def lying_records(draw: st.DrawFn) -> Record:
    """A record one of whose derived fields is wrong."""
    record = draw(sound.records())
    field = draw(
        st.sampled_from(
            ["body_length", "key_length", "value_length", "header_count", "header_key_length", "surplus"]
        )
    )
    wrong: Any = b"xyz" if field == "surplus" else draw(_lengths)
    return replace(record, **{field: wrong})


@st.composite
def lying_v2_batches(draw: st.DrawFn) -> bytes:
    batch = draw(sound.batches())
    payload = b"".join(record.encode(place) for place, record in enumerate(batch.records))
    match draw(st.sampled_from(["payload", "payload", "stored", "record", "count", "flags", "control"])):
        case "payload":
            batch = replace(batch, payload=draw(damaged(payload)))
        case "stored":
            batch = replace(batch, stored=draw(damaged(compress(batch.codec, payload, batch.style))))
        case "record":
            batch = replace(batch, records=[*batch.records, draw(lying_records())])
        case "count":
            batch = replace(
                batch, count=draw(st.sampled_from([-1, 0, 1, 2, len(batch.records) + 1, 1 << 30]))
            )
        case "flags":
            batch = replace(batch, flags=draw(st.integers(0, 0xFFFF)) & ~7)
        case "control":
            record = Record(
                key=draw(st.none() | st.binary(max_size=6)), value=draw(st.none() | st.binary(max_size=8))
            )
            batch = Batch(records=[record], flags=CONTROL)
    return batch.encode()


@st.composite
def lying_messages(draw: st.DrawFn, magic: int) -> Message:
    message = draw(sound.messages(magic, draw(st.integers(0, 9))))
    match draw(st.sampled_from(["key", "value", "surplus", "attributes", "length", "magic"])):
        case "key":
            return replace(message, key_length=draw(_lengths))
        case "value":
            return replace(message, value_length=draw(_lengths))
        case "surplus":
            return replace(message, surplus=b"abc")
        case "attributes":
            return replace(message, attributes=draw(st.integers(0, 255)))
        case "length":
            return replace(message, length=draw(_lengths))
    return replace(message, magic=1 - magic)


@st.composite
def lying_wrappers(draw: st.DrawFn) -> bytes:
    magic = draw(st.sampled_from([0, 1]))
    codec = draw(st.sampled_from([GZIP, SNAPPY, LZ4]))
    inner = [draw(sound.messages(magic, offset)) for offset in draw(st.lists(st.integers(0, 9), max_size=4))]
    match draw(st.sampled_from(["inner", "inner", "bytes", "stored", "outer", "null"])):
        case "inner":
            inner.insert(draw(st.integers(0, len(inner))), draw(lying_messages(magic)))
        case "bytes":
            plain = b"".join(message.encode() for message in inner)
            return wrap(inner, codec=codec, magic=magic, inner=draw(damaged(plain))).encode()
        case "stored":
            wrapper = wrap(inner, codec=codec, magic=magic)
            return replace(wrapper, value=draw(damaged(wrapper.value or b""))).encode()
        case "outer":
            outer = draw(st.sampled_from([-1, 0, 1, 3, 100, (1 << 63) - 1]))
            return wrap(inner, codec=codec, magic=magic, outer_offset=outer).encode()
        case "null":
            return replace(wrap(inner, codec=codec, magic=magic), value=None).encode()
    return wrap(inner, codec=codec, magic=magic).encode()


@st.composite
def lying_batches(draw: st.DrawFn) -> bytes:
    """One batch with a right checksum and a content that lies, or that merely looks as if it did."""
    match draw(st.sampled_from(["batch", "batch", "batch", "wrapper", "message"])):
        case "batch":
            return draw(lying_v2_batches())
        case "wrapper":
            return draw(lying_wrappers())
    message = draw(lying_messages(draw(st.sampled_from([0, 1]))))
    return replace(message, length=None, attributes=message.attributes & ~7 | NONE).encode()

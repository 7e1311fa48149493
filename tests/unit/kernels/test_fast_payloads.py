"""Payloads expanded by the C libraries from within a kernel: what ``codecs`` makes of them, or left to it."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.udfs.kernels import codecs, libraries
from kafka_log_lake.udfs.kernels.codecs import Scratch
from kafka_log_lake.udfs.kernels.fast_payloads import DECLINES, PROGRESS, expand_regular
from kafka_log_lake.udfs.kernels.framing import BATCH
from tests.support import segment_maker
from tests.support.segment_maker import GZIP, LZ4, SNAPPY, ZSTD

LIMIT = 1 << 20
BEFORE = 5  # bytes in front, in the window and in the scratch buffer


def texts() -> dict[str, bytes]:
    draw = random.Random(7)
    words = [draw.randbytes(draw.randrange(1, 40)) for _ in range(50)]
    return {
        "one byte": b"x",
        "runs of every period": b"".join(draw.randbytes(period) * 40 for period in range(1, 40)),
        "words": b"".join(draw.choice(words) for _ in range(4000)),
        "noise": draw.randbytes(70_000),
        "zeros": bytes(100_000),
    }


TEXTS = texts()


def regular(codec: int, magic: int, payload: bytes, room: int = LIMIT) -> bytes | None:
    """What the kernel makes of a payload; None where it declines."""
    window = np.frombuffer(b"\xee" * BEFORE + payload, dtype=np.uint8)
    batches = np.zeros(1, dtype=BATCH)
    batch = batches[0]
    batch["codec"], batch["magic"], batch["count"] = codec, magic, 1
    batch["payload_at"], batch["payload_size"] = BEFORE, len(payload)
    scratch = np.full(BEFORE + room + 64, 0xEE, dtype=np.uint8)
    progress = np.zeros(1, dtype=PROGRESS)
    progress["used"], progress["batch_bytes"] = BEFORE, room
    progress["group_rows"] = progress["group_bytes"] = 1 << 30
    own = libraries.contexts()
    why = expand_regular(window, batches, scratch, progress, own.zstd, own.inflate)
    assert scratch[:BEFORE].tobytes() == b"\xee" * BEFORE
    if why == DECLINES:
        return None
    assert batch["expanded"] == 1
    used = int(progress["used"][0])
    assert (batch["data_at"], used) == (BEFORE, BEFORE + batch["data_size"])
    return bytes(scratch[BEFORE:used].tobytes())


def by_python(codec: int, magic: int, payload: bytes) -> bytes | None:
    scratch = Scratch()
    made = codecs.expand(codec, magic, np.frombuffer(payload, dtype=np.uint8), scratch, LIMIT)
    return None if made < 0 else bytes(scratch.data[:made].tobytes())


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    ("codec", "style", "magic"),
    [
        (GZIP, "", 2),
        (GZIP, "", 1),
        (SNAPPY, "", 2),
        (SNAPPY, "raw", 2),
        (SNAPPY, "", 0),
        (LZ4, "", 2),
        (LZ4, "", 1),
        (LZ4, "historic", 0),
        (ZSTD, "", 2),
        (ZSTD, "sized", 2),
    ],
)
def test_what_producers_write_takes_the_short_way(codec: int, style: str, magic: int, text: str) -> None:
    data = TEXTS[text]
    payload = segment_maker.compress(codec, data, style)
    if style == "sized":
        payload = zstandard.compress(data)
    if style == "historic":
        payload = payload[:4] + b"\x60" + payload[5:]  # its frame has linked blocks, of which it has one
    if style != "historic" or len(data) <= 1 << 16:
        assert regular(codec, magic, payload) == data
    assert regular(codec, magic, payload, room=len(data) - 1) is None
    assert regular(codec, magic, payload[:-1]) is None


@pytest.mark.parametrize(("codec", "style"), [(GZIP, "frames"), (SNAPPY, "twice"), (ZSTD, "frames")])
def test_several_members_frames_and_headers_are_left_to_python(codec: int, style: str) -> None:
    payload = segment_maker.compress(codec, TEXTS["words"], style)
    assert regular(codec, 2, payload) is None
    assert by_python(codec, 2, payload) == TEXTS["words"]


PAYLOADS = {
    (codec, style): segment_maker.compress(codec, TEXTS[text][:3000], style)
    for codec, style, text in [
        (GZIP, "", "words"),
        (SNAPPY, "", "words"),
        (SNAPPY, "raw", "runs of every period"),
        (LZ4, "", "words"),
        (ZSTD, "", "words"),
    ]
}


@pytest.mark.parametrize("window", range(16))
def test_a_zstd_frame_whose_window_is_too_small_is_what_a_stream_makes_of_it(window: int) -> None:
    payload = bytearray(PAYLOADS[ZSTD, ""])
    assert payload[4] == 0  # no size of the content: a window descriptor follows (RFC 8878, 3.1.1.1)
    payload[5] = window
    content = by_python(ZSTD, 2, bytes(payload))
    assert (content is None) == (window < 12)  # 1024 + window * 128 bytes, from 8 on twice as many
    assert regular(ZSTD, 2, bytes(payload)) == content


@pytest.mark.parametrize(("codec", "style"), PAYLOADS)
@given(st.data())
def test_a_changed_payload_is_declined_or_gives_what_python_makes_of_it(
    codec: int, style: str, draw: st.DataObject
) -> None:
    payload = bytearray(PAYLOADS[codec, style])
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(payload) - 1))
        match draw.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                payload[at] = draw.draw(st.integers(0, 255))
            case "cut":
                del payload[at : at + draw.draw(st.integers(1, 3))]
            case "insert":
                payload[at:at] = draw.draw(st.binary(max_size=3))
        if not payload:
            return
    if codec == GZIP and draw.draw(st.booleans()):  # a right trailer, so that the stream itself matters
        made = zlib.decompressobj(-15)
        try:
            text = made.decompress(bytes(payload[10:]))
            rest = bytes(payload[10 : len(payload) - len(made.unused_data)])
        except zlib.error:
            return
        payload = payload[:10] + rest + zlib.crc32(text).to_bytes(4, "little")
        payload += len(text).to_bytes(4, "little")
    magic = draw.draw(st.sampled_from([0, 1, 2])) if codec != ZSTD else 2
    made_here = regular(codec, magic, bytes(payload))
    if made_here is not None:
        assert made_here == by_python(codec, magic, bytes(payload))


def test_the_wheels_of_the_lock_file_export_the_functions() -> None:
    assert libraries.HAS_LZ4
    assert libraries.HAS_ZSTD

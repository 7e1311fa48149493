"""Records encoded and compressed anew: the same bytes as Kafka's own library writes, and they can be read."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

import lz4.frame
import numpy as np
import pytest
import snappy
import zstandard

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format.encode import PlainRecord, batch_records, message, messages, varint
from kafka_log_lake.udfs.format.levels import parse_level, parse_levels
from kafka_log_lake.udfs.format.sizes import VARINT_BOUNDS, body_size, varint_size
from kafka_log_lake.udfs.kernels.compress import compress
from tests.kafka.writer import Form, Written, write_segments

RECORDS = [
    Written(10, 1_714_000_000_000, b"key", b"value", [("a", b"1"), ("b", None), ("a", b"")]),
    Written(11, 1_713_999_999_000, None, b"", []),
    Written(80, 1_714_000_700_000, b"", None, [("ü", b"x" * 70)]),
    Written(2_000_000_000, -1, b"k" * 200, b"v" * 9000, []),
]
PLAIN = [
    PlainRecord(r.offset, r.timestamp, r.key, r.value, [(k.encode(), v) for k, v in r.headers])
    for r in RECORDS
]


@pytest.fixture(scope="module")
def written() -> dict[Form, bytes]:
    forms = [Form(magic, 4) for magic in (0, 1, 2)] + [Form(magic, 4, "gzip", 6) for magic in (0, 1)]
    return dict(write_segments(RECORDS, forms))


def test_records_of_a_batch_are_kafkas_bytes(written: dict[Form, bytes]) -> None:
    assert batch_records(PLAIN) == written[Form(2, 4)][f.V2_HEADER_SIZE :]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_are_kafkas_bytes(magic: int, written: dict[Form, bytes]) -> None:
    assert b"".join(message(magic, r.offset, r) for r in PLAIN) == written[Form(magic, 4)]


@pytest.mark.parametrize(("magic", "overhead"), [(0, 26), (1, 34)])
def test_wrapped_messages_are_kafkas_bytes(magic: int, overhead: int, written: dict[Form, bytes]) -> None:
    """Magic 1 counts the offsets within a wrapper from its first message, magic 0 does not."""
    assert messages(magic, PLAIN) == gzip.decompress(written[Form(magic, 4, "gzip", 6)][overhead:])


def test_records_of_the_proposal_lack_their_attributes() -> None:
    with_them, without = batch_records(PLAIN[1:2]), batch_records(PLAIN[1:2], has_attributes=False)
    assert with_them == bytes([12, 0, 0, 0, 1, 0, 0])
    assert without == bytes([10, 0, 0, 1, 0, 0])


@pytest.mark.parametrize("bound", VARINT_BOUNDS)
def test_varints_are_as_long_as_they_are_written(bound: int) -> None:
    values = [bound - 1, bound, -bound, -bound - 1, 0, -1, 1]
    assert varint_size(np.array(values)).tolist() == [len(varint(value)) for value in values]


def test_the_longest_varints() -> None:
    values = np.array([2**63 - 1, -(2**63)])
    assert varint_size(values).tolist() == [10, 10]


def test_a_body_is_what_its_varint_says() -> None:
    bodies = np.array([6, 62, 63, 64, 65, 8190, 8191, 8192, 8193, 2**20 - 1, 2**20, 2**27 - 1, 2**27])
    assert body_size(bodies + varint_size(bodies)).tolist() == bodies.tolist()


# --- Codecs ---

TEXT = b"".join(b'{"user":%d,"page":"/shop/%d"}' % (i % 17, i) for i in range(9000))
SAMPLES = {
    "text": TEXT,
    "noise": random.Random(4).randbytes(150_000),
    "short": b"abc",
    "zeros": bytes(1 << 20),
}
LEVELS = ["gzip:1", "gzip:9", "snappy", "lz4:9", "lz4:3", "lz4:17", "zstd:-5", "zstd:3", "zstd:19"]


def expanded(codec: str, data: bytes) -> bytes:
    """By another library than the one that compressed, where there is one."""
    if codec == "gzip":
        return zlib.decompress(data, wbits=31)
    if codec == "lz4":
        return bytes(lz4.frame.decompress(data))
    if codec == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    assert data[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    out, at = b"", 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out += snappy.decompress(data[at + 4 : at + 4 + size])
        at += 4 + size
    return out


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("level", LEVELS)
def test_what_was_compressed_comes_back(level: str, sample: str) -> None:
    how = parse_level(level)
    assert expanded(how.codec, compress(how, SAMPLES[sample])) == SAMPLES[sample]


def test_levels_are_kafkas_defaults_where_none_is_given() -> None:
    """The defaults of compression.gzip.level, compression.lz4.level and compression.zstd.level."""
    assert list(map(str, parse_levels("gzip, lz4,zstd,snappy,gzip:6"))) == [
        "gzip:6",
        "lz4:9",
        "zstd:3",
        "snappy",
    ]


@pytest.fixture(scope="module")
def kafkas() -> dict[Form, bytes]:
    records = [Written(i, 1_714_000_000_000 + i, None, TEXT[i * 90 : i * 90 + 90]) for i in range(2000)]
    forms = [Form(2, 2000, how.codec, how.level) for how in map(parse_level, LEVELS)]
    return dict(write_segments(records, [Form(2, 2000), *forms]))


@pytest.mark.parametrize("level", LEVELS)
def test_payloads_are_as_large_as_kafkas(level: str, kafkas: dict[Form, bytes]) -> None:
    """Kafka brings other versions of snappy, the fast lz4 and zstd, of the same algorithms."""
    how = parse_level(level)
    plain = kafkas[Form(2, 2000)][f.V2_HEADER_SIZE :]
    wanted = len(kafkas[Form(2, 2000, how.codec, how.level)]) - f.V2_HEADER_SIZE
    nearly = {"snappy": 0.03, "lz4:9": 0.03, "zstd:-5": 0.01, "zstd:3": 0.01, "zstd:19": 0.01}.get(level, 0)
    assert abs(len(compress(how, plain)) - wanted) <= nearly * wanted

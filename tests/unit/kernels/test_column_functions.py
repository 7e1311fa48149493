"""Functions of a column: known values of Kafka and of other libraries, nulls, cut arrays, any bytes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import crc32c as judge
import lz4.frame
import pyarrow as pa
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.udfs.functions import scalars
from tests.support import lz4_header
from tests.support.reference_codecs import XERIAL_MAGIC

TEXT = b"the same words again and again, the same words again and again"
# Of UtilsTest of Apache Kafka
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def schema_id(value: bytes | None) -> int | None:
    """Confluent's wire format, read plainly."""
    framed = value is not None and len(value) >= 5 and value[0] == 0
    return int.from_bytes(value[1:5], "big", signed=True) if framed and value is not None else None


def decompress(*rows: tuple[object, bytes | None]) -> list[bytes | None]:
    codecs, payloads = zip(*rows, strict=True)
    columns = pa.array(codecs), pa.array(payloads, pa.binary())
    return [value for part in scalars.kafka_decompress(iter([columns])) for value in part.to_pylist()]


@pytest.mark.parametrize("partitions", [1, 7, 12, 2**31 - 1])
def test_partition_equals_that_of_the_java_producer(partitions: int) -> None:
    keys = pa.array(list(MURMUR2))
    found = scalars.kafka_partition(keys, pa.array([partitions] * len(keys), pa.int32()))
    assert found.type == pa.int32()
    assert found.to_pylist() == [(code & 0x7FFFFFFF) % partitions for code in MURMUR2.values()]


def test_partition_is_null_without_a_key_or_partitions() -> None:
    keys = pa.array([b"a", None, b"a", b"a", b"a", b""])
    counts = pa.array([3, 3, 0, -1, None, 1], pa.int64())
    found = scalars.kafka_partition(keys, counts).to_pylist()
    assert found[1:] == [None, None, None, None, 0]
    assert found[0] is not None


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("00", 0),
        ("01", -1),
        ("02", 1),
        ("9601", 75),
        ("ffffffff0f", -(1 << 31)),
        ("ffffffffffffffffff01", -(1 << 63)),
        ("8000", 0),  # padded
        ("02ff", 1),  # bytes after it
        ("", None),
        ("80", None),
        ("ffffffffffffffffffff01", None),
    ],
)
def test_varint(encoded: str, value: int | None) -> None:
    assert scalars.kafka_varint(pa.array([bytes.fromhex(encoded)])).to_pylist() == [value]


def test_confluent_header() -> None:
    guid = b"\x01" + bytes(range(16)) + b"rest"
    values = [b"\0\0\0\x01\x02avro", b"\0\0\0\0\x07", b"\0\0\0\x07", guid, b"", None, b"plain text"]
    column = pa.array(values)
    assert scalars.confluent_schema_id(column).to_pylist() == [258, 7, None, None, None, None, None]
    assert scalars.confluent_payload(column).to_pylist() == [b"avro", b"", None, None, None, None, None]


def test_decompress_takes_what_other_libraries_made() -> None:
    block = snappy.compress(TEXT)
    xerial = XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1" + len(block).to_bytes(4, "big") + block
    frame = lz4.frame.compress(TEXT, block_linked=False)
    wrong = bytearray(frame)  # the header checksum of Kafka before 0.10
    wrong[lz4_header.checksum_position(frame)] ^= 0x55
    zstd = zstandard.ZstdCompressor().compress(TEXT)
    made = [("gzip", gzip.compress(TEXT)), ("snappy", block), ("snappy", xerial), ("lz4", frame)]
    made += [("lz4", bytes(wrong)), ("zstd", zstd), ("none", TEXT), ("ZSTD", zstd), ("4", zstd), ("0", TEXT)]
    assert decompress(*made) == [TEXT] * len(made)
    assert decompress((1, gzip.compress(TEXT)), (None, TEXT)) == [TEXT, None]


def test_decompress_gives_null_for_what_does_not_expand() -> None:
    packed = gzip.compress(TEXT)
    bad = [
        ("gzip", packed[:-1]),
        ("gzip", b""),
        ("zstd", packed),
        ("brotli", TEXT),
        ("7", TEXT),
        (None, packed),
    ]
    assert decompress(*bad, ("gzip", None)) == [None] * (len(bad) + 1)


def test_decompress_stops_at_256_mib() -> None:
    largest = 256 << 20
    fits, over = (zstandard.ZstdCompressor().compress(bytes(size)) for size in (largest, largest + 1))
    found = decompress(("zstd", over), ("zstd", fits), ("none", b"behind"))
    assert [None if value is None else len(value) for value in found] == [None, largest, 6]


COLUMN = [b"", None, b"\0\0\0\0\x05abc", b"\x96\x01", b"123456789", None, b"\x80"]
OF_BYTES: list[tuple[Callable[[pa.Array], pa.Array], list[object]]] = [
    (scalars.crc32c, [None if v is None else judge.crc32c(v) for v in COLUMN]),
    (scalars.confluent_schema_id, [None, None, 5, None, None, None, None]),
    (scalars.confluent_payload, [None, None, b"abc", None, None, None, None]),
    (scalars.kafka_varint, [None, None, 0, 75, -25, None, None]),
]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
@pytest.mark.parametrize(("function", "expected"), OF_BYTES, ids=lambda x: getattr(x, "__name__", ""))
def test_any_arrow_array_of_bytes(
    kind: pa.DataType, function: Callable[[pa.Array], pa.Array], expected: list[object]
) -> None:
    column = pa.array(COLUMN, pa.binary()).cast(kind)
    assert function(column).to_pylist() == expected
    assert function(column.slice(2, 3)).to_pylist() == expected[2:5]
    assert function(column.slice(7)).to_pylist() == []
    assert function(pa.chunked_array([column, column.slice(1)])).to_pylist() == expected + expected[1:]
    assert function(pa.nulls(2)).to_pylist() == [None, None]


def test_a_null_with_bytes_is_null() -> None:
    masked = pa.array([b"123456789", b"x"], mask=pa.array([True, False]).to_numpy(zero_copy_only=False))
    offsets, content = pa.array([0, 9, 10], pa.int32()).buffers()[1], pa.py_buffer(b"123456789x")
    hidden = pa.Array.from_buffers(pa.binary(), 2, [masked.buffers()[0], offsets, content])
    assert scalars.crc32c(hidden).to_pylist() == [None, judge.crc32c(b"x")]


def test_text_is_its_utf8_and_a_number_is_refused() -> None:
    assert scalars.crc32c(pa.array(["123456789", "ü"])).to_pylist() == [
        0xE3069283,
        judge.crc32c("ü".encode()),
    ]
    with pytest.raises(TypeError, match="crc32c: expected binary, found int64"):
        scalars.crc32c(pa.array([1]))
    with pytest.raises(TypeError, match="kafka_partition: expected a number of partitions, found string"):
        scalars.kafka_partition(pa.array([b"a"]), pa.array(["a"]))


@given(
    st.lists(st.none() | st.binary(max_size=40) | st.binary(max_size=9).map(lambda b: b"\0" + b), max_size=9)
)
def test_any_bytes(values: list[bytes | None]) -> None:
    column = pa.array(values, pa.binary())
    found = scalars.crc32c(column).to_pylist()
    assert found == [None if value is None else judge.crc32c(value) for value in values]
    ids = [schema_id(value) for value in values]
    assert scalars.confluent_schema_id(column).to_pylist() == ids
    rest = [None if i is None or v is None else v[5:] for v, i in zip(values, ids, strict=True)]
    assert scalars.confluent_payload(column).to_pylist() == rest
    assert len(scalars.kafka_varint(column)) == len(values)


@given(st.binary(max_size=80), st.integers(0, 79), st.integers(0, 255))
def test_bytes_that_are_changed_expand_rightly_or_give_null(text: bytes, at: int, value: int) -> None:
    packed = bytearray(zlib.compress(text, wbits=31))
    packed[at % len(packed)] = value
    (found,) = decompress(("gzip", bytes(packed)))
    assert found is None or found == text  # gzip has a checksum of its content
    for codec in ("snappy", "lz4", "zstd"):
        assert len(decompress((codec, bytes(packed)), (codec, text))) == 2

"""Columns are built where they are requested; room for them grows with what comes; faults leave no trace."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kafka_log_lake import read_segment
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.files import SCHEMA
from tests.support import fast, reference_decoder
from tests.support.agreement import check_record
from tests.support.corpus import ROOT
from tests.support.fast import BytesSource
from tests.support.segment_maker import CONTROL, LZ4, ZSTD, Batch, Message, Record, wrap

# Headers and nulls, control records, header keys that are no UTF-8, magic 0 and 1, wrappers
_MARKER = Record(key=b"\x00\x00\x00\x01", value=b"\x00\x00\x00\x00\x00\x07")
MIXED = b"".join(
    [
        Batch([Record(key=b"k", value=b"v", headers=((b"h", b"1"), (b"h", None))), Record()]).encode(),
        Batch([_MARKER], base_offset=2, flags=CONTROL, producer_id=9, producer_epoch=1).encode(),
        Batch([Record(value=b"v", headers=((b"\xff", b""),))] * 3, base_offset=3, codec=ZSTD).encode(),
        Message(magic=0, offset=6, key=b"k").encode(),
        wrap([Message(offset=0, value=b"a"), Message(offset=1, key=b"b")], codec=LZ4, magic=1).encode(),
    ]
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixed") / "00000000000000000000.log"
    path.write_bytes(MIXED)
    return path


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_column_alone_is_as_among_all(mixed: Path, name: str) -> None:
    alone, among_all = read_segment(mixed, columns=[name]), read_segment(mixed)
    alone.validate(full=True)
    assert alone.schema.names == [name]
    assert alone.column(name).combine_chunks() == among_all.column(name).combine_chunks()


def test_columns_come_in_the_order_of_the_table(mixed: Path) -> None:
    names = ["segment", "size_bytes", "headers", "key"]
    assert read_segment(mixed, columns=names).schema.names == ["key", "headers", "segment", "size_bytes"]


def test_a_segment_without_records_has_the_columns_that_were_requested(tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.touch()
    assert read_segment(path, columns=["offset"]).schema == pa.schema([("offset", pa.int64())])


@pytest.mark.parametrize("columns", [[], ["offset", "values"], "offset"])
def test_other_columns_are_refused(mixed: Path, columns: list[str]) -> None:
    with pytest.raises(ValueError, match="columns must name one or more of key, value, offset, "):
        read_segment(mixed, columns=columns)


def test_a_column_that_nobody_requests_takes_no_memory() -> None:
    data = Batch([Record(value=bytes(1000))] * 1000).encode()
    before = pa.total_allocated_bytes()
    decoder = SegmentDecoder(BytesSource(data), Range(len(data)), columns=["offset"])
    (records,) = [group.records for group in decoder]
    assert records is not None
    assert records.num_rows == 1000
    assert pa.total_allocated_bytes() - before < len(data) / 20


@pytest.mark.parametrize("path", sorted(ROOT.glob("hostile/*/*.log"))[::4], ids=lambda path: path.parent.name)
def test_without_columns_the_same_is_found(path: Path) -> None:
    data = path.read_bytes()
    found = []
    for columns in (None, ()):
        decoder = SegmentDecoder(BytesSource(data), Range(len(data)), columns=columns)
        groups = list(decoder)
        totals = decoder.totals
        damages = [damage for group in groups for damage in group.damages]
        found.append((damages, totals.records, totals.batches, totals.sound_bytes))
        assert columns is None or not any(group.records for group in groups)
    assert found[0] == found[1]


def _check_as_reference(data: bytes) -> None:
    decoded, expected = fast.decode(data), reference_decoder.decode(data)
    for row, want in zip(decoded.records, expected.records, strict=True):
        check_record(row, want)


SMALL, LARGE = b"s" * 10, b"l" * 40_000
SHAPES = {
    "keys": Record(key=LARGE),
    "values": Record(value=LARGE),
    "headers": Record(headers=((b"k", b"v"),) * 3000),
    "keys of headers": Record(headers=((LARGE, None),)),
    "values of headers": Record(headers=((b"k", LARGE),)),
    "rows": Record(),
}


@pytest.mark.parametrize("codec", [0, LZ4])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_not_like_what_came_before_has_room(shape: str, codec: int) -> None:
    """Batches with little of one kind in them, then with much of it, and so on."""
    few, much = [Record(key=SMALL, value=SMALL)] * 3, [SHAPES[shape]] * (4000 if shape == "rows" else 5)
    batches = [Batch(much if n % 10 == 9 else few, base_offset=n * 5000, codec=codec) for n in range(40)]
    _check_as_reference(b"".join(batch.encode() for batch in batches))


def test_messages_have_room_too() -> None:
    values = [LARGE if n % 10 == 9 else SMALL for n in range(40)]
    messages = [Message(offset=n, key=value, value=value) for n, value in enumerate(values)]
    _check_as_reference(b"".join(message.encode() for message in messages))
    _check_as_reference(wrap(messages, codec=LZ4, magic=1).encode())


def test_a_batch_of_very_many_records_may_have_one_that_is_larger_than_its_like() -> None:
    records = [Record(value=b"v")] * 140_000
    records[100] = Record(key=bytes(300_000), headers=((b"h", bytes(300_000)),))
    decoded = fast.decode(Batch(records, codec=ZSTD).encode())
    assert [row["offset"] for row in decoded.records] == list(range(140_000))
    row = decoded.records[100]
    assert (row["key"], row["headers"]) == (bytes(300_000), [("h", bytes(300_000))])


@pytest.mark.parametrize("between", range(1, 20))
def test_a_batch_at_fault_leaves_nothing_behind(between: int) -> None:
    """Its nulls lie where those of the next batch will."""
    nulls = [Record(headers=((b"h", None),) * 3)] * between
    records = [Record(key=b"k", value=b"v", headers=((b"h", b"v"),))] * 20
    batches = [
        Batch(records[:3]),
        Batch([*nulls, Record(surplus=b"!")], base_offset=3),
        Batch(records, base_offset=50),
    ]
    _check_as_reference(b"".join(batch.encode() for batch in batches))

"""The plain reader and the kernels: one verdict, one place, the same records; and Kafka's own library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_log_lake.udfs.decoder import segment_decoder
from kafka_log_lake.udfs.decoder.decoded import Range
from kafka_log_lake.udfs.decoder.segment_decoder import SegmentDecoder
from kafka_log_lake.udfs.format import faults
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.format import plain_reader as plain
from kafka_log_lake.udfs.format.explain import explain
from kafka_log_lake.udfs.format.fields import Field, Wrong, integer
from kafka_log_lake.udfs.format.plain_header import HEADERS, framed, read_header
from kafka_log_lake.udfs.format.varints import int64
from kafka_log_lake.udfs.kernels.codecs import Scratch, expand
from kafka_log_lake.udfs.kernels.framing import checksum
from tests.support import corpus, mutations
from tests.support.fast import BytesSource
from tests.support.kafka_cases import CASES

LIMIT = 1 << 22
# The kernels give the begin of the record, or of its body, for these
_ROUGH = (faults.BAD_VARINT, faults.RECORD_SLACK, *range(faults.CONTROL_KEY, faults.WRAPPER_NULL_VALUE))


class Verdict:
    """What the plain reader makes of a batch: its records, and the fault for which all of it is refused."""

    def __init__(self, data: bytes) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.wrong: Wrong | None = None
        self.begin = 0
        computed = int(checksum(np.frombuffer(data, dtype=np.uint8), 0, len(data)))
        self.header = {one.name: one for one in read_header(data, len(data), computed).fields}
        crc = self.header["crc"].wrong
        if crc is not None:
            self.wrong = crc
        elif self.header["magic"].value == f.MAGIC_V2:
            self._read_v2(data)
        else:
            self._read_message(data)

    def _expanded(self, data: bytes, at: int, payload: bytes) -> bytes | None:
        magic, codec = self.header["magic"].value, self.header["attributes"].value & f.CODEC_MASK
        if codec == f.CODEC_NONE or (magic == f.MAGIC_V2 and not payload and codec <= f.CODEC_ZSTD):
            self.begin = at
            return payload
        if self.header["attributes"].wrong and codec > f.LAST_CODECS[magic]:
            self.wrong = self.header["attributes"].wrong
            return None
        scratch = Scratch()
        made = expand(codec, magic, np.frombuffer(payload, dtype=np.uint8), scratch, LIMIT)
        self.begin = -1
        if made >= 0:
            return scratch.data[:made].tobytes()
        self.wrong = Wrong(-made, at, LIMIT)
        self.begin = 0
        return None

    def _read_v2(self, data: bytes) -> None:
        value = {name: one.value for name, one in self.header.items()}
        payload = self._expanded(data, f.V2_HEADER_SIZE, data[f.V2_HEADER_SIZE :])
        if payload is None:
            return
        self.wrong = plain.wrong_count(value["recordsCount"], len(payload))
        if self.wrong is not None:
            self.begin = 0
            return
        for record in plain.read_records(payload, 0, len(payload), value["recordsCount"]):
            control = bool(value["attributes"] & f.CONTROL_MASK)
            self.wrong = record.wrong or (plain.wrong_control(record) if control else None)
            if self.wrong is not None:
                return
            _, _, delta, offset, _, key, _, content = record.fields[: plain.HEADERS_FROM - 1]
            time = int64(value["baseTimestamp"] + delta.value)
            if value["attributes"] & f.TIMESTAMP_TYPE_MASK:
                time = value["maxTimestamp"]
            headers = plain.headers_of(record)
            at = int64(value["baseOffset"] + offset.value)
            self.rows.append((at, time, key.value, content.value, [one for _, one in headers]))

    def _read_message(self, data: bytes) -> None:
        message = plain.read_message(data, 0, len(data))
        magic, attributes = self.header["magic"].value, self.header["attributes"].value
        if not attributes & f.CODEC_MASK:
            self.wrong = message.wrong
            self.rows = [] if self.wrong else [self._row(message.fields, 0, attributes)]
            return
        self.wrong = plain.wrong_wrapper(message)
        if self.wrong is not None:
            return
        value = message.field("value")
        payload = self._expanded(data, value.at, value.value)
        if payload is None:
            return
        inner = list(plain.read_inner_messages(payload, 0, len(payload)))
        last = inner[-1]
        wrong_offset = plain.wrong_wrapper_offset(payload, last.begin, message)
        if not last.fields:
            self.wrong = last.wrong
        elif wrong_offset is not None:
            self.wrong, self.begin = wrong_offset, 0
        else:
            self.wrong = next((one.wrong for one in inner if one.wrong), None)
        if self.wrong is None:
            outer = self.header["offset"].value
            base = outer - last.field("offset").value if magic == f.MAGIC_V1 and outer else 0
            self.rows = [self._row(one.fields, base, attributes) for one in inner]

    def _row(self, fields: list[Field], base: int, attributes: int) -> tuple[Any, ...]:
        value = {one.name: one.value for one in fields}
        time = value.get("timestamp", f.NO_TIMESTAMP)
        if value["magic"] == f.MAGIC_V1 and attributes & f.TIMESTAMP_TYPE_MASK:
            time = self.header["timestamp"].value if "timestamp" in self.header else time
        return int64(value["offset"] + base), time, value["key"], value["value"], []


def _by_kernels(data: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[tuple[int, int]], list[Any]]:
    """The row of a batch, the (code, place) at which kernels stopped, the records."""
    stops: list[tuple[int, int]] = []

    def noted(e: Any, buffer: Any, limit: int) -> None:
        begin = int(e["data_at"] if e["expanded"] else e["at"])
        stops.append((int(e["fault"]), int(e["stopped_at"]) - begin))
        explain(e, buffer, limit)

    with monkeypatch.context() as patched:
        patched.setattr(segment_decoder, "explain", noted)
        whole = Range(len(data), has_successor=True)
        groups = list(SegmentDecoder(BytesSource(data), whole, max_batch_uncompressed=LIMIT))
    rows = [row for one in groups if one.records is not None for row in one.records.to_pylist()]
    batches = [e for one in groups for e in one.batches]
    return batches[0] if len(batches) == 1 else None, stops, rows


def check(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares the two readers on one batch that fills ``data``."""
    e, stops, rows = _by_kernels(data, monkeypatch)
    if e is None or int(e["size"]) != len(data):
        return  # no batch, or one that ends elsewhere
    plainly = Verdict(data)
    wrong = plainly.wrong
    if wrong is None:
        assert int(e["fault"]) == faults.NO_FAULT, faults.describe_batch(e)
        found = [(r["offset"], r["timestamp_ms"], r["key"], r["value"]) for r in rows]
        assert found == [row[:4] for row in plainly.rows]
        assert [[h["value"] for h in r["headers"] or ()] for r in rows] == [row[4] for row in plainly.rows]
        return
    ((code, place),) = stops
    kernels = faults.HEADER_BEYOND if wrong.fault == faults.HEADER_VALUE_BEYOND else wrong.fault
    assert (code, rows) == (kernels, [])
    told = faults.text_of(int(e["fault"]), int(e["fault_expected"]), int(e["fault_found"]))
    assert told == wrong._replace(field="").text
    if code > faults.COUNT_TOO_LARGE:
        at = plainly.begin + wrong.at if plainly.begin >= 0 else -1 - wrong.at
        assert int(e["fault_at"]) == at
        if code not in (*_ROUGH, faults.WRAPPER_OFFSET):
            assert place == (at if plainly.begin >= 0 else wrong.at)


@pytest.mark.parametrize("path", [*corpus.segments(), *corpus.segments(hostile=True)], ids=corpus.identity)
def test_kernels_and_plain_reader_agree_on_each_batch_of_the_corpora(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, at = path.read_bytes(), 0
    if len(data) > 1 << 20:
        data = data[: 1 << 20]
    while at + f.HEADER_UP_TO_MAGIC <= len(data):
        size = framed(data, at)[1]
        if not 0 < size <= len(data) - at:
            return
        check(data[at : at + size], monkeypatch)
        at += size


@pytest.mark.parametrize("name", CASES)
def test_kernels_and_plain_reader_agree_on_cases_at_the_edges_of_the_format(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(CASES[name], monkeypatch)


@given(mutations.lying_batches())
def test_kernels_and_plain_reader_agree_on_batches_that_lie(data: bytes) -> None:
    check(data, pytest.MonkeyPatch())


@given(st.binary(max_size=120), st.integers(0, 130))
def test_no_bytes_make_the_plain_reader_raise(data: bytes, end: int) -> None:
    end = min(end, len(data))
    for magic in (None, *HEADERS):
        read_header(data, end, 0, magic)
    for begin in range(min(end, 20)):
        record = plain.read_record(data, begin, end)
        assert record.wrong is not None or plain.wrong_control(record) is None or record.end <= end
        plain.read_message(data, begin, end)
        list(plain.read_inner_messages(data, begin, end))
        assert sum(1 for _ in plain.read_records(data, begin, end, 1 << 31)) <= end + 1


def _refused_by_kafka() -> list[Any]:
    return [
        pytest.param(path, one, id=f"{corpus.identity(path)}@{one['position']}")
        for path in corpus.segments(hostile=True)
        for one in corpus.hostile_facts(path)["kafka_clients"]["batches"]
        if one["magic"] == f.MAGIC_V2 and one["ensureValid"] == "ok"
    ]


@pytest.mark.parametrize(("path", "of_kafka"), _refused_by_kafka())
def test_records_before_a_fault_are_those_that_kafkas_library_reads(
    path: Path, of_kafka: dict[str, Any]
) -> None:
    begin = of_kafka["position"]
    data = path.read_bytes()[begin : begin + of_kafka["sizeInBytes"]]
    if integer(data, f.V2_ATTRIBUTES_POS, 2) & (f.CODEC_MASK | f.CONTROL_MASK):
        return  # a compressed batch is read as a whole, a control record by its key: tests of the dump do
    count, read = integer(data, f.RECORDS_COUNT_POS, 4), 0
    if count == 0:
        return  # Kafka does not look at what follows
    wrong: Wrong | None = plain.wrong_count(count, len(data)) if count < 0 else None
    for record in plain.read_records(data, f.V2_HEADER_SIZE, len(data), count):
        wrong = record.wrong
        read += wrong is None
    left = wrong is not None and wrong.fault == faults.PAYLOAD_LEFT
    assert (of_kafka["recordsError"] is None) == (wrong is None)
    assert of_kafka["records"] == (read - 1 if left and read else read)

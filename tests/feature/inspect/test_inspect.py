"""``inspect``: every byte of a batch has its field, and what was done to a damaged one is named."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_log_lake.pipelines.inspect_batch.batch import Inspection
from kafka_log_lake.pipelines.inspect_batch.causes import BIT, BYTE, CERTAIN, CUT, OTHER, UNKNOWN, ZEROS
from kafka_log_lake.pipelines.inspect_batch.fields import FILE, PAYLOAD
from kafka_log_lake.pipelines.inspect_batch.text import raw_bytes, summary
from tests.support import corpus
from tests.support.inspected import SEGMENT, batches, look, put, shown
from tests.support.segment_maker import GZIP, SNAPPY, Batch, Message, Record, wrap

FLIPS = 150


def values(found: Inspection) -> dict[str, str]:
    return {one.name: one.value for one in found.fields}


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code, out, err = shown(capsys, *arguments)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    return line.removeprefix("error: ")


# Fields


@pytest.mark.parametrize("path", corpus.segments()[::6], ids=corpus.identity)
def test_every_byte_is_of_one_field(path: Path) -> None:
    for position, end in batches(path)[:4]:
        found = look(path, position)
        owners = {FILE: [0] * (end - position), PAYLOAD: [0] * len(found.payload or b"")}
        for one in found.fields:
            if one.level != 1 and one.size:
                begin = one.at - (position if one.place == FILE else 0)
                for at in range(begin, begin + one.size):
                    owners[one.place][at] += 1
        assert set(owners[FILE]) == {1}
        assert set(owners[PAYLOAD]) <= {1}
        assert (found.status, found.problem) == ("ok", "")


def test_the_header_of_a_batch_as_kafka_reads_it() -> None:
    path = corpus.ROOT / "v2-codec-none" / "codec-none-0" / SEGMENT
    oracle = corpus.oracle_batches(path)[0]
    found = values(look(path, 0))
    assert found["baseOffset"] == str(oracle["baseOffset"])
    assert found["producerId"] == str(oracle["producerId"])
    assert found["maxTimestamp"] == str(oracle["maxTimestamp"])
    assert found["recordsCount"] == str(oracle["countOrNull"])
    assert int(found["crc"], 16) == oracle["crc"]


def test_a_varint_is_shown_as_its_bytes(tmp_path: Path) -> None:
    found = look(put(tmp_path, Batch((Record(b"k" * 100, None, padding=3),)).encode()), 0)
    (field,) = (one for one in found.fields if one.name == "keyLength")
    assert raw_bytes(found, field).hex() == "c88100"
    assert (field.value, field.meaning) == ("100", "varint of 3 bytes, zigzag of 200")
    assert values(found)["value"] == "null"


def test_a_compressed_payload_is_shown_both_ways(tmp_path: Path) -> None:
    records = [Record(b"k", b"v%d" % i, headers=((b"h", b"x"),)) for i in range(3)]
    found = look(put(tmp_path, Batch(records, codec=SNAPPY).encode()), 0)
    (stored,) = (one for one in found.fields if one.name == "payload")
    assert raw_bytes(found, stored) == found.content[61:]
    read = [raw_bytes(found, one) for one in found.fields if one.name == "value"]
    assert (read, found.records) == ([b"v0", b"v1", b"v2"], 3)


def test_a_flipped_bit_in_the_offset_of_a_wrapper_is_found_by_its_messages(tmp_path: Path) -> None:
    inner = [Message(magic=1, offset=number, value=b"v") for number in range(7)]
    content = bytearray(wrap(inner, codec=GZIP, magic=1, outer_offset=6).encode())
    content[7] ^= 1 << 2
    (cause,) = look(put(tmp_path, bytes(content)), 0).causes
    assert (cause.kind, cause.position, cause.bit) == (BIT, 7, 2)


def test_a_wrapper_and_its_messages(tmp_path: Path) -> None:
    inner = [Message(offset=8 + i, key=b"k", value=b"v%d" % i) for i in range(2)]
    found = look(put(tmp_path, wrap(inner, codec=GZIP).encode()), 0)
    assert found.checksum is not None
    assert (found.checksum.name, found.checksum.begin, found.checksum.is_right) == ("CRC-32", 16, True)
    assert [raw_bytes(found, one) for one in found.fields if one.name == "value"] == [b"v0", b"v1"]
    assert values(found)["attributes"] == "0"


# Damage


def _flip(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def test_a_flipped_bit_is_named_wherever_it_is(tmp_path: Path) -> None:
    """Half of them in headers. A batch without neighbours has no witness of its leader's epoch."""
    random = Random(32)
    paths = [path for path in corpus.segments() if path.stat().st_size < 100_000]
    for _ in range(FLIPS):
        path = random.choice(paths)
        listed = batches(path)
        position, end = random.choice(listed)
        header = random.random() < 0.5
        at = random.randrange(position, min(end, position + 61) if header else end)
        is_epoch = 12 <= at - position < 16 and path.read_bytes()[position + 16] == 2
        if is_epoch and len(listed) == 1:
            continue
        bit = random.randrange(8)
        found = look(put(tmp_path, _flip(path.read_bytes(), at, bit), path.name), position)
        what = f"{path}, byte {at - position} of the batch at {position}, bit {bit}"
        assert found.causes, what
        first = found.causes[0]
        assert (first.kind, first.position, first.bit) == (BIT, at, bit), what
        if at - position >= 17:
            assert first.certainty == CERTAIN
            assert found.mended >= 1 or found.status == "corrupt"


def _three(count: int = 40) -> list[bytes]:
    random = Random(7)
    return [
        Batch([Record(b"k", random.randbytes(100)) for _ in range(count)], base_offset=count * i).encode()
        for i in range(3)
    ]


def test_a_changed_byte_is_named(tmp_path: Path) -> None:
    first, second, third = _three()
    wrong = bytearray(second)
    wrong[1000] ^= 0x5A
    found = look(put(tmp_path, first + bytes(wrong) + third))
    cause = found.causes[0]
    assert (cause.kind, cause.position, cause.bits) == (BYTE, len(first) + 1000, 0x5A)
    assert (found.status, found.mended) == ("corrupt", 40)


def test_a_page_of_zeros_is_named(tmp_path: Path) -> None:
    first, second, third = _three(100)
    data = bytearray(first + second + third)
    page = -(-(len(first) + 100) // 4096) * 4096
    data[page : page + 4096] = bytes(4096)
    found = look(put(tmp_path, bytes(data)))
    cause = found.causes[0]
    assert (found.position, cause.kind) == (len(first), ZEROS)
    assert f"from position {page} to {page + 4096} are zeros, whole pages of 4096 bytes" in cause.text
    assert found.after is not None
    assert found.after.position == len(first) + len(second)


def test_bytes_that_are_missing_are_a_cut(tmp_path: Path) -> None:
    first, second, third = _three()
    found = look(put(tmp_path, first + second[:2000] + second[2500:] + third))
    assert found.position == len(first)
    cause = found.causes[0]
    assert (cause.kind, cause.position) == (CUT, len(first) + len(second) - 500)
    assert "the batch lacks 500 bytes" in cause.text


def test_a_segment_that_ends_inside_a_batch(tmp_path: Path) -> None:
    first, second, _ = _three()
    found = look(put(tmp_path, first + second[:-7]), len(first))
    assert (found.status, found.causes[0].kind) == ("tail", CUT)
    assert str(next(summary(found))).endswith("bytes: no damage, if no other segment of the log follows")
    assert found.problem == (
        f"the segment ends inside a batch: {len(second)} bytes by its length, {len(second) - 7} are there, "
        f"at {len(first)}"
    )


def test_bytes_of_another_log_are_named(tmp_path: Path) -> None:
    first, second, third = _three()
    other = Batch((Record(value=b"o"),), base_offset=77_000).encode()
    wrong = second[:1000] + other + second[1000 + len(other) :]
    cause = look(put(tmp_path, first + wrong + third)).causes[0]
    assert (cause.kind, cause.position) == (OTHER, len(first) + 1000)
    assert "(offsets 77000 to 77000), whose offsets do not belong here" in cause.text


def test_bytes_of_another_log_without_a_whole_batch_are_named(tmp_path: Path) -> None:
    first, second, third = _three()
    other = Batch([Record(value=b"o" * 90)] * 9, base_offset=77_000).encode()[:500]
    wrong = second[:1000] + other + second[1000 + len(other) :]
    cause = look(put(tmp_path, first + wrong + third)).causes[0]
    assert (cause.kind, cause.position) == (OTHER, len(first) + 1000)
    assert "the header of a batch lies (offsets 77000 to 77008), cut" in cause.text


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    first, second, third = _three(100)
    data = bytearray(first + second + third)
    page = -(-(len(first) + 100) // 512) * 512
    data[page : page + 512] = b"\x7fELF" + Random(1).randbytes(508)
    cause = look(put(tmp_path, bytes(data))).causes[0]
    assert (cause.kind, cause.position) == (OTHER, page)
    assert "an ELF program begins" in cause.text


def test_what_is_not_recognized_is_not_guessed(tmp_path: Path) -> None:
    first, second, third = _three()
    wrong = bytearray(second)
    for at in (500, 1500, 2500):
        wrong[at] ^= 0xA5
    found = look(put(tmp_path, first + bytes(wrong) + third))
    assert (found.causes[0].kind, found.mended) == (UNKNOWN, -1)


def test_a_record_that_can_not_be_read_is_marked(tmp_path: Path) -> None:
    batch = Batch((Record(value=b"a"), Record(value=b"b", value_length=90), Record(value=b"c")))
    found = look(put(tmp_path, batch.encode()), 0)
    assert (found.status, found.records) == ("invalid", 0)
    (mark,) = (one for one in found.fields if one.problem)
    assert mark.problem == "expected at most 2, found 90"
    assert "valueLength: expected at most 2, found 90, at position" in found.problem


@pytest.mark.parametrize(
    "path",
    [path for path in corpus.segments(hostile=True) if "bomb" not in str(path)][::5],
    ids=corpus.identity,
)
def test_hostile_files_are_shown_or_refused_in_a_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = shown(capsys, path)
    assert code == 0 or len(err.splitlines()) == 1
    assert ("position" in out) == (code == 0)


# Places


def test_where_a_batch_begins_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = _three()
    path = put(tmp_path, first + second + third)
    inside = len(first) + 5
    assert refused(capsys, path, "--position", inside) == (
        f"position {inside} is inside the batch that begins at {len(first)} (last offset 79): "
        f"give --position {len(first)}"
    )
    size = path.stat().st_size
    outside = f"position {size} is outside the file: it has {size} bytes, from 0 to {size - 1}"
    assert refused(capsys, path, "--position", size) == outside
    offsets = f"no batch has offset {{}}: the batches of {path} have offsets from 0 to {{}}"
    assert refused(capsys, path, "--offset", 120) == offsets.format(120, 119)
    put(tmp_path, first + (1 << 40).to_bytes(8, "big") + second[8:] + third)
    offsets += ", which do not rise: scan shows a wrong base offset"
    assert refused(capsys, path, "--offset", 41) == offsets.format(41, (1 << 40) + 39)
    assert "--position must be a whole number" in refused(capsys, path, "--position", "x")
    assert refused(capsys, path, "--position", 0, "--offset", 0) == "give --position or --offset, not both"


def test_a_batch_after_a_length_that_lies(tmp_path: Path) -> None:
    first, second, third = _three()
    lying = bytearray(first)
    lying[8:12] = struct.pack(">i", len(first) + 1000)
    path = put(tmp_path, bytes(lying) + second + third)
    found = look(path, len(first))
    assert (found.status, found.records) == ("ok", 40)


def test_a_partition_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = _three()
    put(tmp_path, first)
    put(tmp_path, second + third, f"{40:020d}.log")
    code, out, _ = shown(capsys, tmp_path, "--offset", "85", "--json")
    answer = json.loads(out)
    assert (code, answer["position"]) == (0, len(second))
    assert answer["file"].endswith(f"{40:020d}.log")
    assert "give --offset N, or one of its segments, such as" in refused(capsys, tmp_path)
    assert "has no segment" in refused(capsys, corpus.ROOT, "--offset", "1")


def test_files_that_are_no_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in refused(capsys, tmp_path / "x.log")
    assert "is empty" in refused(capsys, put(tmp_path, b""))
    path = put(tmp_path, b"these are notes, no Kafka log segment at all" * 9, "notes.txt")
    said = f"{path} is not a segment: no record batch is in it, and its name does not end in .log"
    assert refused(capsys, path) == said
    code, out, _ = shown(capsys, path, "--position", "0")  # whoever names a place sees its bytes
    assert code == 0
    assert "no batch begins here" in out


# What is printed


def test_the_fields_are_printed_with_their_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, Batch((Record(b"\x1b[31mk", b"v"),), base_offset=0).encode())
    code, out, _ = shown(capsys, path)
    assert code == 0
    assert "\x1b" not in out
    row = next(line for line in out.splitlines() if " crc " in line)
    crc = struct.unpack_from(">I", path.read_bytes(), 17)[0]
    assert row.split()[:6] == ["17", "4", *(f"{b:02x}" for b in struct.pack(">I", crc))]
    assert " bytes, 1 record: ok\n" in out
    assert "checksum: CRC-32C of positions 21 to" in out


def test_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, _ = _three()
    path = put(tmp_path, first + _flip(second, 70, 3))
    answer: dict[str, Any] = json.loads(shown(capsys, path, "--json")[1])
    assert (answer["status"], answer["position"]) == ("corrupt", len(first))
    cause = answer["causes"][0]
    assert (cause["position"], cause["bit"], cause["certainty"]) == (len(first) + 70, 3, "certain")
    assert (answer["records_once_mended"], answer["before"]["last_offset"]) == (40, 39)
    crc = next(one for one in answer["fields"] if one["name"] == "crc")
    assert crc["problem"].startswith("expected 0x")

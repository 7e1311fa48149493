"""What ``inspect`` says happened: the right cause, or none (the long run: ``tests.support.causes_named``)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from random import Random

import pytest

from kafka_log_lake.pipelines.dataframes.folders import read_segment
from kafka_log_lake.pipelines.inspect_batch import command as inspect_batch
from kafka_log_lake.pipelines.inspect_batch.batch import Inspection, inspect
from kafka_log_lake.pipelines.inspect_batch.causes import (
    BIT,
    BYTE,
    CERTAIN,
    CUT,
    LIKELY,
    ORDER,
    OTHER,
    POSSIBLE,
    UNKNOWN,
    ZEROS,
    Cause,
)
from kafka_log_lake.pipelines.inspect_batch.locate import Locator, Stretch
from kafka_log_lake.pipelines.inspect_batch.text import title
from tests.support import corpus, double_faults
from tests.support.causes_named import NOT_KNOWN, RIGHT, WRONG, look, tried
from tests.support.segment_maker import GZIP, LZ4, Batch, Message, Record

SEGMENT = f"{0:020d}.log"
DAMAGES = 600
TEXT = b"2024-05-17 03:12:44,101 INFO [main] Started o.a.k.Server, took 12 ms\n" * 4


def batches(count: int = 4, records: int = 40, codec: int = 0, base: int = 0) -> list[bytes]:
    """Batches that follow each other, of binary values."""
    random = Random(base + count)
    return [
        Batch(
            [Record(b"k", random.randbytes(100)) for _ in range(records)],
            base_offset=base + records * i,
            codec=codec,
        ).encode()
        for i in range(count)
    ]


def over(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def cause(folder: Path, content: bytes, position: int = 0) -> Cause:
    """The first cause of the first damage; of the batch at a position where no checksum is wrong."""
    path = folder / SEGMENT
    path.write_bytes(content)
    found = look(path, position)
    assert found is not None
    return found.causes[0]


def test_no_random_damage_is_named_wrongly(tmp_path: Path) -> None:
    answers = []
    for seed in range(1, DAMAGES + 1):
        _, answer, said = tried(seed, tmp_path)
        assert answer != WRONG, f"seed {seed}: {said}"
        answers.append(answer)
    assert answers.count(RIGHT) > answers.count(NOT_KNOWN)


def test_two_faults_in_a_batch_are_named_rightly_or_as_uncertain(tmp_path: Path) -> None:
    answers = []
    for seed in range(1, 151):
        answer, said = double_faults.tried(seed, tmp_path)
        assert answer != WRONG, f"seed {seed}: {said}"
        answers.append(answer)
    assert answers.count(RIGHT) > 40


@pytest.mark.parametrize("flipped", [0, 100])
def test_a_length_that_leads_past_the_file_is_no_cut_where_one_bit_explains_it(
    tmp_path: Path, flipped: int
) -> None:
    """flipped: another byte of the batch; 0: none."""
    first, second, *_ = batches()
    damaged = over(second, 9, bytes((second[9] ^ 1,)))
    damaged = over(damaged, flipped, bytes((damaged[flipped] ^ 1,))) if flipped else damaged
    found = cause(tmp_path, first + damaged)
    assert (found.kind, found.certainty) == ((UNKNOWN, POSSIBLE) if flipped else (BIT, CERTAIN))
    assert "cut" not in found.text or "one flipped bit in it would explain" in found.text


@pytest.mark.parametrize("codec", [0, GZIP, LZ4])
@pytest.mark.parametrize("new", [b"x", bytes(512), TEXT], ids=["byte", "zeros", "text"])
def test_bytes_that_were_put_in_are_found_by_the_checksum(tmp_path: Path, codec: int, new: bytes) -> None:
    first, second, third, _ = batches(codec=codec)
    content = first + second[:1000] + new + second[1000:] + third
    found = cause(tmp_path, content)
    assert (found.kind, found.certainty, found.size) == (OTHER, CERTAIN, len(new))
    assert found.mended == second
    words = "1 byte was" if len(new) == 1 else f"{len(new)} bytes were"
    assert f"{words} put in at position {found.position}" in found.text
    assert content[: found.position] + content[found.position + len(new) :] == first + second + third


def test_a_part_that_was_written_twice_is_found_by_the_checksum(tmp_path: Path) -> None:
    first, second, third, _ = batches()
    found = cause(tmp_path, first + second[:3000] + second[2000:] + third)
    assert (found.kind, found.certainty, found.size, found.mended) == (OTHER, CERTAIN, 1000, second)


def test_bytes_between_two_batches(tmp_path: Path) -> None:
    first, second, *_ = batches()
    found = cause(tmp_path, first + Random(3).randbytes(700) + second)
    assert (found.kind, found.certainty) == (OTHER, LIKELY)
    assert (found.position, found.size) == (len(first), 700)
    assert "offset 40 after them goes on from 39 before, none is missing" in found.text


def test_batches_in_the_wrong_order_are_no_flipped_bit(tmp_path: Path) -> None:
    """Offset 1 before offset 0 is one bit away from the offset that should be there."""
    first, second, third, _ = batches(records=1)
    found = cause(tmp_path, second + first + third)
    assert (found.kind, found.position) == (ORDER, 0)
    assert f"the next batch, at position {len(second)}, with offsets up to 0, belongs before" in found.text


def test_a_batch_that_stands_twice_is_no_flipped_bit(tmp_path: Path) -> None:
    first, second, third, _ = batches(records=1)
    found = cause(tmp_path, first + second + first + third, len(first + second))
    assert (found.kind, found.certainty) == (ORDER, CERTAIN)
    assert "the same batch is at position 0" in found.text


def test_text_over_the_begin_of_a_record(tmp_path: Path) -> None:
    first, second, third, _ = batches()
    begin = 61 + 10 * 110 - 20  # the end of a value, and the next record
    content = over(first + second + third, len(first) + begin, TEXT[:80])
    found = cause(tmp_path, content)
    assert (found.kind, found.certainty) == (OTHER, LIKELY)
    assert abs(found.position - len(first) - begin) < 3  # a byte of the value before may look like text too
    assert f"{found.position} to {found.position + found.size} are text where a length" in found.text


def test_zeros_over_the_begin_of_a_record(tmp_path: Path) -> None:
    first, second, third, _ = batches()
    begin = 61 + 10 * 110 - 20
    found = cause(tmp_path, over(first + second + third, len(first) + begin, bytes(40)))
    assert (found.kind, found.certainty, found.position, found.size) == (
        ZEROS,
        LIKELY,
        len(first) + begin,
        40,
    )


def test_other_bytes_over_several_records(tmp_path: Path) -> None:
    first, second, third, _ = batches()
    content = over(first + second + third, len(first) + 1000, Random(5).randbytes(400))
    found = cause(tmp_path, content)
    assert (found.kind, found.certainty) == (OTHER, LIKELY)
    assert found.position <= len(first) + 1100
    assert len(first) + 1400 <= found.position + found.size <= len(first) + 1520
    assert "those before and after it can" in found.text


def test_what_is_at_the_end_and_between_is_named_as_what_it_is(tmp_path: Path) -> None:
    first, second, third, _ = batches()
    assert cause(tmp_path, first + bytes(4096)).text.endswith("never written")
    assert cause(tmp_path, first + b"x" + second + third).position == len(first)
    found = look(tmp_path / SEGMENT, 0)
    assert found is not None
    assert title(found) == f"damage at position {len(first)}, 1 byte"


def test_zeros_in_values_are_no_damage(tmp_path: Path) -> None:
    """The changed bytes are elsewhere: zeros that are data are not named."""
    values = [bytes(200), Random(1).randbytes(200), bytes(90)] * 5
    made = Batch([Record(b"k", value) for value in values]).encode()
    wrong = over(made, 300, bytes(byte ^ 0x55 for byte in made[300:306]))
    assert cause(tmp_path, wrong).kind == UNKNOWN


def test_a_changed_byte_is_named_though_zeros_are_near(tmp_path: Path) -> None:
    made = Batch([Record(b"k", bytes(200)), Record(b"k", b"v" * 90)]).encode()
    found = cause(tmp_path, over(made, 300, bytes((made[300] ^ 0x55,))))
    assert (found.kind, found.position) == (BYTE, 300)


def test_text_in_a_payload_of_gzip(tmp_path: Path) -> None:
    first, second, third, _ = batches(codec=GZIP)
    found = cause(tmp_path, over(first + second + third, len(first) + 900, TEXT[:100]))
    assert (found.kind, found.certainty) == (OTHER, LIKELY)
    assert "in a payload that is compressed by gzip" in found.text


def test_bytes_that_are_missing_from_the_last_batch(tmp_path: Path) -> None:
    """The segment ends before the batch does, but its last records are there."""
    first, second, *_ = batches()
    found = cause(tmp_path, first + second[:1500] + second[1900:])
    assert (found.kind, found.size) == (CUT, 400)
    assert found.text.startswith("the batch lacks 400 bytes between position")


def test_a_segment_that_ends_inside_a_header(tmp_path: Path) -> None:
    first, second, *_ = batches()
    found = cause(tmp_path, first + second[:14])
    assert (found.kind, found.certainty) == (CUT, LIKELY)
    assert "inside of a header that begins with offset 40" in found.text


def test_a_length_and_a_magic_that_were_written_over(tmp_path: Path) -> None:
    first, second, third, _ = batches()
    found = cause(tmp_path, over(first + second + third, len(first) + 8, b"\x7f\x31\x05\x99\0\0\0\0\x39"))
    assert (found.kind, found.certainty, found.mended) == (
        OTHER,
        CERTAIN,
        second[:12] + bytes(4) + second[16:],
    )
    length = len(second) - 12
    assert f"length at position {len(first) + 8}: 2133919129, expected {length}" in found.text
    assert f"magic at position {len(first) + 16}: 57, expected 2" in found.text


def test_a_sound_message_right_after_the_begin_of_a_damaged_one(tmp_path: Path) -> None:
    """Thirteen bytes of a header: no message is there whose lengths could be followed."""
    messages = [Message(magic=0, offset=number, value=b"v" * 20).encode() for number in range(8)]
    content = messages[0] + messages[1][:13] + b"".join(messages[2:])
    assert cause(tmp_path, content).kind in (CUT, UNKNOWN)


@pytest.mark.parametrize("name", ["v0-inner-crc-bad-0", "v0-inner-magic-2-0", "v1-inner-crc-bad-0"])
def test_a_wrapper_whose_own_checksum_is_right(tmp_path: Path, name: str) -> None:
    content = (corpus.ROOT / "hostile" / name / SEGMENT).read_bytes()
    (tmp_path / SEGMENT).write_bytes(content)
    locator = Locator(str(tmp_path / SEGMENT))
    found = [look_at(locator, one) for one in locator.stretches()]
    locator.close()
    (wrong,) = (one for one in found if one.status == "corrupt")
    assert (wrong.causes[0].kind, wrong.mended) == (UNKNOWN, -1)
    assert "it was written as it is" in wrong.causes[0].text


def look_at(locator: Locator, one: Stretch) -> Inspection:
    return inspect(locator.source, locator.length, locator.place(one._replace(before=None)), lambda *_: False)


def test_records_that_a_correction_gives_are_written_out_and_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = batches()
    path = tmp_path / SEGMENT
    path.write_bytes(first + second)
    sound = [row["value"] for row in read_segment(str(path)).slice(40, 5).to_pylist()]
    path.write_bytes(first + over(second, 70, bytes((second[70] ^ 8,))))
    assert inspect_batch.main([str(path), "--records", "5", "--json"]) == 0
    mended = json.loads(capsys.readouterr().out)["mended_records"]
    assert [(one["mended"], one["offset"]) for one in mended] == [(True, offset) for offset in range(40, 45)]
    assert [base64.b64decode(one["value"]) for one in mended] == sound
    assert inspect_batch.main([str(path), "--records", "5"]) == 0
    assert capsys.readouterr().out.count("\nmended  offset 4") == 5
    path.write_bytes(first + second)
    assert inspect_batch.main([str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mended_records"] == []

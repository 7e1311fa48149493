"""``dump``: the lines of Kafka's own tool, for its files and flags; and what the tool leaves out."""

from __future__ import annotations

import gzip
import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.dump_log import command as dump_log
from tests.support import dumps
from tests.support.corpus import ROOT
from tests.support.segment_maker import CONTROL, GZIP, Batch, Message, Record, wrap

SEGMENT = f"{0:020d}.log"
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}


def lines(capsysbinary: Any, *arguments: str) -> tuple[int, list[bytes], list[str]]:
    """The exit code, the lines of standard output, those of standard error."""
    code = dump_log.main(list(arguments))
    found = capsysbinary.readouterr()
    return code, found.out.split(b"\n"), found.err.decode().splitlines()


def put(folder: Path, content: bytes, name: str = SEGMENT) -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def printed(capsysbinary: Any, path: str, *flags: str) -> list[str]:
    """The lines after the first two, which name the file and its base offset."""
    code, out, err = lines(capsysbinary, path, *flags)
    assert (code, out[-1]) == (0, b""), err
    return [line.decode() for line in out[2:-1]]


def objects(capsysbinary: Any, path: str, *flags: str) -> list[dict[str, Any]]:
    code, out, _ = lines(capsysbinary, path, "--json", *flags)
    assert code == 0
    return [json.loads(line) for line in out[:-1]]


# Equal to the tool


@pytest.mark.parametrize("dump", dumps.ALL, ids=lambda path: path.name)
def test_lines_are_those_of_kafkas_tool(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any, tmp_path: Path
) -> None:
    path = dumps.segment(dump)
    monkeypatch.chdir(ROOT)
    name = str(path.relative_to(ROOT))
    if path.suffix == ".index":  # an empty file, which is not bundled
        monkeypatch.chdir(tmp_path)
        Path(name).parent.mkdir(parents=True)
        Path(name).write_bytes(b"")
        Path(name).with_suffix(".log").symlink_to(path.with_suffix(".log"))
    flag = DECODERS.get(dumps.topic(dump), "--print-data-log")
    assert dump_log.main([name, flag]) == 0
    assert capsysbinary.readouterr().out == gzip.decompress(dump.read_bytes())


@pytest.mark.parametrize("dump", dumps.hostile(), ids=lambda dump: dump["file"].split("/")[1])
def test_a_damaged_file_is_printed_as_far_as_the_tool_prints_it(
    dump: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    monkeypatch.chdir(ROOT)
    code = dump_log.main([dump["file"], "--print-data-log"])
    found = capsysbinary.readouterr()
    assert found.out.decode() == dump["text"]
    assert code == dump["code"]
    problems = [line for line in found.err.decode().splitlines() if line.startswith("error:")]
    assert len(problems) == (1 if code else 0)


def test_batches_alone_and_records_without_contents(tmp_path: Path, capsysbinary: Any) -> None:
    path = put(
        tmp_path, Batch((Record(b"k", b"v"), Record(None, b"")), base_offset=7, producer_id=3).encode()
    )
    (shallow,) = printed(capsysbinary, path)
    assert shallow.startswith(
        "baseOffset: 7 lastOffset: 8 count: 2 baseSequence: -1 lastSequence: -1 producerId: 3"
    )
    deep = printed(capsysbinary, path, "--deep-iteration")
    assert (
        deep[1] == "| offset: 7 CreateTime: 1700000000000 keySize: 1 valueSize: 1 sequence: -1 headerKeys: []"
    )
    assert printed(capsysbinary, path, "--print-data-log", "--skip-record-metadata") == [
        shallow,
        "| key: k payload: v",
        " payload: ",
    ]


def test_numbers_of_any_size_are_written_in_full(tmp_path: Path, capsysbinary: Any) -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    batch = Batch(
        (Record(value=b""),), base_offset=most, base_timestamp=least, max_timestamp=least, producer_id=least
    )
    line, record = printed(capsysbinary, put(tmp_path, batch.encode()), "--deep-iteration")
    assert f"baseOffset: {most} lastOffset: {most} count: 1" in line
    assert f"producerId: {least} producerEpoch: -1" in line
    assert record.startswith(f"| offset: {most} CreateTime: {least} keySize: -1 valueSize: 0 ")


def test_messages_in_a_wrapper_have_their_own_checksums(tmp_path: Path, capsysbinary: Any) -> None:
    inner = [Message(magic=1, offset=8 + i, key=b"k", value=b"v%d" % i, timestamp=5) for i in range(2)]
    found = printed(capsysbinary, put(tmp_path, wrap(inner, codec=GZIP).encode()), "--print-data-log")
    assert found[0].startswith("offset: 9 position: 0 CreateTime: ")
    checksums = [line.split(" isValid: true crc: ")[1].split("}")[0] for line in found[1:]]
    assert checksums == [str(struct.unpack_from(">I", message.encode(), 12)[0]) for message in inner]
    assert [line.split()[2] for line in found[1:]] == ["8", "9"]


def test_a_batch_of_more_records_than_a_group_has_is_printed_in_order(
    tmp_path: Path, capsysbinary: Any
) -> None:
    count = 150_000
    large = Batch([Record(value=b"%d" % i) for i in range(count)])
    path = put(tmp_path, large.encode() + Batch((Record(value=b"last"),), base_offset=count).encode())
    found = printed(capsysbinary, path, "--print-data-log")
    assert len(found) == count + 3
    assert [line.rpartition(" ")[2] for line in found[1 : count + 1]] == [str(i) for i in range(count)]
    assert found[-1].endswith("payload: last")


def test_a_record_larger_than_the_buffer_is_printed_whole(tmp_path: Path, capsysbinary: Any) -> None:
    value = b"x" * (9 << 20)
    path = put(tmp_path, Batch((Record(value=b"a"), Record(value=value), Record(value=b"b"))).encode())
    found = printed(capsysbinary, path, "--print-data-log")
    assert [len(line.rpartition("payload: ")[2]) for line in found[1:]] == [1, len(value), 1]


def test_bytes_that_are_no_text_are_replaced_as_the_jvm_does(tmp_path: Path, capsysbinary: Any) -> None:
    values = (b"\xff", b"\xed\xa0\x80", b"\xf0\x9f\x8e", "é🎈".encode(), b"\xc3", b"abcdefgh\xe2\x82ijklmnop")
    path = put(tmp_path, Batch([Record(value=value) for value in values]).encode())
    found = printed(capsysbinary, path, "--print-data-log")
    assert [line.rpartition("payload: ")[2] for line in found[1:]] == [
        *("�", "�", "�", "é🎈", "�", "abcdefgh�ijklmnop")
    ]


def test_keys_and_values_as_numbers(tmp_path: Path, capsysbinary: Any) -> None:
    batch = Batch(
        (Record(struct.pack(">q", -5), struct.pack(">i", 7)), Record(None, struct.pack(">iB", -1, 9)))
    )
    path = put(tmp_path, batch.encode())
    flags = (
        "--key-decoder-class",
        "long",
        "--value-decoder-class",
        "org.apache.kafka.tools.api.IntegerDecoder",
    )
    found = printed(capsysbinary, path, *flags)
    assert "keySize: 8 valueSize: 4" in found[1]
    assert found[1].endswith(" key: -5 payload: 7")
    assert found[2].endswith("keySize: -1 valueSize: 5 sequence: -1 headerKeys: [] payload: -1")
    old = printed(capsysbinary, path, "--value-decoder-class", "kafka.serializer.IntegerDecoder")
    new = "org.apache.kafka.tools.api.IntegerDecoder"
    assert old[0] == f"kafka.serializer.IntegerDecoder is deprecated. Please use {new} instead"
    assert printed(capsysbinary, path, "--value-decoder-class", "bytes")[2].endswith(" payload: 0xffffffff09")
    code, out, err = lines(
        capsysbinary, path, "--key-decoder-class", "integer", "--value-decoder-class", "long"
    )
    assert code == 1
    assert out[-1].endswith(b"headerKeys: []")  # the tool's line ends where it fails
    assert "long: expected 8 bytes or more, found 4, in the batch at position 0" in err[0]


def test_gaps_are_reported_at_the_end(tmp_path: Path, capsysbinary: Any) -> None:
    batches = [Batch((Record(value=b"v"),), base_offset=offset).encode() for offset in (0, 1, 5, 9)]
    path = put(tmp_path, b"".join(batches))
    _, _, err = lines(capsysbinary, path, "--deep-iteration")
    assert err == [f"Non-consecutive offsets in {path}", "  5 is followed by 9", "  1 is followed by 5"]


def test_files_are_taken_as_the_tool_takes_them(tmp_path: Path, capsysbinary: Any) -> None:
    """``--files a,b``, which is how kafka-dump-log.sh names its files."""
    first, second = (
        put(tmp_path, Batch((Record(b"k", b"v"),), base_offset=n).encode(), f"{n:020d}.log") for n in (0, 3)
    )
    assert lines(capsysbinary, "--files", f"{first},{second}") == lines(capsysbinary, first, second)
    assert lines(capsysbinary)[::2] == (
        2,
        ["error: FILE is missing: name a .log file, an index, a snapshot or a checkpoint file"],
    )


def test_the_first_bytes_alone(tmp_path: Path, capsysbinary: Any) -> None:
    batch = Batch((Record(value=b"v"),)).encode()
    path = put(tmp_path, batch * 3)
    assert len(printed(capsysbinary, path, "--max-bytes", str(2 * len(batch) + 20))) == 2
    torn = printed(capsysbinary, put(tmp_path, batch + batch[:-1]))
    assert torn[1:] == [f"Found {len(batch) - 1} invalid bytes at the end of {SEGMENT}"]


# Indexes


def index_folder(folder: Path, offset: int = 0) -> Path:
    """Two batches, with an entry each in both indexes."""
    batches = [Batch((Record(value=b"v"), Record(value=b"w")), base_offset=2 * i).encode() for i in range(2)]
    put(folder, b"".join(batches))
    position = len(batches[0])
    put(folder, struct.pack(">iiii", 1, 0, 3 + offset, position) + bytes(16), f"{0:020d}.index")
    put(folder, struct.pack(">qi", 1_700_000_000_000 + offset, 3), f"{0:020d}.timeindex")
    return folder


def test_entries_that_agree_with_the_log(tmp_path: Path, capsysbinary: Any) -> None:
    folder = index_folder(tmp_path)
    index, times = str(folder / f"{0:020d}.index"), str(folder / f"{0:020d}.timeindex")
    code, out, err = lines(capsysbinary, index, times)
    size = (folder / SEGMENT).stat().st_size // 2
    assert out == [
        *(f"Dumping {index}".encode(), b"offset: 1 position: 0", b"offset: 3 position: %d" % size),
        *(f"Dumping {times}".encode(), b"timestamp: 1700000000000 offset: 3", b""),
    ]
    assert (code, err) == (0, [])
    assert (
        lines(capsysbinary, index, "--index-sanity-check")[1][1] == f"{index} passed sanity check.".encode()
    )


def test_entries_that_disagree_are_reported_at_the_end(tmp_path: Path, capsysbinary: Any) -> None:
    folder = index_folder(tmp_path, offset=1)
    index, times = str(folder / f"{0:020d}.index"), str(folder / f"{0:020d}.timeindex")
    code, out, err = lines(capsysbinary, index, times, "--verify-index-only")
    assert (code, out[2:]) == (0, [b""])
    assert err == [
        *(f"Mismatches in :{index}", "  Index offset: 4, log offset: 3"),
        *(
            f"Found timestamp mismatch in :{times}",
            "  Index timestamp: 1700000000001, log timestamp: 1700000000000",
        ),
    ]


def test_an_index_that_a_broker_would_build_again(tmp_path: Path, capsysbinary: Any) -> None:
    folder = index_folder(tmp_path)
    index = put(folder, struct.pack(">iib", 1, 0, 3), f"{0:020d}.index")
    code, _, err = lines(capsysbinary, index, "--index-sanity-check")
    assert (code, err) == (1, [f"error: {index}: 9 bytes are no multiple of 8"])
    code, _, err = lines(capsysbinary, put(folder, struct.pack(">ii", 1, 1 << 20), f"{0:020d}.index"))
    assert code == 1
    assert "entry 0 points to position 1048576, where no batch begins" in err[0]


def test_a_time_index_whose_index_leads_after_the_log_fails_as_the_tool_does(
    tmp_path: Path, capsysbinary: Any
) -> None:
    """At the end of the log nothing is found; after it, and before its begin, the tool fails."""
    times = str(index_folder(tmp_path) / f"{0:020d}.timeindex")
    size = (tmp_path / SEGMENT).stat().st_size
    for position, expected in ((size, 0), (size + 1, 1), (-1, 1)):
        put(tmp_path, struct.pack(">ii", 1, position), f"{0:020d}.index")
        code, out, err = lines(capsysbinary, times)
        assert (code, len(out)) == (expected, 3 if expected == 0 else 2)
        words = f"leads to position {position} for offset 3, and the segment has {size} bytes"
        assert (
            words in err[0] if code else err[0] == "The following indexed offsets are not found in the log."
        )


def test_a_producer_snapshot_that_the_broker_refuses(tmp_path: Path, capsysbinary: Any) -> None:
    path = put(tmp_path, struct.pack(">hIi", 1, 5, 0), f"{7:020d}.snapshot")
    code, out, err = lines(capsysbinary, path)
    assert (code, out[1:]) == (0, [b""])
    crc = "Stored crc: 5. Computed crc: 1214729159"
    assert err == [f"Snapshot is corrupt (CRC is no longer valid). {crc}"]


def test_epochs_have_a_line_each(capsysbinary: Any) -> None:
    path = str(ROOT / "v2-txn-abort" / "tx-aborted-0" / "leader-epoch-checkpoint")
    assert lines(capsysbinary, path)[1][1:] == [b"epoch: 0 startOffset: 0", b"epoch: 2 startOffset: 24", b""]


# More than the tool


def damaged(folder: Path) -> tuple[str, int]:
    """Three batches, a bit of the second one's value flipped; and where that batch begins."""
    record = Record(b"k", b"value", headers=((b"a", b"1"), (b"b", None)))
    batches = [bytearray(Batch((record,), base_offset=i).encode()) for i in range(3)]
    batches[1][batches[1].index(b"value")] ^= 1
    return put(folder, b"".join(batches) + b"rest"), len(batches[0])


def test_more_prints_header_values_damage_and_what_follows(tmp_path: Path, capsysbinary: Any) -> None:
    path, size = damaged(tmp_path)
    found = printed(capsysbinary, path, "--print-data-log", "--more")
    assert found[1].endswith("headerKeys: [a,b] headerValues: [1,null] key: k payload: value")
    assert found[2].endswith("isvalid: false")
    assert found[4].startswith(
        f"damage: crc_mismatch position: {size} size: {size} nextPosition: {2 * size} detail: "
    )
    assert found[5].startswith("baseOffset: 2 ")
    assert found[7:] == [
        f"tail: torn position: {3 * size} size: 4",
        f"Found 4 invalid bytes at the end of {SEGMENT}",
    ]


def test_more_goes_on_where_the_tool_fails(tmp_path: Path, capsysbinary: Any) -> None:
    batches = [bytearray(Batch((Record(value=b"v"),), base_offset=i).encode()) for i in range(3)]
    batches[1][8:12] = struct.pack(">i", 5)
    path = put(tmp_path, b"".join(batches))
    code, out, err = lines(capsysbinary, path)
    assert (code, len(out)) == (1, 4)
    position = len(batches[0])
    reason = f"a length of 5, and the smallest is 14, at position {position}"
    assert err == [f"error: {path}: {reason}; --more prints what follows, too"]
    more = printed(capsysbinary, path, "--more")
    assert more[1].startswith(f"damage: invalid_header position: {position} ")
    assert more[2].startswith("baseOffset: 2 ")


def test_objects_of_a_damaged_segment(tmp_path: Path, capsysbinary: Any) -> None:
    path, size = damaged(tmp_path)
    found = objects(capsysbinary, path)
    assert [each["kind"] for each in found] == [
        *("batch", "record", "batch", "record", "damage", "batch", "record", "tail")
    ]
    assert {each["file"] for each in found} == {path}
    first = found[1]
    assert (first["offset"], first["key"], first["value"]) == (0, "aw==", "dmFsdWU=")
    assert first["headers"] == [["a", "MQ=="], ["b", None]]
    assert (found[2]["crc_ok"], found[3]["unproven"]) == (False, True)
    assert (found[4]["reason"], found[4]["position"]) == ("crc_mismatch", size)
    assert found[7]["tail"] == "torn"


def test_objects_of_decoded_records_and_entries(capsysbinary: Any) -> None:
    path = str(ROOT / "v2-internal" / "__consumer_offsets-0" / SEGMENT)
    first = next(o for o in objects(capsysbinary, path, "--offsets-decoder") if o["kind"] == "record")
    assert json.loads(first["decoded_key"])["type"] == "2"
    snapshot = str(ROOT / "v2-txn-abort" / "tx-aborted-0" / f"{24:020d}.snapshot")
    (producer,) = objects(capsysbinary, snapshot)
    assert (producer["kind"], producer["producer_id"]) == ("producer", 53)


def test_control_records_of_every_type_that_is_not_known(tmp_path: Path, capsysbinary: Any) -> None:
    batch = Batch(
        (Record(struct.pack(">hh", 0, 9), b"x"), Record(struct.pack(">hh", 0, -3), None)), flags=CONTROL
    )
    found = printed(capsysbinary, put(tmp_path, batch.encode()), "--print-data-log")
    assert [line.rpartition(" headerKeys: [] ")[2] for line in found[1:]] == [
        *("controlType: UNKNOWN(9)", "controlType: UNKNOWN(-3)")
    ]


# Wrong arguments


def test_one_line_says_what_to_do(tmp_path: Path, capsysbinary: Any) -> None:
    path = put(tmp_path, b"x" * 100, "notes.txt")
    assert lines(capsysbinary, path)[2] == [
        f"Ignoring unknown file {path}",
        "error: not a file of Kafka, by its name: a segment's name ends in .log, an index's in .index, "
        ".timeindex or .txnindex, a snapshot's in .snapshot or .checkpoint",
    ]
    assert lines(capsysbinary, str(tmp_path))[2] == [
        f"error: {tmp_path} is a folder: name files in it, such as {tmp_path}/TOPIC-0/*.log"
    ]
    missing = str(tmp_path / "x.log")
    assert lines(capsysbinary, missing)[::2] == (
        2,
        [f"error: {missing}: it can't be opened: No such file or directory"],
    )
    odd = put(tmp_path, b"", "orders.log")
    assert lines(capsysbinary, str(tmp_path))[2][0].endswith(f"such as {tmp_path}/*.log")
    assert "its name begins with 'orders', not with a base offset" in lines(capsysbinary, odd)[2][0]
    assert lines(capsysbinary, odd, "--more")[0] == 0
    code, _, err = lines(capsysbinary, odd, "--key-decoder-class", "avro")
    assert code == 2
    known = "string, long, integer, bytes or Kafka's class of that name"
    assert err == [f"error: --key-decoder-class must be {known}, not 'avro'"]
    assert lines(capsysbinary, odd, "--offsets-decoder", "--cluster-metadata-decoder")[0] == 2
    assert "--max-bytes must be a whole number" in lines(capsysbinary, odd, "--max-bytes", "x")[2][0]


def test_an_index_without_its_segment(tmp_path: Path, capsysbinary: Any) -> None:
    path = put(tmp_path, bytes(8), f"{0:020d}.index")
    code, _, err = lines(capsysbinary, path)
    assert code == 2
    assert os.path.basename(path) in err[0]

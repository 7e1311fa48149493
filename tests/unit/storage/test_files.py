"""``decode_segment``, ``read_segment``, ``decode_folder``: no Spark, and no damage that goes unsaid."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafka_log_lake
from kafka_log_lake import decode_folder, decode_segment, read_segment
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.udfs.decoder.decoded import Damage
from kafka_log_lake.udfs.files import SCHEMA, DamageError, DamageWarning
from tests.environment.test_corpus_in_tables import consumed
from tests.support.corpus import ROOT, oracle_records, segments
from tests.support.logs import batch, data, marker, put

DAMAGED = ROOT / "hostile" / "bitflip-payload-v2-zstd-0" / "00000000000000000000.log"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    return path


def test_one_table_has_every_record_of_the_file() -> None:
    for path in segments()[::20]:
        table = read_segment(path)
        assert table.column("offset").to_pylist() == [line["offset"] for line in oracle_records(path)]
        assert table.schema == SCHEMA


def test_an_empty_file_gives_a_table_without_rows(empty: Path) -> None:
    table = read_segment(empty)
    assert (table.num_rows, table.schema) == (0, SCHEMA)


def test_damage_warns_unless_it_is_taken_care_of() -> None:
    with pytest.warns(DamageWarning, match=r"bitflip-payload.*: crc_mismatch at byte 3,374, 796 bytes: "):
        rows = read_segment(DAMAGED).num_rows
    found: list[Damage] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_segment(DAMAGED, on_damage="ignore").num_rows == rows == 87
        assert read_segment(DAMAGED, on_damage=found.append).num_rows == rows
    assert [damage.position for damage in found] == [3374]


def test_damage_can_raise() -> None:
    with pytest.raises(DamageError, match="crc_mismatch") as raised:
        read_segment(DAMAGED, on_damage="raise")
    assert raised.value.damage.position == 3374


def test_a_file_that_is_no_segment_says_so(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"\xff\xd8\xff\xe0" + b"jpeg" * 1000)
    with pytest.raises(DamageError, match=r"photo.jpg is not a Kafka log segment \("):
        read_segment(path)
    assert read_segment(path, on_damage="ignore").num_rows == 0
    short = tmp_path / "hostname"
    short.write_text("node-1\n")
    with pytest.raises(
        ValueError, match="hostname is not a Kafka log segment: no record batch in its 7 bytes"
    ):
        read_segment(short)
    torn = put(tmp_path / "a-0", 0, batch(0)[:40])
    assert read_segment(torn).num_rows == 0, "the first batch of a segment that is being written"
    sound = tmp_path / "sound.log"
    sound.write_bytes(batch(0) + b"\xff" * 100 + batch(3))
    with pytest.warns(DamageWarning) as printed:
        read_segment(sound)
    assert "is not a Kafka log segment" not in str(printed[0].message)


@pytest.mark.parametrize(("path", "hint"), [(5, "not 5"), (b"a.log", r"os.fsdecode\(\) makes a str of it")])
def test_a_wrong_type_of_path_is_refused(path: Any, hint: str) -> None:
    for read in (read_segment, kafka_log_lake.read_segment, lambda path: list(decode_folder(path))):
        with pytest.raises(TypeError, match=rf"path must be a str or an os.PathLike, not .*{hint}|{hint}"):
            read(path)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"start": -1}, "start must be from 0 to 5,687, the bytes of the file, not -1"),
        ({"start": 10**12}, "start must be from 0 to 5,687, the bytes of the file, not 1,000,000,000,000"),
        ({"start": "0"}, "start must be an int, not '0'"),
        ({"window_bytes": 0}, "window_bytes must be 1 or more, not 0"),
        ({"max_batch_uncompressed": -1}, "max_batch_uncompressed must be 1 or more, not -1"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(error)):
        kafka_log_lake.read_segment(DAMAGED, on_damage="ignore", **arguments)


def test_keyword_arguments_are_declared() -> None:
    names = inspect.signature(decode_segment).parameters.keys()
    assert "on_damage" in names
    assert inspect.signature(read_segment).parameters.keys() == names | {"typed", "topic"}


@pytest.mark.parametrize(
    "read",
    [
        lambda: read_segment(DAMAGED),
        lambda: list(decode_segment(DAMAGED)),
        lambda: list(decode_folder(DAMAGED)),
    ],
)
def test_a_warning_shows_the_line_of_the_caller(read: Any) -> None:
    with pytest.warns(DamageWarning) as printed:
        read()
    assert printed[0].filename == __file__


def test_another_word_for_on_damage_is_refused() -> None:
    with pytest.raises(
        ValueError, match="on_damage must be one of warn, raise, ignore, or a callable, not 'x'"
    ):
        read_segment(DAMAGED, on_damage="x")  # type: ignore[arg-type]


def test_no_file_is_an_ordinary_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_segment(tmp_path / "nope.log")


def test_a_folder_gives_every_record_with_its_topic_and_partition(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 3, batch(3))
    put(tmp_path / "a-0", 0, batch(0))
    put(tmp_path / "b-12", 0, batch(0, 1), b"\xff" * 70)
    put(tmp_path / "c-0", 0)
    with pytest.warns(DamageWarning):
        table = pa.Table.from_batches(decode_folder(tmp_path))
    found = [tuple(row.values()) for row in table.select(["topic", "partition", "offset"]).to_pylist()]
    assert found == [*(("a", 0, offset) for offset in range(6)), ("b", 12, 0)]
    assert table.schema.names == ["topic", "partition", *SCHEMA.names]
    only_a = pa.Table.from_batches(decode_folder(tmp_path, topics="a", on_damage="raise"))
    assert only_a.num_rows == 6
    with pytest.raises(DamageError):
        list(decode_folder(tmp_path, on_damage="raise"))
    with pytest.raises(UserError, match="no such path"):
        next(decode_folder(tmp_path / "nope"))


def test_committed_records_are_what_consumers_got() -> None:
    partitions = list(consumed())
    assert len(partitions) == 143
    for folder, _, offsets in partitions:
        found = pa.Table.from_batches(
            decode_folder(folder, committed=True, columns=["offset"], on_damage="raise")
        )
        assert found.schema.names == ["topic", "partition", "offset"]
        assert found.column("offset").to_pylist() == offsets, folder


@pytest.mark.parametrize("typed", [False, True])
def test_columns_that_can_be_read_once_or_are_none_are_refused(tmp_path: Path, typed: bool) -> None:
    path = put(tmp_path / "a-0", 0, batch(0, 1))
    wrong: list[Any] = [iter(["offset", "value"]), []]
    for columns in wrong:
        with pytest.raises(ValueError, match="columns must name one or more of key, value"):
            kafka_log_lake.read_segment(path, columns=columns, typed=typed)
        with pytest.raises(ValueError, match="columns must name one or more of key, value"):
            list(decode_folder(tmp_path, columns=columns, typed=typed))


def test_the_marker_in_a_later_segment_decides_for_an_earlier_one(tmp_path: Path) -> None:
    first = put(tmp_path / "a-0", 0, data(0, 1), data(1, 2), batch(2, 1), data(3, 1), data(4, 3))
    put(tmp_path / "a-0", 5, marker(5, 1, commit=False), marker(6, 2), batch(7, 1))
    assert read_segment(first, committed=True).column("offset").to_pylist() == [1, 2]  # 4 is open: 3 holds
    assert "producer_id" not in read_segment(first, committed=True, columns=["value"]).schema.names
    put(tmp_path / "a-0", 8, marker(8, 3))
    whole = pa.Table.from_batches(decode_folder(tmp_path, committed=True))
    assert whole.column("offset").to_pylist() == [1, 2, 4, 7]
    assert whole.schema.names == ["topic", "partition", *SCHEMA.names]
    assert read_segment(first).column("offset").to_pylist() == [0, 1, 2, 3, 4]


def test_a_loose_file_takes_the_topic_and_partition_that_are_given(tmp_path: Path) -> None:
    path = put(tmp_path / "incoming", 0, batch(0))
    with pytest.raises(UserError, match=r"folder is not a partition; .* --topic NAME --partition NUMBER$"):
        next(decode_folder(path))
    table = pa.Table.from_batches(decode_folder(path, topic="orders", partition=4))
    assert set(zip(*table.select(["topic", "partition"]).to_pydict().values(), strict=True)) == {
        ("orders", 4)
    }
    put(tmp_path / "other", 0, batch(0))
    with pytest.raises(UserError, match="are for the segments of one folder, and here are 2: file:///"):
        next(decode_folder(tmp_path, topic="orders", partition=4))
    with pytest.raises(UserError, match="--topic and --partition are given together"):
        next(decode_folder(path, topic="orders"))

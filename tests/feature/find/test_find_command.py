"""The command ``find``: its output, what it says of damage, exit codes, and what is wrong with arguments."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafka_log_lake
from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.pipelines.find.output import MatchTable
from tests.support import corpus
from tests.support.logs import batch, batches, data, marker, put
from tests.support.segment_maker import Batch, Record

ROOT = Path(__file__).parents[3]
NOW = 1_700_000_000_000


def run(capsysbinary: pytest.CaptureFixture[bytes], *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command."""
    code = find.main([*map(str, arguments), "--cores", "1"])
    printed = capsysbinary.readouterr()
    return code, printed.out.decode(), printed.err.decode()


def stored(base: int, *records: Record, **values: Any) -> bytes:
    return Batch(records=records, base_offset=base, base_timestamp=NOW, **values).encode()


def broken(made: bytes) -> bytes:
    """A batch with one wrong bit in its last byte."""
    return made[:-1] + bytes([made[-1] ^ 1])


def test_json_has_a_line_a_record(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    headers = ((b"h", b"\xff"), (b"n", None))
    put(
        tmp_path / "a-3",
        7,
        stored(7, Record(key=b"k\xff", value=None, headers=headers), Record(key=None, value=b"")),
        data(9, 5, epoch=2),
        marker(10, 5, commit=False),
    )
    code, out, err = run(capsysbinary, tmp_path, "--format", "json")
    assert (code, err) == (0, "")
    first, second, third, last = map(json.loads, out.splitlines())
    segment = f"file://{tmp_path}/a-3/00000000000000000007.log"
    assert first == {
        "topic": "a",
        "partition": 3,
        "offset": 7,
        "timestamp_ms": NOW,
        "key": base64.b64encode(b"k\xff").decode(),
        "value": None,
        "headers": [["h", "/w=="], ["n", None]],
        "segment": segment,
        "batch_position": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "outcome": None,
        "control_type": None,
        "leader_epoch": 0,
        "key_text": None,
        "value_text": None,
    }
    assert (second["key"], second["value"], second["headers"]) == (None, "", [])
    assert (third["producer_id"], third["producer_epoch"], third["outcome"]) == (5, 2, "aborted")
    assert (last["control_type"], last["outcome"]) == ("ABORT", None)


def test_csv_arrow_and_raw_hold_the_same(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    put(tmp_path / "a-0", 0, stored(0, Record(key=None, value=b'x,"y"'), Record(key=b"", value=b"\n\xff")))
    _, out, _ = run(capsysbinary, tmp_path, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["offset"], row["value"]) for row in rows] == [("0", "eCwieSI="), ("1", "Cv8=")]
    assert ',,"eCw' not in out.splitlines()[1].replace(',"[]"', "")
    assert out.splitlines()[1].split(",")[4] == ""
    assert out.splitlines()[2].split(",")[4] == '""'
    file = tmp_path / "found.arrow"
    assert run(capsysbinary, tmp_path, "--format", "arrow", "--output", file)[:2] == (0, "")
    table = pa.ipc.open_stream(file.read_bytes()).read_all()
    assert table.column("value").to_pylist() == [b'x,"y"', b"\n\xff"]
    assert find.main([str(tmp_path), "--format", "raw", "--cores", "1"]) == 0
    assert capsysbinary.readouterr().out == b'x,"y"\n\n\xff\n'


def test_a_table_names_the_kind_of_each_value(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    values = (b'{"a": 1}', b"\0\0\0\0\x0cabc", b"\xff\x00", b"hello\x1b[2J", None)
    put(tmp_path / "a-0", 0, stored(0, *(Record(key=b"k", value=value) for value in values)))
    _, out, _ = run(capsysbinary, tmp_path)
    lines = out.splitlines()
    assert lines[0].split() == ["partition", "offset", "timestamp", "key", "value"]
    for line, shown in zip(
        lines[1::2], ('JSON {"a": 1}', "schema 12 abc", "bytes 0xff00", r"\x1b[2J", "null"), strict=True
    ):
        assert line.startswith("a-0 ")
        assert "text k" in line
        assert shown in line or shown == r"\x1b[2J"
    assert "\x1b" not in out
    assert "batch at byte 0" in lines[2]


def test_a_table_fits_80_columns(tmp_path: Path) -> None:
    put(tmp_path / "orders-12", 0, stored(0, Record(key=b"k" * 99, value=b"v" * 99)))
    lines = [line for found in kafka_log_lake.find(tmp_path) for line in MatchTable(80).lines(found)]
    assert "kkkkk…" in lines[1]
    assert "vvvvvv…" in lines[1]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (["--key", "k1"], [1, 4, 7, 10]),
        (["--key", "0x6b31"], [1, 4, 7, 10]),
        (["--key", "k1", "--key", "k2", "--offset", ":6"], [1, 2, 4, 5]),
        (["--not", "--key", "k1", "--not", "--key=k2", "--offset", "3:"], [3, 6, 9]),
        (["--value-contains", "v1", "--value-contains", "0"], [10]),
        (["--offset", "2", "--offset", "7"], [2, 7]),
        (["--key", "k1", "--first"], [1]),
        (["--key", "k1", "--first", "--limit", "2"], [1, 4]),
        (["--key", "k1", "--last"], [10]),
        (["--key", "k1", "--last", "--limit", "3"], [4, 7, 10]),
        (["--limit", "5"], [0, 1, 2, 3, 4]),
        (["--offset", "12:"], []),
        (["--not", "--partition", "1", "--offset", "0"], [0]),
    ],
)
def test_which_records(
    arguments: list[str], offsets: list[int], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    put(tmp_path / "a-0", 0, *batches(0, 2))
    put(tmp_path / "a-0", 6, batch(6), batch(9, codec=4))
    code, out, _ = run(capsysbinary, tmp_path, "--format", "json", *arguments)
    assert [json.loads(line)["offset"] for line in out.splitlines()] == offsets
    assert code == (0 if offsets else 4)
    code, out, _ = run(capsysbinary, tmp_path, "--count", *arguments)
    assert int(out) == len(offsets)


def test_keys_of_a_file(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    put(tmp_path / "a-0", 0, *batches(0, 2))
    for content in (b"k0\r\nk2\n", b"k0\0k2\0", b"k0\nk2"):
        (tmp_path / "keys").write_bytes(content)
        _, out, _ = run(capsysbinary, tmp_path, "--key", f"@{tmp_path}/keys", "--count")
        assert out == "4\n"


def test_first_and_last_are_of_each_partition(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for partition in range(3):
        put(tmp_path / f"a-{partition}", 0, *batches(0, 3))
    for option, offset in (("--first", 0), ("--last", 6)):
        _, out, _ = run(capsysbinary, tmp_path, "--key", "k0", option, "--format", "json")
        rows = [json.loads(line) for line in out.splitlines()]
        assert sorted((row["partition"], row["offset"]) for row in rows) == [(p, offset) for p in range(3)]


def test_the_partition_of_a_key_comes_first(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Kafka's partitioner gives k0 to partition 2 of 3: org.apache.kafka.common.utils.Utils.murmur2."""
    for partition in range(3):
        put(tmp_path / f"a-{partition}", 0, batch(0))
    _, out, _ = run(capsysbinary, tmp_path, "--key", "k0", "--format", "json")
    first, *rest = (json.loads(line)["partition"] for line in out.splitlines())
    assert sorted([first, *rest]) == [0, 1, 2]
    assert rest == sorted(rest)
    code, out, _ = run(capsysbinary, tmp_path, "--key", "k0", "--format", "json", "--trust-partitioner")
    assert [json.loads(line)["partition"] for line in out.splitlines()] == [first]
    others = next(p for p in range(3) if p != first)
    arguments = (tmp_path, "--key", "k0", "--partition", others, "--trust-partitioner")
    code, out, err = run(capsysbinary, *arguments)
    assert code == 4
    assert "1 partition skipped because of --trust-partitioner" in err


def test_not_found_says_what_could_not_be_searched(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    put(tmp_path / "a-0", 0, batch(0), broken(batch(3)), batch(6))
    assert run(capsysbinary, tmp_path, "--key", "none") == (
        5,
        "",
        "warning: a-0: 94 bytes at byte 94 of 00000000000000000000.log could not be searched (crc_mismatch): "
        "offsets 3 to 5 may be in it\n"
        "not found, and 1 range could not be searched; 1 segment searched\n",
    )
    code, out, err = run(capsysbinary, tmp_path, "--key", "k1", "--count")
    assert (code, out) == (0, "2\n")
    assert "offsets 3 to 5" in err
    for offset, expected in (("0:3", 4), ("4", 5), ("6:", 4)):  # what damage can't hold it does not hide
        arguments = (tmp_path, "--key", "none", "--offset", offset)
        assert run(capsysbinary, *arguments)[0] == expected


def test_a_link_that_is_not_followed_is_not_searched(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    put(tmp_path / "logs" / "a-0", 0, batch(0))
    put(tmp_path / "elsewhere" / "b-0", 0, batch(0))
    (tmp_path / "logs" / "b-0").symlink_to(tmp_path / "elsewhere" / "b-0")
    code, _, err = run(capsysbinary, tmp_path / "logs", "--key", "none")
    assert (code, err.splitlines()[-1]) == (
        5,
        "not found, and 1 range could not be searched; 1 segment searched",
    )
    assert "--follow-symlinks" in err
    assert run(capsysbinary, tmp_path / "logs", "--key", "none", "--follow-symlinks")[0] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--key-regex", "("], "--key-regex must be a regular expression of RE2"),
        (["--value-regex", "(?=a)"], "invalid perl operator: (?="),
        (["--not", "--key-regex", "["], "--not --key-regex must be"),
        (["--json", "a["], "--where-json must be PATH=VALUE"),
        (["--json", "a[=1"], "--where-json must be PATH=VALUE"),
        (["--key", "0x1"], "0x must be followed by pairs of hexadecimal digits"),
        (["--key", "@/none"], "cannot read the file"),
        (["--header", "=x"], "--header must be NAME"),
        (["--offset", "x"], "--offset must be N, or FROM:TO"),
        (["--offset", "7:7"], "--offset must be N, or FROM:TO"),
        (["--offset=-3"], "--offset must be N, or FROM:TO"),
        (["--since", "yesterday"], "--since must be a date"),
        (["--until", "9223372036854775808"], "--until must be a date"),
        (["--producer", "x"], "--producer must be a whole number"),
        (["--transaction", "lost"], "--transaction must be one of open, aborted, committed"),
        (["--limit", "0"], "--limit must be a whole number above 0"),
        (["--context", "x"], "--context must be a whole number above 0"),
        (["--first", "--last"], "give --first or --last, not both"),
        (["--topic", "b"], "pass --partition N too"),
        (["--output", f"{__file__}/x"], f"--output {__file__}/x can't be written: Not a directory"),
        (["--kye", "x"], "did you mean --key?"),
    ],
)
def test_a_wrong_argument_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    put(tmp_path / "a-0", 0, batch(0))
    code, out, err = run(capsysbinary, tmp_path, *arguments)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_no_segment_is_one_line(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "nothing"):
        code, out, err = run(capsysbinary, path)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1


def test_bytes_that_are_no_segment_could_not_be_searched(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    put(tmp_path / "a-0", 0, random.Random(1).randbytes(500))
    code, _, err = run(capsysbinary, tmp_path, "--key", "x")
    assert code == 5
    assert "500 bytes at byte 0" in err


def test_a_segment_is_not_written_over(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = put(tmp_path / "a-0", 0, batch(0))
    before = path.read_bytes()
    code, _, err = run(capsysbinary, tmp_path, "--output", path)
    assert code == 2
    assert "is a segment" in err
    assert path.read_bytes() == before


def test_a_file_in_a_folder_of_another_name(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = put(tmp_path / "sent", 0, batch(0))
    assert run(capsysbinary, path)[0] == 2
    code, out, _ = run(capsysbinary, path, "--topic", "b", "--partition", "4", "--format", "json")
    assert code == 0
    assert {(row["topic"], row["partition"]) for row in map(json.loads, out.splitlines())} == {("b", 4)}


def test_a_pattern_that_hangs_backtracking_engines(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    put(tmp_path / "a-0", 0, stored(0, Record(key=b"a" * 5000, value=b"a" * 100_000 + b"!")))
    for option in ("--key-regex", "--value-regex"):
        assert run(capsysbinary, tmp_path, option, "(a+)+(b|c|d)+$")[0] == 4


def test_json_that_is_deep_or_long_ends(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    values = (b"[" * 100_000, b"9" * 100_000, b'{"a":' * 10_000, b'{"a": 5}', b"")
    put(tmp_path / "a-0", 0, stored(0, *(Record(key=b"k", value=value) for value in values)))
    _, out, _ = run(capsysbinary, tmp_path, "--json", "a=5", "--format", "json")
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [3]


@pytest.mark.parametrize(
    ("condition", "offsets"),
    [
        *((path, [0, 1]) for path in ("id=5", "$.id=5")),
        ("id=true", [2, 4]),
        ("id=null", [3]),
        ('id="5"', [1]),
        ("$.items[?@.n==2].name=x=y", [5]),
        ("items[0].n=1", [5]),
        ('items[0]={"n":1}', [5]),
        ('items[0]={"n":true}', []),
        *((f"tags=[{one}]", [at]) for at, one in ((6, 1), (7, "true"))),
        *((path, [7]) for path in ("in.or=5", "true=5", "$..or=5", "['true']=5")),
    ],
)
def test_json_fields(
    condition: str, offsets: list[int], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    values = (
        *(b'{"id": 5}', b'{"id": "5"}', b'{"id": true}', b'{"id": null}', b'{"id": "true"}'),
        *(b'{"id": 1, "items": [{"n": 1}, {"n": 2, "name": "x=y"}]}', b'{"tags": [1]}'),
        b'{"tags": [true], "in": {"or": 5}, "true": 5}',
    )
    put(tmp_path / "a-0", 0, stored(0, *(Record(key=b"k", value=value) for value in values)))
    _, out, _ = run(capsysbinary, tmp_path, "--json", condition, "--format", "json")
    assert [json.loads(line)["offset"] for line in out.splitlines()] == offsets


def test_a_limit_counts_over_partitions(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for partition in range(3):
        put(tmp_path / f"a-{partition}", 0, batch(0))
    for limit in (2, 4, 7, 100):
        _, out, _ = run(capsysbinary, tmp_path, "--limit", limit, "--format", "json")
        assert len(out.splitlines()) == min(limit, 9)
        assert int(run(capsysbinary, tmp_path, "--limit", limit, "--count")[1]) == min(limit, 9)


def rows(path: Path, **options: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    unsearched: list[Any] = []
    found = find.find(path, on_unsearched=unsearched.append, **{"cores": 1, **options})
    return [row for batch in found for row in batch.to_pylist()], unsearched


def test_no_spark_no_database_and_no_java(tmp_path: Path) -> None:
    put(tmp_path / "a-0", 0, batch(0))
    code = (
        "import sys\nfrom kafka_log_lake.pipelines.cli.program import main\n"
        f"assert main(['find', {str(tmp_path)!r}, '--key', 'k1', '--json', 'a=1']) == 4\n"
        "assert not {'pyspark', 'delta', 'py4j', 'deltalake', 'duckdb'} & set(sys.modules)"
    )
    environment = {**os.environ, "JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)


def test_both_commands_take_the_same_arguments(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    from kafka_log_lake.pipelines.cli.program import main

    put(tmp_path / "a-0", 0, *batches(0, 4))
    arguments = [str(tmp_path), "--not", "--key", "k1", "--key=k1", "--key", "k2", "--tombstones", "--count"]
    for given in (
        arguments,
        [*arguments[:-2], "--count"],
        ["--not", "--tombstones", str(tmp_path), "--count"],
    ):
        codes = find.main(given), main(["find", *given])
        assert codes[0] == codes[1]
        first, second = capsysbinary.readouterr().out.split()
        assert first == second


def test_real_segments_of_a_broker(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, _ = run(capsysbinary, corpus.ROOT / "v2-txn-abort", "--transaction", "aborted", "--count")
    expected = [
        line
        for path in corpus.segments()
        if path.parent.parent.name == "v2-txn-abort"
        for line in corpus.oracle_records(path)
        if not line["isControl"]
    ]
    assert code == 0
    assert 0 < int(out) <= len(expected)

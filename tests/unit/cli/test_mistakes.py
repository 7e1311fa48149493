"""Mistakes of a first-time user: files of other kinds, outputs in wrong places, text that is not UTF-8."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path

import pytest

import kafka_log_lake
from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.recover import command as recover
from tests.support import replicas
from tests.support.logs import batch, put

NOT_UTF8 = "a\udcff"  # the byte FF of an argument


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    return put(tmp_path / "logs" / "a-0", 0, batch(0))


@pytest.fixture
def lake(segment: Path, tmp_path: Path) -> str:
    made = str(tmp_path / "lake")
    assert main(["decode", "--source", str(segment), "--lake", made, "--cores", "1"]) == 0
    return made


def error_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a command prints of wrong arguments."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line.removeprefix("error: ")


def test_a_file_that_is_no_segment_is_not_searched_because_segments_lie_next_to_it(
    segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = segment.with_name("old.log")
    other.write_bytes(batch(0))
    words = (
        f"no segments (<topic>-<partition>/<20 digits>.log) in {other}; skipped: 1 x file is not a segment"
    )
    lake = tmp_path / "lake"
    assert error_of(capsys, "find", other, "--key", "k0") == words
    assert error_of(capsys, "decode", "--source", other, "--lake", lake) == words
    assert error_of(capsys, "ingest", "--source", other, "--lake", lake) == words
    assert not lake.exists()


def test_the_page_of_inspect_does_not_replace_the_segment(
    segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = segment.read_bytes()
    link = tmp_path / "page.html"
    os.link(segment, link)
    for page in (segment, link):
        words = f"--html: {page} is the file that is inspected, and is not overwritten"
        assert error_of(capsys, "inspect", segment, "--html", page) == words
    assert segment.read_bytes() == content


@pytest.mark.parametrize("command", ["inspect", "dump"])
def test_a_pipe_is_not_a_segment_and_is_not_waited_for(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / f"{0:020d}.log"
    os.mkfifo(pipe)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(main([command, str(pipe)])), daemon=True)
    thread.start()
    thread.join(60)
    assert found == [2]
    assert f"error: {pipe}: it is a pipe" in capsys.readouterr().err


def test_an_output_that_is_a_folder_or_has_no_name_is_refused(
    segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--output {tmp_path} can't be written: Is a directory"
    assert error_of(capsys, "find", segment, "--output", tmp_path) == words
    assert error_of(capsys, "find", segment, "--output", "") == "--output is empty"


def test_not_before_an_option_that_is_no_condition_says_so(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--not goes before a condition of find, as in --not --key user-17"
    for option in ("--first", "--typed", "--count"):
        assert error_of(capsys, "find", segment, "--not", option) == words
    assert error_of(capsys, "find", segment, "--not-ky", "a").endswith("did you mean --not-key?")


def test_text_that_is_not_utf8_and_a_missing_bucket_are_named(
    segment: Path, lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = error_of(capsys, "find", segment, "--header", NOT_UTF8)
    assert words == r"--header must have a name in UTF-8, not 'a\udcff'"
    for place, what in ((NOT_UTF8, r"a\udcff is not UTF-8"), ("s3:///lake", "s3:///lake names no bucket")):
        assert error_of(capsys, "query", "--lake", place, "SELECT 1").startswith(f"--lake: {what}")
    log = error_of(capsys, "query", "--lake", lake, "--log", NOT_UTF8, "SELECT 1")
    assert log.startswith(r"--log a\udcff: name a copy")
    assert (
        error_of(capsys, "query", "--lake", lake, f"SELECT '{NOT_UTF8}'") == "SQL: the statement is not UTF-8"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(f"SELECT '{NOT_UTF8}'; SELECT 7 AS n;"))
    assert main(["sql", "--lake", lake]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[2] == "7"
    assert printed.err.splitlines() == ["error: SQL: the statement is not UTF-8", "error: 1 statement failed"]


def test_the_shell_does_not_name_options_that_it_lacks(
    lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    # on a machine of a cluster too, where query runs in Spark by itself
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    monkeypatch.setattr("sys.stdin", io.StringIO("COPY records TO 'x.csv'; ATTACH 'x.db';"))
    assert main(["sql", "--lake", lake]) == 1
    first, second, _ = capsys.readouterr().err.splitlines()
    to_file = "query --output FILE writes rows to a file"
    assert first == f"error: the shell only reads the lake, and this is COPY; {to_file}"
    assert second == "error: the shell only reads the lake, and this is ATTACH"


def test_what_no_engine_may_do_gets_no_advice(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    for statement, kind in (
        ("INSTALL httpfs", "LOAD"),
        ("ATTACH 'x.db'", "ATTACH"),
        ("SET threads = 1", "SET"),
    ):
        said = error_of(capsys, "query", "--lake", lake, "--engine", "duckdb", statement)
        assert said == f"query only reads, and this is {kind}"


def test_a_folder_that_cannot_be_opened_is_named(
    segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ("x" * 300)
    why = "File name too long"
    words = f"the lake {folder} cannot be written: {why}; name another folder"
    assert error_of(capsys, "decode", "--source", segment, "--lake", folder) == words
    assert error_of(capsys, "sql", "--lake", folder).startswith(f"there is no lake at {folder}")
    arguments = ["recover", "--source", f"a={segment.parent.parent}", "--write", folder]
    assert error_of(capsys, *arguments) == f"--write {folder} can't be written: {why}"


def test_recover_without_a_lake_names_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = replicas.unpack(tmp_path / "replicas")
    sources = [one for source in replicas.sources(corpus, "s02-behind") for one in ("--source", source)]
    report = tmp_path / "bill"
    options = ["--topics", "orders-idem", "--cores", "1", "--json", "--report", str(report)]
    assert recover.main([*sources, *options]) == 0
    assert json.loads(capsys.readouterr().out)["lake"] is None
    assert "not kept: no --lake" in (report / "recovery.html").read_text()


def test_a_report_in_place_of_a_file_is_refused_before_anything_is_read(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment.parent.joinpath("bill").touch()
    bill = segment.with_name("bill")
    words = error_of(capsys, "recover", "--source", "a=/no/such/disk", "--report", bill)
    assert words == f"--report {bill} is not a folder"


def test_wrong_options_of_recover_are_named(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = error_of(capsys, "recover", "--source", "a=/no")
    assert words == "name what to write: --lake ./recovered, --report DIR, --write DIR, or several"
    words = error_of(capsys, "recover", "--source", "a=/no", "--lake", "x", "--node-id", "7")
    assert words == "--node-id needs --write DIR"
    words = error_of(capsys, "recover", "--source", f"broker 1={segment.parents[1]}", "--lake", "x")
    assert words.endswith("; the NAME of NAME=PATH has letters, digits, '.', '_' and '-' alone")


def test_decode_values_of_no_topic_is_refused_and_a_mode_without_a_table_says_so(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["decode-values", "--lake", lake, "--cores", "1", "--mode", "cdc"]) == 0
    last = "no table of --mode cdc was written: no topic that has changed has events of Debezium"
    assert capsys.readouterr().out.splitlines()[-1] == last
    words = error_of(capsys, "decode-values", "--lake", lake, "--topics", "nope", "--cores", "1")
    assert words == "no topic matches --topics and --exclude-topics; typed tables: a"


def test_options_of_typed_tables_are_refused_where_none_are_made(
    segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("decode", "--source", segment, "--lake", tmp_path / "lake", "--mode", "cdc")
    words = error_of(capsys, *arguments, "--json-values", "infer", "--no-typed")
    assert words == "--json-values, --mode: only for typed tables, leave out --no-typed"
    in_catalog = ("decode", "--source", segment, "--sink", "catalog", "--lake", "kafka", "--mode", "cdc")
    words = error_of(capsys, *in_catalog)
    assert words == "--mode: typed tables need a lake in a folder, --sink catalog has none"
    assert not (tmp_path / "lake").exists()


def test_the_names_of_the_package_can_be_completed() -> None:
    assert set(kafka_log_lake.__all__) <= set(dir(kafka_log_lake))


def test_a_lake_in_place_of_a_log_directory_is_recognized(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (error_of(capsys, "find", lake, "--key", "k0"), error_of(capsys, "scan", lake)):
        assert words.endswith(f" in {lake}; it is a lake, which find --lake and query --lake read")


def test_an_offset_of_another_form_says_which_forms_there_are(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("abc", "1:x", "5:2", ":"):
        words = f"--offset must be N, or FROM:TO such as 100:200 for 100 to 199, 100: or :200, not '{text}'"
        assert error_of(capsys, "find", segment, "--offset", text) == words


def test_a_lake_that_may_not_be_written_can_be_reported_on_with_at(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["quality-report", "--lake", lake, "--output", str(tmp_path / "page")]
    with monkeypatch.context() as patch:
        patch.setattr("kafka_log_lake.pipelines.lake.create.os.access", lambda *_: False)
        capfd.readouterr()
        assert main(arguments) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"error: the lake {lake}/quality_metrics cannot be written: ")
    assert line.endswith("; --at RUN reports on a lake without writing to it")
    assert main([*arguments, "--at", "2999-01-01"]) == 0


def test_a_data_file_that_is_cut_is_named_with_its_own_path(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = Path(lake, "records").rglob("*.parquet")
    os.truncate(file, 100)
    words = f"Invalid Input Error: No magic bytes found at end of file '{file}'"
    step = "restore the file, or decode into a new --lake"
    found = error_of(capsys, "find", "--lake", lake, "--key", "k0")
    assert found == f"a data file can't be used: {words}; {step}"
    statement = ("--engine", "duckdb", "SELECT key FROM records")
    assert words in error_of(capsys, "query", "--lake", lake, *statement)

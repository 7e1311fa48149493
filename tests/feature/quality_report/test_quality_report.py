"""The quality report: the command, its table, and the page that people open. No Spark."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import crc32c
import pytest
from deltalake import DeltaTable

from kafka_log_lake.pipelines.cli.errors import ChecksFailed
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.summary import Summary
from kafka_log_lake.pipelines.lake.create import add_rows, create_tables
from kafka_log_lake.pipelines.quality_report import command as quality_report
from kafka_log_lake.pipelines.quality_report import words
from kafka_log_lake.pipelines.quality_report.check import CHECKS
from kafka_log_lake.udfs.format.report_tables import QUALITY_METRICS, RUNS
from tests.support import as_command
from tests.support.lake_rows import insert
from tests.support.logs import batch, data, put
from tests.support.page import Page, check_structure
from tests.support.quality import add_log
from tests.support.segment_maker import Batch, Record, flip
from tools import check_report

ROOT = Path(__file__).resolve().parents[3]
SOUND = batch(0, 100) + batch(100, 100)
MARKUP = "<img src=x onerror=alert(1)>\"'&{{7*7}}|`*_</td></table><script>alert(2)</script>"
HOSTILE = [MARKUP, "a\x1b]0;x\x07\u202eb\nc\u2028d", "\ufffe\U000e0001"]


def report(lake: str, folder: Path, **options: Any) -> tuple[Page, dict[str, Any], str]:
    """The page, the JSON object and the Markdown of a run."""
    quality_report.run(Settings(lake=lake), output=str(folder), **options)
    page = Page((folder / "quality.html").read_text(encoding="utf-8"))
    return page, json.loads((folder / "quality.json").read_text()), (folder / "quality.md").read_text()


@pytest.fixture
def damaged(lake: str) -> str:
    """A lake with one log that has a wrong checksum, garbage and a torn tail."""
    add_log(
        lake,
        "orders",
        {0: SOUND + flip(batch(200), -1) + batch(203) + b"\xff" * 40 + batch(206) + SOUND[:50]},
    )
    return lake


# --- The page ---


def test_page_names_what_the_last_job_could_not_read(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_log(lake, "orders", {0: SOUND})
    for began, unreadable in enumerate((["file:///logs/b-0/old.log"], ["file:///logs/a-0/0.log"])):
        summary = Summary(f"{began}", lake, unread=unreadable)
        add_rows(lake, RUNS, summary.to_row(began))
    page, found, text = report(lake, tmp_path / "out")
    assert "file:///logs/a-0/0.log" in page.text()
    assert (found["unreadable"], found["verdict"]) == (["file:///logs/a-0/0.log"], "warning")
    assert "old.log" not in page.text() + text
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("verdict: Sound")
    assert last.endswith(" Not checked, as the last job could not read them: file:///logs/a-0/0.log.")


def test_page_of_a_damaged_lake(damaged: str, tmp_path: Path) -> None:
    page, _, _ = report(damaged, tmp_path / "out")
    check_structure(page)
    text = page.text()
    assert "Not sound: 2 errors and 1 warning (" in text
    (kind,) = [a["class"] for a in page.of("p") if str(a.get("class")).startswith("verdict")]
    assert kind == "verdict error"
    drawn = [str(one["aria-label"]) for one in page.of("svg")]
    assert len(drawn) >= 4
    assert any(label.startswith("Bars: bytes on disk of") for label in drawn)
    assert any(label.startswith("Bars: bytes written by") for label in drawn)


def test_page_shows_the_damaged_header_next_to_what_was_expected(lake: str, tmp_path: Path) -> None:
    sound = batch(200, leader_epoch=3)
    add_log(lake, "orders", {0: SOUND + flip(sound, -1) + batch(203)})
    page, found, _ = report(lake, tmp_path)
    (worst,) = found["worst"]
    fields = {field["name"]: field for field in worst["fields"]}
    computed = crc32c.crc32c(flip(sound, -1)[21:])
    assert fields["crc"] == {
        "name": "crc",
        "position": 17,
        "stored": sound[17:21].hex(" "),
        "value": f"0x{sound[17:21].hex()}",
        "expected": f"0x{computed:08x} as computed",
        "agrees": False,
    }
    assert fields["baseOffset"]["expected"] == "200 to 202"
    epoch = fields["partitionLeaderEpoch"]
    assert (epoch["stored"], epoch["expected"]) == ("00 00 00 03", "0")
    assert [name for name, field in fields.items() if not field["agrees"]] == ["partitionLeaderEpoch", "crc"]
    assert sound[17:21].hex(" ") in page.text()
    assert f"0x{computed:08x} as computed" in page.text()


def test_page_shows_a_dump_where_there_is_no_header(lake: str, tmp_path: Path) -> None:
    add_log(lake, "orders", {0: SOUND + b"<b>no batch</b>\xff" * 5 + batch(200)})
    page, found, _ = report(lake, tmp_path)
    assert found["worst"][0]["dump"][0] == ["0000", b"<b>no batch</b>\xff".hex(" "), "<b>no batch</b>."]
    check_structure(page)
    assert "<b>no batch</b>." in page.text()


def test_hostile_topics_are_text(lake: str, tmp_path: Path) -> None:
    for name in HOSTILE:
        add_log(lake, name, {0: SOUND + flip(batch(200), -1) + batch(203) + data(206, 7)})
    for _ in range(2):
        page, found, markdown = report(lake, tmp_path)
    check_structure(page)
    for name in HOSTILE:
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
        assert " ".join(f"{shown}-0".split()) in page.text()
    assert sorted(row["topic"] for row in found["partitions"]) == sorted(HOSTILE)
    stored = [worst["fields"][0]["stored"] for worst in found["worst"]]
    assert stored == [(200).to_bytes(8, "big").hex(" ")] * len(HOSTILE)
    for form in ((tmp_path / "quality.html").read_text(), markdown):
        assert not [c for c in form if unicodedata.category(c)[0] == "C" and c != "\n"]
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows[:15]} == {8}
    assert "<img" not in markdown
    assert "<script" not in markdown


def test_hostile_records_are_not_in_the_page(lake: str, tmp_path: Path) -> None:
    """Keys, values and header keys of sound and of damaged batches."""
    text = MARKUP.encode()
    record = Record(key=text, value=text, headers=((text, text),))
    batches = [Batch((record,), base_offset=base).encode() for base in (0, 1, 2)]
    add_log(lake, "orders", {0: batches[0] + flip(batches[1], -1) + text + batches[2]})
    page, _, _ = report(lake, tmp_path)
    check_structure(page)
    assert "<script" not in (tmp_path / "quality.html").read_text()


def test_hostile_detail_is_text(lake: str, tmp_path: Path) -> None:
    add_log(lake, "orders", {0: SOUND})
    row = {
        "topic": "orders",
        "partition": 0,
        "segment": f"file:///logs/orders-0/{0:020d}.log",
    }
    damage = {"position": 5, "size_bytes": 9, "reason": MARKUP, "detail": MARKUP, "content": MARKUP.encode()}
    insert(lake, "quarantine", [row | damage])
    page, _, markdown = report(lake, tmp_path)
    check_structure(page)
    assert MARKUP in page.text()
    assert "<script" not in markdown


def test_lake_without_rows(lake: str, tmp_path: Path) -> None:
    page, found, markdown = report(lake, tmp_path, fail_on="warning")
    check_structure(page)
    for text in (page.text(), markdown.replace("\\", "")):
        assert "Nothing to judge: the lake holds no segments." in text
    assert found["verdict"] == "empty"


def test_second_run_shows_a_trend(damaged: str, tmp_path: Path) -> None:
    first, found, _ = report(damaged, tmp_path)
    assert len(found["runs"]) == 1
    assert "This is the first run" in first.text()
    add_log(damaged, "more", {0: SOUND + flip(batch(200), -1) + batch(203)})
    second, found, markdown = report(damaged, tmp_path)
    before, after = found["runs"]
    assert (after["crc_partitions"], after["damaged"] - before["damaged"]) == (2, len(batch(200)))
    assert len(second.of("svg")) == len(first.of("svg")) + 1
    assert "failed errors and warnings of the last 2 runs" in str([a["aria-label"] for a in second.of("svg")])
    assert "## Runs" in markdown


def test_an_earlier_state_is_reported_as_it_was(lake: str, tmp_path: Path) -> None:
    settings = Settings(source=(str(tmp_path / "logs"),), lake=lake)
    path = put(tmp_path / "logs" / "a-0", 0, batch(0))
    first = as_command.decode(None, settings).run_id
    path.write_bytes(path.read_bytes() + b"garbage" * 10 + batch(3))
    as_command.decode(None, settings)
    page, then, markdown = report(lake, tmp_path / "then", at=first)
    assert (then["at"], then["worst"], then["partitions"][0]["records"]) == (first, [], 3)
    assert not Path(lake, "quality_metrics").exists()
    assert first in page.text()
    assert first in markdown
    assert "first run" not in page.text()
    page, now, _ = report(lake, tmp_path / "now")
    assert (now["at"], len(now["worst"]), now["partitions"][0]["records"]) == (None, 1, 6)
    assert now["worst"][0]["page"] in [link.get("href") for link in page.of("a")]
    assert b"garbage".hex(" ") in Page((tmp_path / "now" / now["worst"][0]["page"]).read_text()).text()


def test_figures_of_the_json(damaged: str, tmp_path: Path) -> None:
    _, found, _ = report(damaged, tmp_path)
    size = len(SOUND + batch(200) + batch(203) + batch(206)) + 90
    (partition,) = found["partitions"]
    assert partition == {
        "topic": "orders",
        "partition": 0,
        "segments": 1,
        "records": 206,
        "bytes": size,
        "damaged": len(batch(200)) + 40,
        "tail": 50,
        "ranges": 2,
    }
    (failure,) = found["failures"]
    assert (failure["position"], failure["size"]) == (len(SOUND), len(batch(200)))
    assert [(row["magic"], row["codec"], row["batches"]) for row in found["formats"]] == [(2, "none", 4)]
    assert found["unread"] == [
        {"what": "damaged ranges", "reason": reason, "count": 1} for reason in ("crc_mismatch", "garbage")
    ]
    failed = {row["check"]["name"] for row in found["results"] if row["failed"]}
    assert failed == {"crc_failure_rate", "damaged_bytes", "torn_tails"}


def test_records_of_internal_topics_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    records = tuple(Record(key=b"\0\x63", value=b"\0\0") for _ in range(3))
    put(tmp_path / "logs" / "__consumer_offsets-0", 0, Batch(records).encode())
    lake = str(tmp_path / "lake")
    as_command.decode(None, Settings(source=(str(tmp_path / "logs"),), lake=lake))
    page, found, text = report(lake, tmp_path)
    what, reason = "records of __consumer_offsets", "key: record type 99 is not known"
    assert found["unread"] == [{"what": what, "reason": reason, "count": 3}]
    assert reason in text
    assert reason in page.text()


# --- The command ---


def main(*argv: str | Path) -> int:
    return quality_report.main([str(part) for part in argv])


def test_exit_codes(damaged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--lake", damaged, "--output", tmp_path / "out")
    assert [main(*arguments, "--fail-on", how) for how in ("never", "none")] == [0, 0]
    capsys.readouterr()
    assert main(*arguments) == 3
    said = capsys.readouterr()
    assert said.err == "2 checks failed: crc_failure_rate, damaged_bytes\n"
    assert "error    damaged_bytes" in said.out


def test_offsets_that_are_lost_without_a_failed_check_exit_with_3_too(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_log(lake, "orders", {0: SOUND, 900: batch(900)})
    thresholds = tmp_path / "none.yml"
    thresholds.write_text("".join(f"{check.name}: {{severity: none}}\n" for check in CHECKS[1:]))
    assert main("--lake", lake, "--output", tmp_path, "--thresholds", thresholds) == 3
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("verdict: Not sound: ")
    assert said.err == "not sound: offsets are lost\n"


def test_a_warning_fails_only_where_it_is_requested(lake: str, tmp_path: Path) -> None:
    add_log(lake, "orders", {0: SOUND + batch(200)[:40]})
    arguments = ("--lake", lake, "--output", tmp_path)
    assert [main(*arguments, "--fail-on", how) for how in ("none", "error", "warning")] == [0, 0, 3]


def test_a_sound_lake_passes(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_log(lake, "orders", {0: SOUND})
    assert main("--lake", lake, "--output", tmp_path, "--fail-on", "warning") == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .startswith(f"verdict: Sound: {len(CHECKS)} checks passed; no byte of 1 partition with ")
    )


def test_last_line_is_json(damaged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--lake", damaged, "--output", tmp_path, "--json", "--fail-on", "error") == 3
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sorted(said["errors"]) == ["crc_failure_rate", "damaged_bytes"]
    assert Path(said["page"]).exists()
    assert said["rows"] == DeltaTable(f"{damaged}/quality_metrics").count()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--lake", "nowhere"], "there is no lake at nowhere"),
        ([], "--lake is missing"),
        (["--fail-on", "warnings"], "choose from"),
        (["--treshold", "x"], "did you mean --thresholds?"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(*arguments, "--output", tmp_path) == 2
    said = capsys.readouterr().err
    assert line in said
    assert len(said.splitlines()) == 1


def test_folder_that_cannot_be_made(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main("--lake", lake, "--output", tmp_path / "file" / "out") == 2
    assert "can't be written: Not a directory" in capsys.readouterr().err


# --- Thresholds ---


def test_thresholds_of_a_file(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "quality.yml"
    path.write_text(
        "damaged_bytes: {threshold: 1000000}\n"
        "crc_failure_rate: {severity: warning}\n"
        "torn_tails: {severity: none}\n"
    )
    options = {"thresholds": str(path), "fail_on": "never"}
    _, found, _ = report(damaged, tmp_path, **options)
    results = {row["check"]["name"]: (row["check"]["severity"], row["failed"]) for row in found["results"]}
    assert (results["damaged_bytes"], results["crc_failure_rate"]) == (("error", 0), ("warning", 1))
    assert "torn_tails" not in results


# --- The table ---


def test_each_run_is_one_commit(damaged: str, tmp_path: Path) -> None:
    for _ in range(2):
        report(damaged, tmp_path)
    table = DeltaTable(f"{damaged}/quality_metrics")
    assert table.version() == 2  # the first is the table itself
    rows = table.to_pyarrow_table().to_pylist()
    assert len({(row["run_id"], row["created_at"]) for row in rows}) == 2
    assert {row["check"] for row in rows} == {check.name for check in CHECKS}
    fields = [(field.name, field.metadata["comment"]) for field in table.schema().fields]
    assert fields == [(column.name, column.comment) for column in QUALITY_METRICS.columns]


def test_what_is_written_before_a_failure_stays(damaged: str, tmp_path: Path) -> None:
    with pytest.raises(ChecksFailed):
        quality_report.run(Settings(lake=damaged), output=str(tmp_path), fail_on="error")
    assert DeltaTable(f"{damaged}/quality_metrics").count() > 0
    assert (tmp_path / "quality.html").exists()


def test_the_table_is_made_by_the_report_alone(lake: str, tmp_path: Path) -> None:
    assert not Path(lake, "quality_metrics").exists()
    report(lake, tmp_path)
    create_tables(lake)
    assert DeltaTable(f"{lake}/segments").version() == 0


# --- The page in a browser: the browser is not part of the tests, so what happens without one is ---


def test_check_of_the_page_without_a_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_report.main(["quality.html"]) == 2
    assert "apt install chromium" in capsys.readouterr().err


# --- Words ---


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "bytes", "0 B"),
        (9999, "bytes", "9,999 B"),
        (10_000, "bytes", "10.0 kB"),
        (4_200_000_000, "bytes", "4.2 GB"),
        (900_000, "ms", "15 min"),
        (5_400_000, "ms", "1.5 h"),
        (3, "ms", "3 ms"),
        (0.25, "share", "25%"),
        (0.00001, "share", "under 0.01%"),
        (0, "share", "0%"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (1200, "offset", "1,200 offsets"),
        (3.5, "times", "3.5 times"),
        (None, "times", "nothing to measure"),
    ],
)
def test_quantities_in_words(value: float | None, unit: str, text: str) -> None:
    assert words.quantity(value, unit) == text

"""What segments and sources hold never drives a terminal: control characters are shown, not sent."""

from __future__ import annotations

import io
import json
import logging
import shlex
import sys
import tracemalloc
from pathlib import Path

import pytest
from rich.console import Console

from kafka_log_lake.pipelines.cli import program as console
from kafka_log_lake.pipelines.cli.errors import DamageFound, UserError
from kafka_log_lake.pipelines.cli.options import exit_code_of, set_up_logging
from kafka_log_lake.pipelines.cli.terminal import invocation
from kafka_log_lake.pipelines.cli.text_tables import Section, print_table
from kafka_log_lake.pipelines.decode.summary import Summary, TopicTotals
from kafka_log_lake.pipelines.sql.rows import UNCUT, ResultColumn, csv_lines, plain_number, table_lines
from tests.support.segment_maker import Batch, Record

# ESC and a colour, BEL, CR, a C1 character (CSI in one byte), right-to-left override, line separator
HOSTILE = "a\x1b[31mb\x07c\rd\x9b2Je\u202ef\u2028g\nh"
SHOWN = r"a\x1b[31mb\x07c\rd\x9b2Je\u202ef\u2028g\nh"


def test_a_table_shows_them_in_cells_and_in_names() -> None:
    row = json.dumps({HOSTILE: HOSTILE, "bytes": "G1s="})
    head, _, cells, _ = table_lines([ResultColumn(HOSTILE), ResultColumn("bytes", is_binary=True)], [row])
    assert head == f"{SHOWN}  bytes"
    assert cells == f"{SHOWN}  0x1b5b"


def test_commands_to_paste_name_the_interpreter_that_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "my env" / "bin"
    folder.mkdir(parents=True)
    python = folder / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "argv", ["/work/scan.py"])
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.chdir(tmp_path / "my env")
    assert invocation() == "bin/python -m kafka_log_lake"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert shlex.split(invocation()) == [str(python), "-m", "kafka_log_lake"]
    monkeypatch.setenv("PATH", str(folder))
    assert invocation() == "python -m kafka_log_lake"
    command = folder / "kafka-log-lake"
    command.touch(0o755)
    assert invocation() == "kafka-log-lake", "python -m, next to the installed command"
    monkeypatch.setattr(sys, "argv", [str(command), "scan"])
    assert invocation() == "kafka-log-lake"
    monkeypatch.setenv("PATH", "/nonexistent")
    assert shlex.split(invocation()) == [str(command)]
    monkeypatch.chdir(tmp_path / "my env")
    assert invocation() == "bin/kafka-log-lake"


def test_csv_keeps_line_breaks_and_shows_the_others() -> None:
    row = json.dumps({"text": HOSTILE, "number": "-Infinity", "bytes": "+w==", "sum": -1, "formula": "=1"})
    columns = [
        ResultColumn("text"),
        ResultColumn("number", is_number=True),
        ResultColumn("bytes", is_binary=True),
    ]
    columns += [ResultColumn("sum"), ResultColumn("formula")]
    head, line = csv_lines(columns, [row])
    assert head == "text,number,bytes,sum,formula"
    shown = SHOWN.replace(r"\r", "\r").replace(r"\n", "\n")
    assert line == f'"{shown}",-Infinity,+w==,-1,\'=1'


def test_a_summary_shows_them_in_topics_and_in_the_name_of_the_lake() -> None:
    summary = Summary("run", f"/lakes/{HOSTILE}")
    summary.add(HOSTILE, 0, TopicTotals())
    text = summary.to_text()
    assert f"\n  {SHOWN}  " in text
    assert f"tables are in /lakes/{SHOWN}\n" in text
    assert set(text) & set("\x1b\x07\r\x9b\u202e\u2028") == set()


def test_warnings_and_errors_are_one_line_that_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging()
    logging.getLogger("kafka_log_lake.pipelines.x").warning("%s was left", HOSTILE)

    def fails(error: Exception) -> None:
        raise error

    assert exit_code_of(lambda: fails(UserError(HOSTILE))) == 2
    assert exit_code_of(lambda: fails(DamageFound(HOSTILE))) == 3
    assert exit_code_of(lambda: fails(ValueError(f"{HOSTILE}"))) == 1
    said = capsys.readouterr().err
    assert said.split("\n")[:3] == [f"warning: {SHOWN} was left", f"error: {SHOWN}", SHOWN]
    assert set(said) & set("\x1b\x07\r\x9b\u202e\u2028") == set()


ROW = json.dumps({"name": "日本 e\u0301 🎈", "offset": 7, "value": "x" * 100}, ensure_ascii=False)
OTHER = json.dumps({"name": "plain", "offset": 12345, "value": None})
OF_ROWS = [ResultColumn("name"), ResultColumn("offset", is_number=True), ResultColumn("value")]


def test_numbers_stand_to_the_right_and_wide_characters_take_two_columns() -> None:
    lines = list(
        table_lines(OF_ROWS[:2], ['{"name":"日本 e\u0301 🎈","offset":7}', '{"name":"a","offset":12345}'])
    )
    assert lines == [
        "name       offset",
        "---------  ------",
        "日本 e\u0301 🎈       7",
        "a           12345",
        "(2 rows)",
    ]


@pytest.mark.parametrize(("room", "widest"), [(None, 80), (UNCUT, 100), (60, 41), (31, 12), (500, 100)])
def test_lines_fit_the_terminal_and_are_cut_in_a_pipe(room: int | None, widest: int) -> None:
    head, rule, first, second, _ = table_lines(OF_ROWS, [ROW, OTHER], room)
    assert [len(one) for one in rule.split()] == [9, 6, widest]
    assert first.endswith("x" * 100 if widest == 100 else "x" * (widest - 1) + "…")
    assert second.split() == ["plain", "12345", "NULL"]  # numbers are never cut
    assert room in (None, UNCUT, 30) or len(rule) <= room
    assert head.split() == ["name", "offset", "value"]


@pytest.mark.parametrize("room", [None, 60])
def test_very_long_values_are_not_held(room: int | None) -> None:
    tracemalloc.start()
    lines = table_lines(OF_ROWS, (ROW.replace("x", "x" * 2000) for _ in range(500)), room)
    _, _, first, *_ = lines
    assert tracemalloc.get_traced_memory()[1] < 4 << 20  # of 100 MB
    tracemalloc.stop()
    assert first.endswith("x…")


def test_a_row_of_more_columns_than_the_terminal_has_room_for_is_a_line_a_value() -> None:
    assert list(table_lines(OF_ROWS, [ROW, OTHER], 30)) == [
        "row 1",
        "  name    日本 e\u0301 🎈",
        "  offset  7",
        "  value   xxxxxxxxxxxxxxxxxxx…",
        "row 2",
        "  name    plain",
        "  offset  12345",
        "  value   NULL",
        "(2 rows)",
    ]
    assert list(table_lines(OF_ROWS, [], 15)) == ["(0 rows)"]


@pytest.mark.parametrize("room", [80, 200])
def test_a_table_cuts_no_command_and_writes_numbers_as_a_person_does(room: int) -> None:
    reset = (
        "kafka-consumer-groups.sh --bootstrap-server HOST:9092 --group GROUP --topic a:0 --to-offset "
        + "9" * 60
    )
    columns = [ResultColumn("command"), ResultColumn("text"), ResultColumn("share", is_number=True)]
    rows = [f'{{"command": "{reset}", "text": "{"x" * 200}", "share": 5.230173599999999E-4}}']
    *cells, _ = table_lines(columns, rows, room)
    assert reset in "".join(cells)
    assert "…" in "".join(cells)
    assert cells[-1].endswith("  0.00052301736")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *(("1.0E10", "10000000000.0"), ("0.1", "0.1"), ("1.0", "1.0"), ("17", "17"), ("-2.5e-3", "-0.0025")),
        *(("1e300", "1e300"), ("NaN", "NaN"), ("0.16666666666666666",) * 2, ("9223372036854775807",) * 2),
    ],
)
def test_numbers_are_written_out(text: str, shown: str) -> None:
    assert plain_number(text) == shown


@pytest.mark.parametrize("topic", ["compacted-zstd", "a-topic-with-a-very-long-name"])
@pytest.mark.parametrize("room", [60, 80, 81, 85, 100, 200])
def test_a_box_breaks_no_number_and_no_name_but_a_long_one(topic: str, room: int) -> None:
    head = ("topic", "partitions", "segments", "records", "bytes", "damaged ranges", "formats")
    numbers = ("1,000", "2,345", "1,234,567", "11.1 kB", "1,234,567")
    out = io.StringIO()
    console = Console(file=out, width=room, force_terminal=True, color_system=None)
    print_table(console, Section("topics", head, [(topic, *numbers, "v2 none, v2 zstd")], (1, 2, 3, 4, 5)))
    shown = out.getvalue()
    assert all(one in shown for one in (*numbers, "records", "damaged", "none", "zstd"))
    assert (topic in shown) or len(topic) > 20
    assert "\u2503" not in shown or max(map(len, shown.splitlines())) <= room


def test_no_color_leaves_no_escape_sequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = tmp_path / "t-0" / f"{0:020d}.log"
    segment.parent.mkdir()
    segment.write_bytes(Batch([Record(b"k", b"v")]).encode()[:-1] + b"x")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for argv in (
        ["inspect", str(segment)],
        ["scan", str(tmp_path)],
        ["find", str(tmp_path), "--offset", "0"],
    ):
        printed = {}
        for setting in ("", "1"):
            monkeypatch.setenv("NO_COLOR", setting)
            console.main(argv)
            printed[setting] = capsys.readouterr().out
        assert "\x1b" not in printed["1"], argv
        assert argv[0] == "find" or "\x1b" in printed[""]

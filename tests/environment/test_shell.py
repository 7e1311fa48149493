"""The SQL shell: its banner, statements one after another, and that it leaves nothing."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.sql.statements import split_statements
from kafka_log_lake.pipelines.sql_shell import command as sql_shell

if TYPE_CHECKING:
    pass


ROOT = Path(__file__).resolve().parents[2]


def test_the_shell_s_banner_names_what_is_there_and_queries_that_run(lake: str) -> None:
    shell = sql_shell.Shell(Settings(lake=lake), None)
    text = sql_shell.banner(shell.tables, 60)
    assert max(map(len, text.split("try")[0].splitlines())) <= 60
    assert {"records", "segments", "messages", "topics"} <= set(re.findall(r"\w+", text))
    assert all(query in text for query in sql_shell.QUERIES)
    assert shell.words >= {"records", "topics", "offset", "timestamp"}
    for statement in sql_shell.QUERIES:
        assert list(shell.lines(statement))[-1] == "(0 rows)"


def in_process(folder: Path, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
    )


def test_command_prints_the_answer_alone_and_leaves_nothing(lake: str, tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    done = in_process(
        folder, "pipelines.query", "--lake", lake, "--format", "json", "SELECT count(*) AS n FROM records"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"n":0}\n', "")
    assert list(folder.iterdir()) == []


def test_command_refuses_a_folder_without_a_lake(tmp_path: Path) -> None:
    done = in_process(tmp_path, "pipelines.query", "--lake", "nope", "SELECT 1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: there is no lake at nope: name a folder that decode made\n"


def test_shell_knows_tables_and_views_and_leaves_nothing(lake: str, tmp_path: Path) -> None:
    folder = tmp_path / "cwd"
    folder.mkdir()
    statements = "SELECT count(*) + 41 FROM records;\nSELECT count(*) + 17 FROM latest_by_key;\n"
    done = in_process(folder, "pipelines.sql_shell", "--lake", lake, stdin=statements)
    assert done.returncode == 0, done.stderr
    assert {"41", "17"} <= set(done.stdout.split())
    assert list(folder.iterdir()) == []
    refused = in_process(folder, "pipelines.sql_shell", "--lake", "nope")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


STATEMENTS = (
    "-- a comment; with a semicolon\nSELECT ';' AS a,\n  /* ; */ crc32c({0}) AS crc;\n"
    "SELECT * FROM recods; {1};\nEXPLAIN SELECT 1;SELECT {2} AS made;\n\nSELECT 5 AS last"
)


def run_shell(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lake: str,
    statements: str,
) -> tuple[str, str, str]:
    """What the shell prints, and its two lines of errors."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(statements))
    assert sql_shell.main(["--lake", lake]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("a         crc\n-  ----------\n;  3808858755\n(1 row)\n")
    assert said.out.endswith("last\n----\n   5\n(1 row)\n")
    first, last = said.err.splitlines()
    assert last == "error: 1 statement failed"
    return said.out, first, last


def test_shell_goes_on_after_a_wrong_statement(
    lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statements = STATEMENTS.format(
        "encode('123456789')", "CREATE TEMP TABLE t AS SELECT 17 AS n", "(SELECT n FROM t)"
    )
    out, error, _ = run_shell(monkeypatch, capsys, lake, statements)
    assert "Projection" in out
    assert "made\n----\n  17\n" in out
    assert error.endswith('Table with name recods does not exist! Did you mean "records"?')


@pytest.mark.parametrize("leave", ["quit", "exit;", "EXIT"])
def test_a_line_of_help_or_quit_needs_no_semicolon(
    leave: str, lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"help\n{leave}\nSELECT 1 AS never;\n"))
    assert sql_shell.main(["--lake", lake]) == 0
    shown = capsys.readouterr().out
    assert "committed_records" in shown
    assert "DESCRIBE topics; names columns" in shown
    assert "never" not in shown


@pytest.mark.parametrize(
    "statement",
    ["COPY records TO '{lake}/x.csv'", "ATTACH '/tmp/x.db'", "SET threads = 1", "PREPARE p AS SELECT 1"],
)
def test_the_shell_reaches_no_file(lake: str, statement: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell = sql_shell.Shell(Settings(lake=lake), None)
    assert not sql_shell.run_statement(shell, statement.format(lake=lake))
    assert capsys.readouterr().err.startswith("error: ")
    assert not Path(lake, "x.csv").exists()


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
        ("SELECT ';';", ["SELECT ';'"], ""),
        (r"SELECT 'a\'; SELECT 2;", [r"SELECT 'a\'", "SELECT 2"], ""),
        ('SELECT "a;" FROM `b;c`;', ['SELECT "a;" FROM `b;c`'], ""),
        ("SELECT 1 -- one; two\n;", ["SELECT 1 -- one; two"], ""),
        ("SELECT 4 / 2 - 1;", ["SELECT 4 / 2 - 1"], ""),
        ("/* a; b */ SELECT 1;", ["/* a; b */ SELECT 1"], ""),
        ("SELECT 'open; ", [], "SELECT 'open; "),
        ("/* open; ", [], "/* open; "),
        (";;", ["", ""], ""),
    ],
)
def test_statements_end_at_a_semicolon_outside_of_quotes(text: str, statements: list[str], rest: str) -> None:
    assert split_statements(text) == (statements, rest)

"""Streams that a command does not expect: closed, full, of another encoding, of a narrow terminal."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from kafka_log_lake.pipelines.cli.text_tables import Section, print_table

ROOT = Path(__file__).parents[3]
LOGS = "tests/data/corpus/v2-headers"
SEGMENT = f"{LOGS}/headers.v1-0/00000000000000000000.log"
DAMAGED = "tests/data/corpus/hostile/bitflip-crc-v2-zstd-0"
COMMANDS = [f"find {LOGS}", f"scan {LOGS}", f"dump {SEGMENT}", f"inspect {SEGMENT}"]


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a line of bash does. ``run`` in it is the command."""
    script = f'set -o pipefail; run() {{ "$PYTHON" -m kafka_log_lake "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_behind_standard_output_is_one_line_that_names_no_other_file(command: str) -> None:
    done = shell(f"run {command} > /dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "error: cannot write to standard output: No space left on device\n",
    )


@pytest.mark.parametrize("kind", ["json", "arrow", "raw"])
def test_a_full_disk_behind_a_file_names_it_and_the_next_step(kind: str) -> None:
    done = shell(f"run find {LOGS} --format {kind} --output /dev/full")
    assert (done.returncode, done.stderr) == (
        2,
        "error: --output /dev/full can't be written: No space left on device; "
        "free some space, then start the same command again\n",
    )


@pytest.mark.parametrize("command", [f"find {LOGS} --format json --output", f"inspect {SEGMENT} --html"])
def test_a_file_that_can_not_be_written_whole_stays_as_it_was(command: str, tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.write_text("of an earlier run")
    done = shell(f"ulimit -f 1; run {command} {output}", PYTHONDONTWRITEBYTECODE="1")
    assert (done.returncode, done.stderr.count("can't be written: File too large")) == (2, 1)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("output", "of an earlier run")]


def test_closed_streams_are_no_failure_and_mix_nothing() -> None:
    assert shell(f"run scan {LOGS} <&- >&- 2>&-").returncode == 0
    done = shell(f"run find {LOGS} >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert shell("run scan nowhere 2>&-").stdout == ""


def test_messages_that_find_no_room_stop_no_command() -> None:
    done = shell(f"run find {LOGS} --count 2>/dev/full; run find {DAMAGED} --count 2>/dev/full")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2


def test_a_program_that_has_read_its_input_may_call_a_command() -> None:
    call = f"from kafka_log_lake.pipelines.find import command; sys.exit(command.main(['{LOGS}', '--count']))"
    code = f"import sys; sys.stdin.readline(); {call}"
    done = shell(f'printf "1\\n2\\n" | "$PYTHON" -c "{code}"')
    assert (done.returncode, done.stdout) == (0, "56\n")


def test_a_reader_that_leaves_is_no_failure() -> None:
    assert shell(f"run inspect {SEGMENT} | head -1").returncode == 0


def test_text_is_utf_8_whatever_the_locale() -> None:
    plain, other = (shell(f"run inspect {SEGMENT}", **env) for env in ({}, {"PYTHONIOENCODING": "ascii"}))
    assert (other.returncode, other.stdout) == (0, plain.stdout)
    assert "…" in other.stdout


def test_a_path_that_is_no_utf_8_is_printed_and_dumped(tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"a\xff-0")
    os.mkdir(folder)
    name = os.path.join(folder, b"00000000000000000000.log")
    shutil.copy(os.fsencode(ROOT / SEGMENT), name)
    run = (sys.executable, "-m", "kafka_log_lake")
    dumped, as_json, scanned = (
        subprocess.run([*run, *more], cwd=ROOT, capture_output=True, timeout=120)
        for more in (
            ("dump", name),
            ("dump", "--json", name),
            ("scan", name, "--topic", "a", "--partition", "0"),
        )
    )
    assert dumped.stdout.splitlines()[0] == b"Dumping " + name
    assert b"a\\udcff-0" in as_json.stdout.splitlines()[0]
    assert (scanned.returncode, scanned.stderr.count(b"\n")) == (2, 1)
    assert b"path that is not UTF-8" in scanned.stderr


@pytest.mark.parametrize(("width", "is_boxed"), [(120, True), (60, False)])
def test_no_word_of_a_table_is_broken(width: int, is_boxed: bool) -> None:
    columns = ("topic", "partitions", "segments", "records", "first", "last")
    row = ("orders", "12", "1,034", "23,553,220", "2023-11-14 22:13:20", "2023-11-14 22:13:21")
    out = io.StringIO()
    print_table(Console(file=out, width=width, force_terminal=False), Section("", columns, [row], (1, 2, 3)))
    words = out.getvalue().replace("│", " ").split()
    assert {*columns, "23,553,220", "22:13:21"} <= {word.strip("┃") for word in words}
    assert ("│" in out.getvalue()) == is_boxed

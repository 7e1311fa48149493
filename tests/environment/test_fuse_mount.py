"""A mount without hard links and renames, as ``/Volumes`` of Databricks: the kernel refuses these calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fuse_mount
from tests.support.logs import batches, put, rows

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, on_mount: bool = True) -> subprocess.CompletedProcess[str]:
    """A command whose files are all on such a mount, or none."""
    python = [sys.executable, *([fuse_mount.__file__] if on_mount else [])]
    command = [*python, "-m", "kafka_log_lake", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """A log directory that nobody writes to."""
    path = put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    path.chmod(0o444)
    path.parent.chmod(0o555)
    return str(tmp_path / "logs")


def test_no_file_gets_another_name_there(tmp_path: Path) -> None:
    for call in ("os.link", "os.rename", "os.replace"):
        code = f"import os; open('a', 'w').close(); {call}('a', 'b')"
        command = [sys.executable, fuse_mount.__file__, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert "OSError: [Errno 95] Operation not supported: 'a' -> 'b'" in done.stderr, call


def test_a_lake_there_is_refused_in_one_line_and_stays_as_it_was(logs: str, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    decode = ("decode", "--source", logs, "--lake", lake)
    for is_there in (False, True):
        done = run(*decode)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert f"the lake {lake} can't be written" in done.stderr
        assert "--sink catalog with --lake CATALOG.SCHEMA" in done.stderr
        assert Path(lake).exists() == is_there
        assert run(*decode, on_mount=False).returncode == 0
    assert sorted(row["offset"] for row in rows(lake, "records")) == list(range(9))


def test_answers_are_written_there_whole(logs: str, tmp_path: Path) -> None:
    output = tmp_path / "answers" / "found.jsonl"
    output.parent.mkdir()
    for _ in range(2):  # the second one takes the place of the first
        done = run("find", logs, "--output", str(output), "--format", "json")
        assert done.returncode == 0, done.stderr
    assert len(output.read_text().splitlines()) == 9
    assert [path.name for path in output.parent.iterdir()] == ["found.jsonl"]

"""What the storage does not give: a sector, a file, a folder. It is reported, and stops nothing else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.logs import batch, batches, put, rows
from tests.support.processes import as_anybody
from tests.support.served import Jobs, jobs

DECODE = "kafka_log_lake.pipelines.decode_batches"
PAGE = 4096
TOPIC = "bad-sector"

# Of the files of a topic, in every process of the jobs, one page gives EIO
BAD_SECTOR = f"""
import errno, os
_read = os.preadv

def preadv(file, buffers, offset, *more):
    begin, end = {3 * PAGE}, {4 * PAGE}
    of_it = "/{TOPIC}-0/" in os.readlink(f"/proc/self/fd/{{file}}")
    if of_it and offset < end and offset + sum(len(buffer) for buffer in buffers) > begin:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return _read(file, buffers, offset, *more)

os.preadv = preadv
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Jobs of a user who is held to the modes of files, on a machine with that sector."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(BAD_SECTOR)
    python = as_anybody() if os.geteuid() == 0 else [sys.executable]
    with jobs(python, PYTHONPATH=str(site)) as started:
        yield started


def test_a_sector_that_cannot_be_read_is_damage_of_its_own_kind(
    served: Jobs, lake: str, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    path = put(logs / f"{TOPIC}-0", 0, *[batch(offset, 1, text="x" * 1000) for offset in range(40)])
    put(logs / "b-0", 0, *batches(0, 3))
    options = ("--fail-on-damage", "--read", "direct")
    done = served.run(DECODE, "--lake", lake, "--source", str(logs), *options)
    assert done.returncode == 3, done.stderr
    verdict = done.stdout.splitlines()[-1]
    assert "; 1 damaged range (" in verdict
    assert verdict.endswith("; lost: the offsets of damaged ranges, in the view lost_offsets")
    assert f"warning: 4,096 bytes of file://{path} could not be read from the storage" in done.stderr
    (damage,) = rows(lake, "quarantine")
    assert damage["reason"] == "unreadable"
    assert "Input/output error (errno 5)" in damage["detail"]
    assert damage["position"] <= 3 * PAGE < 4 * PAGE <= damage["next_position"]
    size = len(batch(0, 1, text="x" * 1000))
    assert damage["size_bytes"] < 2 * size + PAGE
    before = {row["offset"] for row in rows(lake, "records") if row["topic"] == TOPIC}
    lost = set(range(40)) - before
    assert lost == set(range(min(lost), max(lost) + 1))
    assert len(lost) <= 2 + PAGE // size
    assert len([row for row in rows(lake, "records") if row["topic"] == "b"]) == 9


def test_landed_zeros_for_a_sector_are_reported(served: Jobs, lake: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    path = put(logs / f"{TOPIC}-0", 0, *[batch(offset, 1, text="x" * 1000) for offset in range(40)])
    done = served.run("kafka_log_lake.pipelines.ingest_raw", "--lake", lake, "--source", str(logs))
    assert done.returncode == 0, done.stderr
    assert f"warning: not all bytes of file://{path} from 11," in done.stderr
    before, chunk = sorted(rows(lake, "raw_segments"), key=lambda row: row["chunk_position"])
    assert before["crc32c"] is not None
    begin = 3 * PAGE - chunk["chunk_position"]
    assert (chunk["crc32c"], chunk["content"][begin : begin + PAGE]) == (None, bytes(PAGE))
    decoded = served.run(DECODE, "--lake", lake, "--from-raw", "--fail-on-damage")
    assert decoded.returncode == 3, decoded.stderr
    again = served.run(DECODE, "--lake", lake, "--from-raw")
    assert "nothing new to decode" in again.stdout


def test_a_file_and_a_folder_that_are_closed_to_us_stop_no_other(
    served: Jobs, lake: str, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    arguments = (DECODE, "--lake", lake, "--source", str(logs))
    closed = put(logs / "a-0", 0, *batches(0, 3))
    put(logs / "a-0", 9, *batches(9, 3))
    folder = put(logs / "b-0", 0, *batches(0, 3)).parent
    closed.chmod(0)
    folder.chmod(0)
    try:
        first = served.run(*arguments)
        again = served.run(*arguments, "--fail-on-damage")
    finally:
        folder.chmod(0o755)
    for done, code in ((first, 0), (again, 3)):
        assert done.returncode == code, done.stderr
        assert f"warning: file://{closed} can't be read: " in done.stderr
        assert f"warning: {folder} can't be read: " in done.stderr.replace("file://", "")
        assert "1 x file can't be read" in done.stdout
        assert "1 x folder can't be read" in done.stdout
        assert done.stdout.splitlines()[-1].endswith("; not checked: 2 paths that can't be read")
        assert "Traceback" not in done.stderr
    assert sorted(row["offset"] for row in rows(lake, "records")) == list(range(9, 18))
    closed.chmod(0o644)
    assert served.run(*arguments, "--fail-on-damage").returncode == 0
    assert len(rows(lake, "records")) == 27


def test_offsets_of_a_file_that_cannot_be_read_are_not_reported_as_missing(
    served: Jobs, lake: str, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    paths = [put(logs / "a-0", base, *batches(base, 3)) for base in (0, 9, 18, 30)]
    paths[1].chmod(0)
    decoded = served.run(DECODE, "--lake", lake, "--source", str(logs), "--json")
    again = served.run(DECODE, "--lake", lake, "--source", str(logs), "--json")
    scanned = served.run("kafka_log_lake.pipelines.scan.command", str(logs), "--json")
    for done in (decoded, again):
        (missing,) = json.loads(done.stdout)["missing"]
        assert (missing["log"], missing["first"], missing["last"]) == ("a-0", 27, 29)
    ((missing,),) = (log["missing"] for log in json.loads(scanned.stdout)["logs"])
    assert (missing["first"], missing["last"]) == (27, 29)


def test_a_known_file_that_is_closed_now_keeps_its_rows_and_stops_no_other(
    served: Jobs, lake: str, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    arguments = (DECODE, "--lake", lake, "--source", str(logs))
    closed = put(logs / "a-0", 0, *batches(0, 3))
    put(logs / "b-0", 0, *batches(0, 3))
    shut = put(logs / "c-0", 0, *batches(0, 3)).parent
    assert served.run(*arguments).returncode == 0
    put(logs / "b-0", 0, *batches(0, 4))
    closed.chmod(0)
    shut.chmod(0o444)  # its names can be listed, its files can't be reached
    try:
        done = served.run(*arguments, "--fail-on-damage")
    finally:
        shut.chmod(0o755)
    assert done.returncode == 3, done.stderr
    assert f"warning: file://{closed} can't be read: it can't be opened" in done.stderr
    assert f"warning: file://{shut} can't be read: Permission denied" in done.stderr
    assert "2 x file can't be read" in done.stdout
    assert sorted(row["topic"] for row in rows(lake, "records")) == ["a"] * 9 + ["b"] * 12 + ["c"] * 9

"""Pipes, devices, links and huge files under Kafka's names: none is read or waited for, and each is named."""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.udfs.storage.regular_file import RefusedFile, open_regular, read_regular
from tests.support.logs import batch, put

ROOT = Path(__file__).resolve().parents[3]
BASE = f"{0:020d}"
BESIDE = (
    *("partition.metadata", "leader-epoch-checkpoint", f"{BASE}.index", f"{BASE}.timeindex"),
    *(f"{BASE}.txnindex", f"{3:020d}.snapshot"),
)
ABOVE = (
    *("meta.properties", "replication-offset-checkpoint", "recovery-point-offset-checkpoint"),
    *("log-start-offset-checkpoint", "cleaner-offset-checkpoint"),
)
KINDS = ("pipe", "device", "huge")


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """A pipe that is waited for raises here."""

    def too_long(*_: object) -> None:
        raise TimeoutError("a file is waited for, or has no end")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 40 << 30)


def disk(folder: Path, kind: str) -> Path:
    """A log directory of one segment, and around it every file of Kafka's as one of this kind."""
    put(folder / "t-0", 0, batch(0, 3), batch(3, 3))
    for name in BESIDE:
        make(folder / "t-0" / name, kind)
    for name in ABOVE:
        make(folder / name, kind)
    return folder


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main([*map(str, words)])
    said = capfd.readouterr()
    return code, said.out + said.err


@pytest.mark.parametrize("kind", KINDS)
def test_scan_and_find_name_what_they_do_not_read(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = disk(tmp_path / "disk", kind)
    words = {"pipe": "it is a pipe", "device": "it is a link", "huge": "it is larger than"}[kind]
    code, said = run(capfd, "scan", place, "--cores", 1, "--fail-on-damage")
    assert code == 3
    assert "verdict: incomplete" in said
    for name in ("partition.metadata", "replication-offset-checkpoint"):
        assert any(name in line and words in line for line in said.splitlines()), (name, said)
    code, said = run(capfd, "find", place, "--key", "none", "--cores", 1)
    assert code == 5
    assert words in said
    code, said = run(capfd, "find", place / "t-0" / f"{BASE}.log", "--key", "k1", "--cores", 1)
    assert code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_inspect_and_dump_do_not_wait(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = disk(tmp_path / "disk", kind) / "t-0"
    code, said = run(capfd, "inspect", place / f"{BASE}.log", "--offset", 4)
    assert code == 0
    assert kind == "huge" or f"{place}/{BASE}.index: not read: it is a" in said
    for name in BESIDE[1:]:
        code, said = run(capfd, "dump", place / name)
        assert (code, len(said) < 1000) == (2, True), said
    assert run(capfd, "dump", place / f"{BASE}.log", "--json")[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_recover_names_them(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = disk(tmp_path / "disk", kind)
    make(place / "t-0" / f"{6:020d}.log", "pipe")
    code, said = run(capfd, "recover", "--source", f"a={place}", "--lake", tmp_path / "lake", "--cores", 1)
    assert code == 0
    words = {"pipe": "it is a pipe", "device": "it is a device", "huge": "it is larger than"}[kind]
    for name in ("meta.properties", "replication-offset-checkpoint"):
        assert any(name in line and words in line for line in said.splitlines()), (name, said)
    assert f"{6:020d}.log: not read: it is a pipe" in said


@pytest.mark.parametrize("kind", KINDS)
def test_decode_with_indexes_says_why_in_its_tables(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from kafka_log_lake import connect

    place, lake = disk(tmp_path / "disk", kind), tmp_path / "lake"
    code, said = run(capfd, "decode", "--source", place, "--lake", lake, "--with-indexes", "--cores", 1)
    assert code == 0, said
    assert "verdict: incomplete" in said
    found = connect(str(lake)).sql("SELECT error FROM offset_index").fetchall()
    words = {"pipe": "it is a pipe", "device": "it is a link", "huge": "it is larger than 64 MiB"}[kind]
    assert [words in error for (error,) in found] == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_options_name(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = put(tmp_path / "t-0", 0, batch(0, 1)).parent
    named = tmp_path / "named.avsc"
    make(named, kind)
    for words in (
        ("find", place, "--key", f"@{named}"),
        ("decode", "--source", place, "--lake", tmp_path / "lake", "--config", named),
        ("find", place, "--typed", "--format", "json", "--schemas", named, "--key", "a"),
        ("find", place, "--typed", "--format", "json", "--schemas", tmp_path, "--key", "a"),
    ):
        code, said = run(capfd, *words)
        assert (code, said.count("\n")) == (2, 1), said
        assert str(named) in said


def test_a_link_is_followed_with_the_segments_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    real = put(tmp_path / "real" / "t-0", 0, batch(0, 3)).parent
    (real / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    farm = tmp_path / "farm" / "t-0"
    farm.mkdir(parents=True)
    for path in real.iterdir():
        (farm / path.name).symlink_to(path)
    code, said = run(capfd, "scan", farm.parent, "--cores", 1, "--follow-symlinks", "--fail-on-damage")
    assert (code, "not read" in said) == (0, False), said
    (farm / f"{BASE}.log").unlink()
    put(farm, 0, batch(0, 3))
    code, said = run(capfd, "scan", farm.parent, "--cores", 1, "--fail-on-damage")
    assert code == 3
    assert "it is a link (--follow-symlinks)" in said


def test_nothing_but_regular_files_is_opened(tmp_path: Path) -> None:
    for kind in ("pipe", "device"):
        make(tmp_path / kind, kind)
        with pytest.raises(RefusedFile):
            open_regular(tmp_path / kind)
    small = tmp_path / "small"
    small.write_bytes(b"abc")
    (tmp_path / "link").symlink_to(small)
    assert read_regular(tmp_path / "link", 3) == b"abc"
    for path, follow in ((tmp_path / "link", False), (small, True)):
        with pytest.raises(RefusedFile):
            read_regular(path, 3 if follow is False else 2, follow)


# Modules that open by themselves only what this project wrote, or what the system has
_OWN_FILES = {
    *("udfs/storage/regular_file.py", "udfs/storage/pieces.py", "udfs/decoder/compile_kernels.py"),
    *("udfs/package_files.py", "udfs/kernels/machine_code.py", "udfs/values/protobuf/schema.py"),
    *("udfs/values/internal/definitions.py", "udfs/arrow/parquet_sink.py"),
    *("pipelines/cli/streams.py", "pipelines/engine/session.py", "pipelines/engine/pool.py"),
    *("pipelines/lake/intents.py", "pipelines/lake/lease.py", "pipelines/inspect_batch/page.py"),
    *("pipelines/sql/database.py", "pipelines/views/declared.py", "pipelines/rules/__init__.py"),
    *("pipelines/quality_report/metrics.py", "pipelines/quality_report/check.py"),
    "pipelines/quality_report/facts.py",
    *("udfs/storage/landed_source.py", "udfs/storage/protocols.py"),
    *("pipelines/recover/log_writer.py", "pipelines/recover/restore.py", "pipelines/recover/page.py"),
    *("pipelines/recover/mirrors.py", "pipelines/recover/quorum.py", "pipelines/recover/report_folder.py"),
    *("pipelines/restore/state.py", "pipelines/restore/files.py", "pipelines/restore/page.py"),
}
_OPENING = {"open", "read_text", "read_bytes", "fdopen", "copyfile", "fromfile", "memmap"}


def test_files_of_others_are_opened_in_one_place() -> None:
    """``read_regular`` and ``open_regular``; a module that opens files of its own stands in _OWN_FILES."""
    found = set()
    for source in (one for name in ("udfs", "pipelines") for one in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
                if name in _OPENING:
                    found.add(str(source.relative_to(ROOT)))
    assert found == _OWN_FILES

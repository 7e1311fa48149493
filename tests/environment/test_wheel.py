"""The wheel, as ``pip install`` gives it in an empty environment: no checkout is near."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from llvmlite import binding as llvm

from kafka_log_lake.udfs.kernels import machine_code
from tests.support import corpus
from tests.support.java import QUICK_ENVIRONMENT
from tests.support.logs import batch
from tests.support.quality import add_log
from tools import package, release

ROOT = Path(__file__).parents[2]
SOURCE = corpus.ROOT / "v2-codec-zstd"


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command as a new user runs it: nothing of this environment is handed on, but how Java compiles."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARK", "VIRTUAL_ENV"))}
    environment = kept | QUICK_ENVIRONMENT
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the kernels of this machine's level: the others take another minute."""
    level = machine_code.level_of(llvm.get_host_cpu_features())
    return package.make_wheel(tmp_path_factory.mktemp("wheel"), [level] if level else [])


@pytest.fixture(scope="module")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The versions of the lock file, without the hashes, which the wheel has none of."""
    path = tmp_path_factory.mktemp("lock") / "constraints.txt"
    pinned = re.findall(
        r"^([\w.-]+==[^\s;\\]+(?: ; [^\\\n]+)?)", (ROOT / "requirements.lock").read_text(), re.M
    )
    assert len(pinned) > 20
    path.write_text("\n".join(line.strip() for line in pinned) + "\n")
    return path


def install(folder: Path, wheel: Path, extra: str, constraints: Path) -> Path:
    """The bin folder of an environment, a fresh one if there is none yet, with the wheel and an extra."""
    if not folder.exists():
        run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-compile", "-c", constraints, f"{wheel}{extra}", cwd=folder.parent)
    return folder / "bin"


def test_the_sdist_has_the_sources_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    release.check_sdist(wheel, release.make_sdist(tmp_path))


def test_it_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert tops == {"kafka_log_lake", "pyspark_kafka_log"}
    files = [
        Path(folder, name)
        for top in tops
        for folder, _, found in os.walk(ROOT / top, followlinks=True)
        for name in found
    ]
    sources = {
        str(path.relative_to(ROOT))
        for path in files
        if path.suffix in (".py", ".sql", ".json", ".html", ".css") or path.name in ("py.typed", "NOTICE")
    }
    compiled = {name for name in names if name.endswith(".o")}
    assert sources == {name for name in names if name.split("/")[0] in tops} - compiled
    assert compiled
    assert wheel.stat().st_size < 15_000_000
    with zipfile.ZipFile(wheel) as archive:
        listed = archive.read(next(name for name in names if name.endswith("/RECORD"))).decode()
    assert {line.split(",")[0] for line in listed.splitlines()} == set(names)


def test_scan_and_decode_segment_need_no_spark_and_decode_and_query_fetch_what_they_need(
    wheel: Path, constraints: Path, tmp_path: Path
) -> None:
    """One environment: the wheel alone first, then its extra for Spark."""
    bin_folder = install(tmp_path / "env", wheel, "", constraints)
    command = bin_folder / "kafka-log-lake"
    assert "spark" not in packages(bin_folder)
    scanned = run(command, "scan", SOURCE, "--json", cwd=tmp_path)
    assert "compiling" not in scanned.stderr  # the wheel brings the kernels
    records = json.loads(scanned.stdout)["records"]
    assert records > 0
    found = run(command, "find", SOURCE, "--limit", "1", "--format", "json", cwd=tmp_path)
    assert json.loads(found.stdout)["offset"] >= 0
    installed = next((tmp_path / "env").glob("lib/*/site-packages/kafka_log_lake/udfs"))
    assert list(installed.rglob("*.nbi")) == []  # no kernel was compiled
    code = (
        "import glob, sys; from kafka_log_lake import decode_segment\n"
        "print(sum(b.num_rows for p in glob.glob(sys.argv[1] + '/*/*.log') for b in decode_segment(p)))"
    )
    assert int(run(bin_folder / "python", "-c", code, SOURCE, cwd=tmp_path).stdout) == records

    install(tmp_path / "env", wheel, "[spark]", constraints)
    arguments = ("--source", SOURCE, "--lake", tmp_path / "lake", "--json")
    decoded = json.loads(run(command, "decode", *arguments, cwd=tmp_path).stdout.splitlines()[-1])
    assert decoded["records"] == records
    statement = "SELECT count(*) AS n FROM committed_records"
    answer = run(
        command, "query", "--lake", tmp_path / "lake", "--format", "json", statement, cwd=tmp_path
    ).stdout
    assert json.loads(answer.splitlines()[-1]) == {"n": records}


def packages(bin_folder: Path) -> str:
    """The names of what is installed."""
    listed = run(bin_folder / "python", "-m", "pip", "list", "--format=freeze", cwd=bin_folder).stdout
    return listed.lower()


def test_a_quality_report_needs_no_spark(wheel: Path, constraints: Path, lake: str, tmp_path: Path) -> None:
    add_log(lake, "orders", {0: batch(0, 100) + b"\xff" * 40 + batch(100)})
    bin_folder = install(tmp_path / "env", wheel, "[report]", constraints)
    assert "spark" not in packages(bin_folder)
    arguments = ("--lake", lake, "--output", tmp_path / "out", "--json", "--fail-on", "never")
    done = run(bin_folder / "kafka-log-lake", "quality-report", *arguments, cwd=tmp_path)
    assert json.loads(done.stdout)["errors"] == ["damaged_bytes"]
    assert (tmp_path / "out" / "quality.html").stat().st_size > 10_000

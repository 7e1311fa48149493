"""Databricks' rules on this machine: the jobs of the bundle and the notebooks run as they are.

A service of Spark Connect, whose workers are another user's and have no HOME; a client without Java; a source
that nobody may write to; no file gets a hard link or another name (``tests.support.fuse_mount``).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support import corpus, databricks, fuse_mount, typed_corpus
from tests.support.cluster import ROOT, bare_environment
from tests.support.connect import connect_server
from tests.support.logs import batch, batches, put

NOTEBOOKS = ROOT / "notebooks"
COPIED = ("v2-txn-abort/tx-aborted-0", "v2-txn-open/tx-open-0", "hostile/bitflip-payload-v2-none-0")


@dataclass(frozen=True)
class Workspace:
    """url: of the service. volume: a folder that was filled, and which nobody may write to."""

    url: str
    volume: Path

    def run(self, *arguments: str, in_bucket: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs Python as a job does. in_bucket: what it writes lies in a bucket, which has no such rules."""
        environment = {**bare_environment(), "JAVA_HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
        environment |= {"SPARK_REMOTE": self.url, "DATABRICKS_RUNTIME_VERSION": "18.0", "MPLBACKEND": "Agg"}
        command = [sys.executable, *([] if in_bucket else [fuse_mount.__file__]), *arguments]
        # What is written to a bucket belongs to no user
        return subprocess.run(
            command, cwd=ROOT, env=environment, umask=0, capture_output=True, text=True, timeout=1200
        )

    def notebook(self, name: str, in_bucket: bool = False, **widgets: str) -> str:
        """Returns what a notebook printed."""
        (path,) = NOTEBOOKS.glob(f"{name}_*.py")
        values = [f"{key}={value}" for key, value in widgets.items()]
        done = self.run("-m", "tests.support.notebook", str(path), *values, in_bucket=in_bucket)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("databricks")
    volume = folder / "volume"
    put(volume / "logs" / "a-0", 0, *batches(0, 3), batch(9)[:-9] + b"\xff" * 9, batch(12))
    for name in COPIED:
        shutil.copytree(corpus.ROOT / name, volume / "kafka" / Path(name).name)
    typed_corpus.copy(("avro-evolution", "_schemas"), volume / "typed")
    below = [volume, *volume.rglob("*")]
    for path in below:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with connect_server(folder / "server", databricks.write_worker(folder)) as url:
        yield Workspace(url, volume)
    for path in below:
        path.chmod(0o755)


def test_the_job_of_the_bundle(workspace: Workspace) -> None:
    """Its tasks, with their arguments."""
    bundle = yaml.safe_load((ROOT / "databricks" / "databricks.yml").read_text())
    requested = {"${var.source}": str(workspace.volume / "logs"), "${var.lake}": "spark_catalog.kafka"}
    jobs = [target["resources"]["jobs"]["kafka_log"] for target in bundle["targets"].values()]
    assert all(job["max_concurrent_runs"] == 1 for job in jobs)
    done = []
    for task in jobs[0]["tasks"]:
        wheel, script = task.get("python_wheel_task"), task.get("spark_python_task")
        parameters = [requested.get(value, value) for value in (wheel or script)["parameters"]]
        program = ["-m", "kafka_log_lake"] if wheel else [f"databricks/{script['python_file']}"]
        done.append(workspace.run(*program, *parameters))
    ingested, decoded, judged = done
    assert (ingested.returncode, ingested.stderr.count("error")) == (0, 0), ingested.stderr
    summary = json.loads(decoded.stdout.splitlines()[-1])
    assert (summary["records"], summary["damaged"], summary["lake"]) == (12, 1, "spark_catalog.kafka")
    assert (judged.returncode, judged.stderr.splitlines()[-1][:15]) == (1, "there is damage")
    assert re.search(r"\|a +\|0 +\|2 +\|1 +\|", judged.stdout), judged.stdout


def test_notebooks_over_a_schema(workspace: Workspace, tmp_path: Path) -> None:
    lake = "spark_catalog.notebooks"
    source = str(workspace.volume / "kafka")
    first = workspace.notebook("01", source=source, lake=lake, streamed=str(tmp_path / "streamed"))
    assert "decoded 3 segments" in first, first
    explored = workspace.notebook("02", lake=lake, json_topic="bitflip-payload-v2-none")
    assert "3 topics" in explored, explored
    assert "1 batches have a wrong checksum" in workspace.notebook("03", lake=lake)
    assert "transactions were aborted" in workspace.notebook("04", lake=lake)


def test_notebooks_that_need_a_lake_in_a_folder(workspace: Workspace, tmp_path: Path) -> None:
    """A bucket stands for the folder: what is below ``/Volumes`` can't hold one."""
    lake = str(tmp_path / "lake")
    tmp_path.chmod(0o777)
    decode = ("-m", "kafka_log_lake", "decode", "--source", str(workspace.volume / "kafka"), "--lake", lake)
    done = workspace.run(*decode, in_bucket=True)
    assert done.returncode == 0, done.stderr
    assert "V2 takes" in workspace.notebook("05", in_bucket=True, lake=lake)
    source, lake = str(workspace.volume / "typed"), str(tmp_path / "typed")
    assert "avro-evolution" in workspace.notebook("06", in_bucket=True, source=source, lake=lake)


def test_a_lake_in_a_volume_is_refused_in_one_line(workspace: Workspace, tmp_path: Path) -> None:
    source, lake = str(workspace.volume / "logs"), str(tmp_path / "lake")
    done = workspace.run("-m", "kafka_log_lake", "decode", "--source", source, "--lake", lake)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"error: the lake {lake} can't be written: Operation not supported: ")

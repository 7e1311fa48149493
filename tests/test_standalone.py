"""The job on a Spark standalone cluster: master, worker and executor are processes of their own."""

from __future__ import annotations

import json
import shutil
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelines import decode_batches
from pipelines.command.settings import Settings
from tests.soak import scenario, victims
from tests.support.cluster import ROOT, Cluster, standalone
from tests.support.logs import batch, batches, contents, put
from tests.support.processes import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), hosts=("127.0.0.1", "127.0.0.2"), cores=1) as started:
        yield started


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two packages as a zip: nothing else in this test leads a Python to them."""
    path = tmp_path_factory.mktemp("code") / "code.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for package in ("pipelines", "udfs"):
            for source in sorted((ROOT / package).rglob("*")):
                if source.suffix in (".py", ".sql"):
                    packed.write(source, str(source.relative_to(ROOT)))
    return path


def test_a_cluster_runs_the_job_from_packaged_code(
    spark: SparkSession, lake_template: str, cluster: Cluster, code: Path, tmp_path: Path
) -> None:
    logs, lake, here, elsewhere = (tmp_path / name for name in ("logs", "lake", "here", "elsewhere"))
    broken = bytearray(batch(9))
    broken[-1] ^= 1
    put(logs / "a-0", 0, *batches(0, 3), bytes(broken), batch(12, codec=4))
    put(logs / "a-1", 5, *batches(5, 2), batch(11)[:30])
    put(logs / "b-0", 0, batch(0, flags=0x10, producer_id=3, producer_epoch=0, base_sequence=0))
    (elsewhere / "job").mkdir(parents=True)
    here.mkdir()
    job = Path(shutil.copy(ROOT / "pipelines" / "decode_batches.py", elsewhere / "job"))

    arguments = ["--source", str(logs), "--lake", str(lake), "--json"]
    one_executor = {"spark.cores.max": "1"}  # a machine that is new to the kernels compiles them once
    submitted = cluster.submit(job, arguments, here, one_executor, ["--py-files", str(code)])
    said = submitted.communicate(timeout=300)[0].decode()
    assert submitted.returncode == 0, said
    told = json.loads(said.splitlines()[-1])
    assert (told["segments"], told["records"], told["damaged"]) == (3, 21, 1)
    assert list(here.iterdir()) == []

    embedded = tmp_path / "embedded"
    shutil.copytree(lake_template, embedded)
    decode_batches.run(spark, Settings(lake=str(embedded), source=(str(logs),)))
    assert contents(str(lake)) == contents(str(embedded))


# A task that takes longer than the first one that is done gets a second attempt, on another host
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.01",
    "spark.speculation.multiplier": "1.0",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


def test_a_task_that_ran_twice_gives_its_rows_once(
    spark: SparkSession, lake_template: str, cluster: Cluster, tmp_path: Path
) -> None:
    logs, lake, events = (tmp_path / name for name in ("logs", "lake", "events"))
    events.mkdir()
    for partition in range(4):
        put(logs / f"bulk-{partition}", 0, *scenario.bulk(100))
    shutil.copytree(lake_template, lake)
    conf = {**SPECULATION, "spark.eventLog.dir": str(events)}
    job = victims.start(lake, logs, tmp_path / "job.log", cluster=cluster, conf=conf)
    straggler = job.stop_a_writer()
    try:
        assert job.wait() == 0, job.said()
    finally:
        send([straggler], signal.SIGKILL)
    assert any('"Speculative":true' in log.read_text() for log in events.iterdir())
    assert scenario.orphans(lake) > 0

    embedded = tmp_path / "embedded"
    shutil.copytree(lake_template, embedded)
    decode_batches.run(spark, Settings(lake=str(embedded), source=(str(logs),)))
    assert scenario.state(lake).differences(scenario.state(embedded)) == []
    assert scenario.left_behind(lake) == []

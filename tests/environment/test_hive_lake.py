"""A lake in a metastore of Hive (Derby): of jobs, queried by a process that has Spark and Delta alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.engine.session import ANYWHERE, ONLY_PLANS
from tests.support.cluster import ROOT
from tests.support.java import QUICK_JAVA
from tests.support.logs import batch, batches, data, marker, put

pytestmark = pytest.mark.spark

QUERIES = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print(json.dumps([[tuple(row) for row in spark.sql(query).collect()] for query in sys.argv[1:]]))
"""


class Metastore:
    """A folder with Derby's files and a warehouse."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "queries.py").write_text(QUERIES)

    def submit(self, *arguments: str | Path) -> str:
        """What spark-submit prints of a script."""
        kept = {
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": (self.folder / "warehouse").as_uri(),
            "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{self.folder}/derby;create=true",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        conf = [f"--conf={name}={value}" for name, value in {**ANYWHERE, **ONLY_PLANS, **kept}.items()]
        done = subprocess.run(
            [Path(sys.executable).with_name("spark-submit"), *conf, *arguments],
            cwd=self.folder,
            env={**os.environ, "SPARK_SUBMIT_OPTS": QUICK_JAVA, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def decode(self, logs: Path, schema: str) -> dict[str, int]:
        """The summary of a run."""
        job = ROOT / "pipelines" / "decode_batches.py"
        options = ("--source", logs, "--lake", schema, "--sink", "catalog", "--json")
        summary: dict[str, int] = json.loads(self.submit(job, *options).splitlines()[-1])
        return summary

    def ask(self, *queries: str) -> list[list[list[object]]]:
        """The rows of each query, in a process without this project."""
        found: list[list[list[object]]] = json.loads(self.submit("queries.py", *queries))
        return found


def test_a_lake_is_made_continued_and_queried_by_other_processes(tmp_path: Path) -> None:
    logs, hive = tmp_path / "it's % logs", Metastore(tmp_path / "hive")
    grown = put(logs / "b-0", 0, data(0, 7), marker(1, 7), data(2, 7))
    put(logs / "a-0", 0, *batches(0, 2), batch(6)[:-9] + b"\xff" * 9)
    first = hive.decode(logs, "kafka")
    with grown.open("ab") as more:
        more.write(marker(3, 7, commit=False) + batch(4, 1))
    second = hive.decode(logs, "kafka")
    assert (first["segments"], second["segments"]) == (2, 1)
    committed, damage, shown, described = hive.ask(
        "SELECT topic, count(*) FROM kafka.committed_records GROUP BY ALL ORDER BY ALL",
        "SELECT topic, partition, crc_failures FROM kafka.crc_report WHERE crc_failures > 0",
        "SELECT outcome, first_offset FROM kafka.transactions ORDER BY first_offset",
        "DESCRIBE kafka.records offset",
    )
    assert committed == [["a", 6], ["b", 2]]
    assert damage == [["a", 0, 1]]
    assert shown == [["committed", 0], ["aborted", 2]]
    assert ["data_type", "bigint"] in described

"""Spark as people run it: the session of all other tests is one that only plans, with its own settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS
from tests.support import corpus
from tests.support.java import QUICK_JAVA

ROOT = Path(__file__).parents[2]
# Every format, transactions, compaction, damage, and Kafka's internal topics
LOGS = (
    *("v0-codec-gzip", "v1-codec-snappy", "v2-codec-zstd", "v2-txn-open", "v2-txn-abort", "v2-compacted"),
    *("v2-internal", "hostile/bitflip-payload-v2-zstd-0", "hostile/trunc-mid-batch-v2-none-0"),
)
_PARTS = 3


def run(*command: str) -> str:
    """What a command prints. Java starts quickly, as in other tests, but no setting of Spark is changed."""
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": QUICK_JAVA}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def job_and_views(lake: Path, *views: str) -> dict[str, int]:
    """Decodes LOGS and compares views with DuckDB's. Whether each has rows."""
    sources = [str(corpus.ROOT / name) for name in LOGS]
    options = [f"--views={','.join(views)}", str(lake), *sources]
    said = json.loads(run(sys.executable, "-m", "tests.support.stock", *options))
    assert list(said["settings"].values()) == ["true", "true", "200"]
    assert said["records"] > 1000
    found: dict[str, int] = said["views"]
    return found


def test_a_job_and_first_views_with_the_settings_that_spark_has_by_itself(tmp_path: Path) -> None:
    views = ("crc_report", "messages")
    assert job_and_views(tmp_path / "lake", *views) == dict.fromkeys(views, True)


@pytest.mark.parametrize("part", range(_PARTS))
def test_a_job_and_every_view_with_the_settings_that_spark_has_by_itself(tmp_path: Path, part: int) -> None:
    """In parts: a driver of 1 GiB, Spark's default, is nearly full after about fifty of the views."""
    views = [view.name for view in SESSION_VIEWS][part::_PARTS]
    assert sum(job_and_views(tmp_path / "lake", *views).values()) > 7  # the others have no rows here


def test_make_spark_runs_the_flow_by_spark_submit(tmp_path: Path) -> None:
    shutil.copytree(corpus.ROOT / "v2-codec-zstd", tmp_path / "logs")
    given = [f"LAKE={tmp_path / 'lake'}", f"SOURCES=--source '{tmp_path / 'logs'}'"]
    recipe = run("make", "--dry-run", "--assume-old=setup", "spark", *given)
    commands = [line for line in recipe.replace("\\\n", " ").splitlines() if "bin/spark-submit" in line]
    assert [Path(re.findall(r"\S+\.py", line)[0]).name for line in commands] == [
        *("ingest_raw.py", "decode_batches.py", "__main__.py"),
    ]
    landed, decoded, requested = (run("bash", "-c", line) for line in commands)
    assert "2 segments (17.1 kB) landed" in landed
    assert "decoded 2 segments" in decoded
    assert re.search(r"^ *2 +zstd +ok +\d+ +\d+$", requested, re.MULTILINE), requested

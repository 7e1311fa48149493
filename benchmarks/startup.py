"""``decode_batches`` on ten small segments from a cold process, against an empty Spark + Delta session.

Also what the first run pays for compiling the kernels, and whether a later run, or an import, compiles
anything: Numba's cache lies in a folder made for this, and what is added to it is counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.harness import ROOT, Row, Scale, Spread, paired, part_main
from benchmarks.job_server import LAKES, clear_lakes
from benchmarks.segments import KIB, MIB, PLAIN, WORK, partition_dir, size_of

_GOAL = 0.75
_LARGE_BYTES, _LARGE_SECONDS = 256 * MIB, 5.0
_CACHE = WORK / "numba"

EMPTY_SESSION = """
from delta import DeltaTable
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
         .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
         .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
         .getOrCreate())
assert not DeltaTable.isDeltaTable(spark, "/nonexistent/table")
spark.sql("SELECT 1").collect()
spark.stop()
"""
_QUERY = "SELECT topic, partition, count(*) FROM records GROUP BY ALL"
_IMPORTS = """
import kafka_log_lake.udfs, pipelines.decode_batches
udfs.decode_segment
"""


def timed(*arguments: str) -> float:
    """Seconds of a Python process from its start to its end."""
    return _answered(*arguments)[0]


def _answered(*arguments: str) -> tuple[float, str]:
    """The same, and what the process printed."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(_CACHE), "PYSPARK_PYTHON": sys.executable}
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        environment.pop(name, None)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{arguments[:2]} failed:\n{done.stderr[-4000:]}")
    return seconds, done.stdout


def _decode(source: Path) -> float:
    """Seconds of a run into a new lake."""
    shutil.rmtree(LAKES / "startup", ignore_errors=True)
    return _again(source)


def _again(source: Path) -> float:
    """Seconds of a run into the lake that is there."""
    lake = str(LAKES / "startup")
    return timed("-m", "pipelines.decode_batches", "--source", str(source), "--lake", lake)


def _decode_large(source: Path) -> tuple[float, float]:
    """Seconds of a decode as a whole process, and by its own ``--json``."""
    shutil.rmtree(LAKES / "startup", ignore_errors=True)
    requested = ("--source", str(source), "--lake", str(LAKES / "startup"), "--json")
    seconds, printed = _answered("-m", "pipelines.decode_batches", *requested)
    reported = json.loads(printed)
    return seconds, reported["seconds"]


def _query() -> tuple[str, ...]:
    return ("-m", "pipelines.query", "--lake", str(LAKES / "startup"), _QUERY)


def _command_rows(rounds: int) -> list[Row]:
    """What a person types, in a separate process: a query without Java, a job over two large segments."""
    query = _query()
    spark = (*query, "--engine", "spark")
    pairs = paired(rounds, {"ours": lambda: timed(*query), "spark": lambda: timed(*spark)})
    figures = (pairs.spread("ours"), "--engine spark", pairs.spread("spark"), pairs.ratio("ours", "spark"))
    large = partition_dir("large", PLAIN, 2, _LARGE_BYTES)
    whole, reported = zip(*[_decode_large(large) for _ in range(rounds)], strict=True)
    note = f"{size_of(large) / 1e6:,.0f} MB in two segments"
    names = {
        "two large segments, cold": whole,
        "two large segments, cold, by its --json": reported,
    }
    return [
        Row("query, cold", "s", *figures),
        *(
            Row(name, "s", Spread.of(seconds), goal=_LARGE_SECONDS, at_least=False, note=note)
            for name, seconds in names.items()
        ),
    ]


def _compiled() -> int:
    """Compiled kernels that Numba's cache holds, one for each signature."""
    return sum(1 for _ in _CACHE.rglob("*.nbc"))


def measure(scale: Scale) -> list[Row]:
    clear_lakes()
    shutil.rmtree(_CACHE, ignore_errors=True)
    source = partition_dir("start", replace(PLAIN, records=20), 1, 20 * KIB, 10)
    timed("-c", _IMPORTS)
    by_import = _compiled()
    timed("-c", EMPTY_SESSION)
    first = _decode(source)
    by_first = _compiled()
    pairs = paired(
        scale.job_rounds,
        {"ours": lambda: _decode(source), "empty": lambda: timed("-c", EMPTY_SESSION)},
    )
    later = _compiled() - by_first
    again = [_again(source) for _ in range(scale.job_rounds)]
    rows = [
        Row(
            "ten small segments, cold",
            "s",
            pairs.spread("ours"),
            "empty Spark + Delta session",
            pairs.spread("empty"),
            pairs.ratio("ours", "empty"),
            _GOAL,
            at_least=False,
            note="a new lake, its tables made",
        ),
        Row("nothing new in the lake, cold", "s", Spread.of(again)),
        Row("without Numba's cache", "s", Spread.of([first]), note=f"{by_first} kernels compiled"),
        _count("compiled by a second run", later),
        _count("compiled by imports", by_import),
        *_command_rows(scale.job_rounds),
    ]
    clear_lakes()
    return rows


def _count(name: str, count: int) -> Row:
    return Row(name, "kernels", Spread.of([float(count)]), goal=0.0, at_least=False)


if __name__ == "__main__":
    part_main("startup", measure)

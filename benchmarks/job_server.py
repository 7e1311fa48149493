"""A warm session in a separate process, which runs the main job once per request.

The number of cores and the heap belong to a session, so runs that are to differ in them take turns between
two such processes; one that waits uses no CPU. Only the job is timed: Java has started, and the lake's tables
are there, as they are in every run but a lake's first.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.segments import WORK

_ANSWER = "answer "
LAKES = WORK / "lakes"
_UNFLUSHED = Path(__file__).with_name("unflushed")


class JobServer:
    """The calling side. ``decode`` runs ``decode_batches`` into a new lake and returns what it took.

    flushes: whether files are flushed to the disk, as they are. in_spark: whether the tasks run in Spark, and
    not in worker processes as those of a command do. by_spark: whether Spark's own writer makes the table
    ``records`` of the rows of ``decode_segments``, in place of the job.
    """

    def __init__(
        self,
        cores: int,
        driver_memory: str = "4g",
        flushes: bool = True,
        in_spark: bool = True,
        by_spark: bool = False,
    ) -> None:
        script = [sys.executable, "-m", "benchmarks.job_server"]
        options = ["--cores", str(cores), "--driver-memory", driver_memory]
        options += ["--by-spark"] if by_spark else []
        options += ["--in-spark"] if in_spark else []
        pipe = subprocess.PIPE
        self.name = f"{cores}-{os.getpid()}"
        environment = dict(os.environ) if flushes else {**os.environ, "PYTHONPATH": str(_UNFLUSHED)}
        self.log = WORK / f"job_server-{cores}-{flushes}-{in_spark}-{by_spark}.log"
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [*script, *options], stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment
            )
        self._ask({})

    def decode(self, source: Path, lake: str, **settings: Any) -> float:
        """Seconds from sources to committed tables; the lake is ``LAKES / lake``, new, and stays.

        A lake of that name before is put aside, to be removed with all others at the end: for a minute
        after files are deleted, ext4 takes longer to make new ones.
        """
        path = LAKES / lake
        if path.exists():
            path.rename(path.with_name(f"{lake}-{uuid.uuid4().hex[:8]}"))
        return self.decode_into(source, path, **settings)

    def decode_again(self, source: Path, lake: str) -> float:
        """Seconds of a run into a lake that has been there, with what it holds."""
        return self.decode_into(source, LAKES / lake)

    def decode_landed(self, lake: Path) -> float:
        """Seconds of a run over what was landed in a lake, which goes into the same."""
        return float(self._ask({"lake": str(lake), "from_raw": True})["seconds"])

    def read_landed(self, lake: Path) -> float:
        """Seconds that ``decode_frame`` takes to decode what was landed in a lake; nothing is written."""
        return float(self._ask({"frame": str(lake)})["seconds"])

    def read_segments(self, source: Path) -> float:
        """Seconds that ``decode_segments`` takes to decode the files of a source; nothing is written."""
        return float(self._ask({"segments": str(source)})["seconds"])

    def decode_into(self, source: Path, lake: Path, **settings: Any) -> float:
        return float(self._ask({"source": str(source), "lake": str(lake), **settings})["seconds"])

    def _ask(self, settings: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(settings) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(_ANSWER):
                answer: dict[str, Any] = json.loads(line.removeprefix(_ANSWER))
                return answer
        raise RuntimeError(f"the session ended early:\n{self.log.read_text()[-4000:]}")

    def __enter__(self) -> JobServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def clear_lakes() -> None:
    shutil.rmtree(LAKES, ignore_errors=True)


def parquet_files(lake: str, table: str = "records") -> list[Path]:
    """The data files of a table of a lake that was written once."""
    return sorted(LAKES.joinpath(lake, table).rglob("*.parquet"))


def data_files(lake: str, table: str = "records") -> pa.Table:
    """The data files of a table as its log has them, with the values of its partition columns."""
    return pa.table(DeltaTable(str(LAKES / lake / table)).get_add_actions(flatten=True))


def parquet_bytes(lake: str) -> int:
    return sum(path.stat().st_size for path in parquet_files(lake))


def _serve() -> None:
    from kafka_log_lake import decode_frame
    from kafka_log_lake.pipelines.cli.setting_names import make_settings
    from kafka_log_lake.pipelines.cli.settings import Settings
    from kafka_log_lake.pipelines.decode.decode_into import decode_into
    from kafka_log_lake.pipelines.decode_batches import decode_segments, run
    from kafka_log_lake.pipelines.engine.on_demand import spark_on_demand
    from kafka_log_lake.pipelines.lake.create import create_tables

    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int)
    parser.add_argument("--driver-memory")
    parser.add_argument("--by-spark", action="store_true")
    parser.add_argument("--in-spark", action="store_true")
    options = vars(parser.parse_args())
    in_spark, by_spark = options.pop("in_spark"), options.pop("by_spark")
    with spark_on_demand(Settings(**options), only_plans=not by_spark) as on_demand:
        if in_spark:
            _ = on_demand.spark
        for line in sys.stdin:
            requested = json.loads(line)
            answer = {}
            if "frame" in requested or "segments" in requested:
                began = time.perf_counter()
                if "frame" in requested:
                    chunks = on_demand.spark.read.format("delta").load(f"{requested['frame']}/raw_segments")
                    rows = decode_frame(chunks)
                else:
                    rows = decode_segments(on_demand.spark, requested["segments"])
                rows.write.format("noop").mode("overwrite").save()
                answer = {"seconds": time.perf_counter() - began}
            elif requested:
                settings = make_settings(requested)
                began = time.perf_counter()
                if by_spark:
                    on_demand.spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
                    rows = decode_segments(on_demand.spark, settings.source)
                    writer = rows.write.format("delta").partitionBy("topic", "partition", "magic")
                    writer.save(f"{settings.require_lake()}/records")
                else:
                    create_tables(settings.require_lake())
                    began = time.perf_counter()
                    _ = run(on_demand.spark, settings) if in_spark else decode_into(on_demand, settings)
                answer = {"seconds": time.perf_counter() - began}
            print(_ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()

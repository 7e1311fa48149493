"""The flow of the project in Spark, by spark-submit with Spark's default settings: land, then decode.

Two segments of a GiB at the usual size. Landing is compared with the processor time of a session that does
nothing and of pyarrow writing the same bytes as Parquet; decoding what was landed with decoding the files, in
one warm session; the whole flow with the same two commands in worker processes, and with Spark writing the
decoded rows once more. Then many small segments, landed and as files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness import ROOT, Row, Scale, Spread, machine, paired, part_main, say
from benchmarks.job_server import LAKES, JobServer, clear_lakes
from benchmarks.memory import children, high_water
from benchmarks.segments import KIB, MIB, PLAIN, WORK, partition_dir, size_of
from benchmarks.startup import EMPTY_SESSION

_SUBMIT = str(Path(sys.executable).with_name("spark-submit"))
_HZ = os.sysconf("SC_CLK_TCK")
_POLL_SECONDS = 0.05
_LANDING, _WARM, _FLOW, _WORKER_MIB, _MANY, _FRAME = 1.3, 1.5, 3.0, 600.0, 1.5, 1.3
_SEGMENTS_A_PARTITION = 10

WRITE_BYTES = """
import sys
import pyarrow as pa
import pyarrow.parquet as pq
*files, target = sys.argv[1:]
schema = pa.schema([("content", pa.binary())])
options = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
with pq.ParquetWriter(target, schema, **options) as writer:
    for name in files:
        with open(name, "rb") as file:
            while chunk := file.read(16 << 20):
                writer.write_table(pa.table([pa.array([chunk], pa.binary())], schema=schema))
"""
COPY = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.config("spark.sql.parquet.compression.codec", "zstd")
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
spark = builder.config("spark.sql.catalog.spark_catalog", catalog).getOrCreate()
rows = spark.read.format("delta").load(sys.argv[1])
rows.write.format("delta").partitionBy("topic", "partition", "magic").save(sys.argv[2])
"""


@dataclass(frozen=True)
class Taken:
    """What a command took: seconds, processor seconds of all its processes, MiB of its largest worker."""

    wall: float
    processor: float
    worker_mib: float


def run(*command: str) -> Taken:
    """A command to its end. Raises RuntimeError if it fails."""
    ticks: dict[int, int] = {}
    most, began = 0.0, time.perf_counter()
    environment = {n: v for n, v in os.environ.items() if n not in ("SPARK_HOME", "SPARK_CONF_DIR")}
    environment["PYSPARK_PYTHON"] = sys.executable
    log = WORK / "spark_flow.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as said:
        job = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said)
        while job.poll() is None:
            for pid in [job.pid, *children(job.pid)]:
                ticks[pid] = max(ticks.get(pid, 0), _ticks(pid))
                found = high_water(pid)
                if found and found[0] == "worker":
                    most = max(most, found[1])
            time.sleep(_POLL_SECONDS)
    if job.returncode:
        raise RuntimeError(f"{command[:2]} failed:\n{log.read_text()[-4000:]}")
    return Taken(time.perf_counter() - began, sum(ticks.values()) / _HZ, most)


def _ticks(pid: int) -> int:
    """Processor time of a process, in the kernel's ticks; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _script(name: str, text: str) -> str:
    path = WORK / name
    path.write_text(text)
    return str(path)


def measure(scale: Scale) -> list[Row]:
    if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
        say("  no /proc with children here: left out")
        return []
    clear_lakes()
    LAKES.mkdir(parents=True)
    source = partition_dir("flow", PLAIN, 2, scale.one_segment)
    rows = [*_cold(source), *_warm(scale, source), _many(scale)]
    clear_lakes()
    return rows


def _cold(source: Path) -> list[Row]:
    """Each command in a new process."""
    lakes = [str(LAKES / name) for name in ("spark", "processes")]
    landing = ["pipelines/ingest_raw.py", "--read", "binary", "--source", str(source), "--lake", lakes[0]]
    say("  by spark-submit")
    landed = run(_SUBMIT, *landing)
    decoded = run(_SUBMIT, "pipelines/decode_batches.py", "--from-raw", "--lake", lakes[0])
    copied = run(_SUBMIT, _script("copy_records.py", COPY), f"{lakes[0]}/records", str(LAKES / "copied"))
    start = run(_SUBMIT, _script("session.py", EMPTY_SESSION))
    say("  without Spark")
    files = [str(path) for path in sorted(source.rglob("*.log"))]
    written = run(sys.executable, _script("write.py", WRITE_BYTES), *files, str(LAKES / "bytes.parquet"))
    module = (sys.executable, "-m")
    direct = [
        run(*module, "pipelines.ingest_raw", "--source", str(source), "--lake", lakes[1]),
        run(*module, "pipelines.decode_batches", "--from-raw", "--lake", lakes[1]),
    ]
    size = size_of(source)
    least = start.processor + written.processor
    wall, walls = landed.wall + decoded.wall, sum(one.wall for one in direct)
    work = landed.processor + decoded.processor
    note = f"{size / 1e6:,.0f} MB, Spark's default heap"

    def below(name: str, unit: str, ours: float, peer: str, theirs: float, goal: float | None = None) -> Row:
        spreads = (Spread.of([ours]), peer, Spread.of([theirs]), Spread.of([ours / theirs]))
        return Row(name, unit, *spreads, goal, at_least=False, note=note)

    most = Spread.of([max(landed.worker_mib, decoded.worker_mib)])
    processors = sum(one.processor for one in direct)
    return [
        below("landing", "CPU s", landed.processor, "a session and pyarrow's writing", least, _LANDING),
        below("the flow, cold", "s", wall, "worker processes", walls, _FLOW),
        below("the flow, processor time", "CPU s", work, "worker processes", processors),
        below("the flow, Spark's own copy", "CPU s", work, "Spark copies the records", copied.processor),
        Row("Python worker of the flow", "MiB", most, goal=_WORKER_MIB, at_least=False, note=note),
    ]


def _landed(source: Path, name: str) -> Path:
    """A new lake into which a source was landed."""
    lake = LAKES / name
    run(sys.executable, "-m", "pipelines.ingest_raw", "--source", str(source), "--lake", str(lake))
    return lake


def _both(session: JobServer, source: Path, landed: Path, rounds: int) -> tuple[Spread, Spread, Spread]:
    """Decoding what was landed, and the files, in turn, and the ratio. landed: stays as it is."""

    def from_raw() -> float:
        shutil.rmtree(LAKES / "from raw", ignore_errors=True)
        shutil.copytree(landed, LAKES / "from raw", copy_function=os.link)
        return session.decode_landed(LAKES / "from raw")

    from_raw()
    session.decode(source, "files")
    pairs = paired(rounds, {"raw": from_raw, "files": lambda: session.decode(source, "files")})
    return pairs.spread("raw"), pairs.spread("files"), pairs.ratio("raw", "files")


def _warm(scale: Scale, source: Path) -> list[Row]:
    say("  in a warm session")
    landed = _landed(source, "landed")
    with JobServer(machine()["cores"], driver_memory="1g") as session:
        ours, theirs, ratio = _both(session, source, landed, scale.job_rounds)
        reads = {
            "frame": lambda: session.read_landed(landed),
            "segments": lambda: session.read_segments(source),
        }
        for read in reads.values():
            read()
        frames = paired(scale.job_rounds, reads)
    return [
        Row("from raw, warm", "s", ours, "decode --source", theirs, ratio, _WARM, at_least=False),
        Row(
            "decode_frame over chunks",
            "s",
            frames.spread("frame"),
            "decode_segments",
            frames.spread("segments"),
            frames.ratio("frame", "segments"),
            _FRAME,
            at_least=False,
        ),
    ]


def _many(scale: Scale) -> Row:
    """Small segments in many partitions: 20 times the benchmark's usual number, at the usual size 20,000."""
    number = 20 * scale.small_segments
    partitions = number // _SEGMENTS_A_PARTITION
    say(f"  {number:,} segments in {partitions:,} partitions")
    kind = replace(PLAIN, records=20)
    source = partition_dir("many", kind, partitions, 8 * KIB, _SEGMENTS_A_PARTITION)
    with JobServer(machine()["cores"], driver_memory="1g") as session:
        ours, theirs, ratio = _both(session, source, _landed(source, "many"), 1)
    note = f"{number:,} segments, {partitions:,} partitions, {size_of(source) // MIB} MiB"
    name = "many landed segments"
    return Row(name, "s", ours, "decode --source", theirs, ratio, _MANY, at_least=False, note=note)


if __name__ == "__main__":
    part_main("spark_flow", measure)

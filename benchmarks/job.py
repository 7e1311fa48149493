"""The whole job, source to committed tables, with workers that are there: processes, and those of Spark.

Against the time that pyarrow alone needs to write the same rows as Parquet in as many processes (nothing
read, decoded or committed), and against the rows of ``decode_segments`` that Spark's DataFrameWriter
writes to Delta.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness import Row, Scale, Spread, machine, paired, part_main
from benchmarks.job_server import LAKES, JobServer, clear_lakes, parquet_bytes, parquet_files
from benchmarks.parquet_writers import ParquetWriters
from benchmarks.segments import GIB, KIB, PLAIN, partition_dir, size_of

_SEGMENTS = 2
# Times of what pyarrow alone takes to write: the fixed costs weigh less where there is more to write
_GOAL, _GOAL_OF_A_GIB = 1.7, 1.4
_NOTHING_NEW_SECONDS, _SMALL_FILE_SECONDS = 0.3, 0.7
# What a second session, and Spark's writer, have compiled and cached already
_WARM_UP = 1


def measure(scale: Scale) -> list[Row]:
    clear_lakes()
    cores = machine()["cores"]
    source = partition_dir("bench", PLAIN, _SEGMENTS, scale.job_bytes // _SEGMENTS)
    small = partition_dir("warm", replace(PLAIN, records=20), 2, 20 * KIB)
    with JobServer(cores) as session:  # compiles the kernels where that was not done yet
        session.decode(small, "small")
    with (
        JobServer(cores) as session,
        JobServer(cores, in_spark=False) as processes,
        JobServer(cores, by_spark=True) as writing,
    ):
        cold = session.decode(source, "arrow")
        for _ in range(_WARM_UP):
            session.decode(small, "small")
            writing.decode(small, "small")
        processes.decode(source, "processes")
        session.decode(source, "arrow")
        writing.decode(source, "spark")
        with ParquetWriters(parquet_files("arrow"), LAKES / "pyarrow", cores) as writers:
            writers.write()
            pairs = paired(
                scale.job_rounds,
                {
                    "processes": lambda: processes.decode(source, "processes"),
                    "ours": lambda: session.decode(source, "job"),
                    "pyarrow": writers.write,
                    "spark": lambda: writing.decode(source, "spark"),
                },
            )
            alone = writers.written_bytes()
        warm = _warm_rows(scale, session)
    ours, size = pairs.spread("ours"), size_of(source)

    def next_to_pyarrow(name: str, who: str) -> Row:
        figures = (pairs.spread(who), "pyarrow writes", pairs.spread("pyarrow"), pairs.ratio(who, "pyarrow"))
        goal = _GOAL_OF_A_GIB if scale.job_bytes >= GIB else _GOAL
        note = f"{size / 1e6:,.0f} MB, {cores} processes"
        return Row(name, "s", *figures, goal, at_least=False, note=note)

    rows = [
        next_to_pyarrow("job, pyarrow alone", "processes"),
        next_to_pyarrow("job in Spark, pyarrow alone", "ours"),
        Row(
            "job, Spark's writer",
            "s",
            ours,
            "Spark's writer",
            pairs.spread("spark"),
            pairs.ratio("spark", "ours"),
            4.0,
        ),
        Row("job, speed", "MB/s", pairs.spread("processes", lambda s: size / 1e6 / s)),
        Row("job in Spark, speed", "MB/s", pairs.spread("ours", lambda s: size / 1e6 / s)),
        Row("job, first of a session", "s", Spread.of([cold]), note="Java warm-up, new Python workers"),
        *warm,
        *_sizes(alone),
    ]
    clear_lakes()
    return rows


def _warm_rows(scale: Scale, session: JobServer) -> list[Row]:
    """What a run in a warm session takes whatever it decodes."""
    one = partition_dir("warm-one", replace(PLAIN, records=20), 1, 20 * KIB)
    small = [session.decode(one, "one") for _ in range(scale.job_rounds)]
    again = [session.decode_again(one, "one") for _ in range(scale.job_rounds)]
    return [
        Row("warm, one small file", "s", Spread.of(small), goal=_SMALL_FILE_SECONDS, at_least=False),
        Row("warm, nothing new", "s", Spread.of(again), goal=_NOTHING_NEW_SECONDS, at_least=False),
    ]


def _sizes(alone: int) -> list[Row]:
    sizes = {"ours": parquet_bytes("job"), "spark": parquet_bytes("spark"), "pyarrow": alone}
    ours = Spread.of([sizes["ours"] / 1e6])

    def row(peer: str, name: str, goal: float | None) -> Row:
        ratio = Spread.of([sizes["ours"] / sizes[peer]])
        theirs = Spread.of([sizes[peer] / 1e6])
        return Row(f"Parquet size, {name}", "MB", ours, name, theirs, ratio, goal, at_least=False)

    return [row("spark", "Spark's writer", 1.0), row("pyarrow", "pyarrow alone", None)]


if __name__ == "__main__":
    part_main("job", measure)

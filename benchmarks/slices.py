"""One large segment on all cores against one, many small segments against a few big ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from benchmarks.harness import Row, Scale, Spread, machine, paired, part_main, say
from benchmarks.job_server import JobServer, clear_lakes, data_files
from benchmarks.segments import KIB, PLAIN, partition_dir, size_of

_ONE_SEGMENT_GOAL = 1.8
_SMALL_GOAL = 1.6
_FILES_GOAL = 4.0
_SMALL_BYTES = 20 * KIB
_PARTITIONS = 100
# A segment of a few KiB comes from a slow topic: small batches
_SMALL = replace(PLAIN, records=20)


def measure(scale: Scale) -> list[Row]:
    clear_lakes()
    cores = machine()["cores"]
    with JobServer(cores) as all_cores:
        rows = [*_small_segments(scale, all_cores), *_one_segment(scale, cores, all_cores)]
    clear_lakes()
    return rows


def _one_segment(scale: Scale, cores: int, all_cores: JobServer) -> list[Row]:
    say("  one segment, one core and all")
    source = partition_dir("sliced", PLAIN, 1, scale.sliced_segment)
    with JobServer(1) as one_core:
        one_core.decode(source, "sliced")
        all_cores.decode(source, "sliced")
        pairs = paired(
            scale.job_rounds,
            {
                "one": lambda: one_core.decode(source, "sliced"),
                "all": lambda: all_cores.decode(source, "sliced"),
            },
        )
    ours, theirs = pairs.spread("all"), pairs.spread("one")
    note = f"{cores} cores, one segment of {size_of(source) / 1e6:,.0f} MB"
    ratio = pairs.ratio("one", "all")
    goal = _ONE_SEGMENT_GOAL if cores == 2 else None
    return [Row("one segment, all cores", "s", ours, "1 core", theirs, ratio, goal, note=note)]


def _small_segments(scale: Scale, session: JobServer) -> list[Row]:
    say(f"  {scale.small_segments} small segments and as many bytes in big ones")
    each = scale.small_segments // _PARTITIONS
    small = partition_dir("small", _SMALL, _PARTITIONS, _SMALL_BYTES, each)
    size = size_of(small)
    big = partition_dir("big", _SMALL, 2, size // 2)
    session.decode(small, "small")
    session.decode(big, "big")
    pairs = paired(
        scale.job_rounds,
        {"small": lambda: session.decode(small, "small"), "big": lambda: session.decode(big, "big")},
    )

    def per_byte(seconds: float) -> float:
        return seconds * 1e9 / size

    files = Counter(data_files("small").column("partition.partition").to_pylist())
    note = f"{scale.small_segments:,} of {_SMALL_BYTES // KIB} KiB in {_PARTITIONS} partitions"
    most = Spread.of([float(max(files.values()))])
    ours, theirs = pairs.spread("small", per_byte), pairs.spread("big", per_byte)
    ratio = pairs.ratio("small", "big")
    return [
        Row(
            "small segments",
            "ns/B",
            ours,
            "two big ones",
            theirs,
            ratio,
            _SMALL_GOAL,
            at_least=False,
            note=note,
        ),
        Row("Parquet files a partition", "files", most, goal=_FILES_GOAL, at_least=False, note=note),
    ]


if __name__ == "__main__":
    part_main("slices", measure)

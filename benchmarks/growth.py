"""Full size only: whether time per byte stays flat."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness import Row, Scale, machine, paired, part_main, say
from benchmarks.job_server import JobServer, clear_lakes
from benchmarks.segments import KIB, MIB, PLAIN, partition_dir, size_of

# Flat, with room for what a machine's speed drifts by
_FLAT = 1.15
_PARTITIONS_GOAL = 1.2
_FEW_BYTES = 256 * MIB
_BIG_SEGMENTS = 8
_SMALL = replace(PLAIN, records=20)


def _per_byte(scale: Scale, session: JobServer) -> Row:
    few = partition_dir("few", PLAIN, 2, _FEW_BYTES // 2)
    many = partition_dir("grown", PLAIN, _BIG_SEGMENTS, scale.grown_bytes // _BIG_SEGMENTS)
    sizes = {"few": size_of(few), "many": size_of(many)}
    session.decode(few, "few")
    pairs = paired(
        max(1, scale.job_rounds // 2),
        {
            "few": lambda: session.decode(few, "few") / sizes["few"] * 1e9,
            "many": lambda: session.decode(many, "many") / sizes["many"] * 1e9,
        },
    )
    note = f"{sizes['many'] / 1e6:,.0f} MB against {sizes['few'] / 1e6:,.0f} MB"
    ours, theirs = pairs.spread("many"), pairs.spread("few")
    ratio = pairs.ratio("many", "few")
    return Row("bytes", "ns/B", ours, "fewer bytes", theirs, ratio, _FLAT, at_least=False, note=note)


def _per_partition(scale: Scale, session: JobServer) -> Row:
    many = partition_dir("partitions", _SMALL, scale.partitions, 20 * KIB)
    one = partition_dir("one", _SMALL, 1, 20 * KIB, scale.partitions)
    session.decode(one, "one")
    pairs = paired(
        max(1, scale.job_rounds // 2),
        {"one": lambda: session.decode(one, "one"), "many": lambda: session.decode(many, "many")},
    )
    note = f"{scale.partitions:,} segments of 20 KiB, each its own partition or all in one"
    ours, theirs = pairs.spread("many"), pairs.spread("one")
    ratio = pairs.ratio("many", "one")
    name = "partitions"
    return Row(name, "s", ours, "one partition", theirs, ratio, _PARTITIONS_GOAL, at_least=False, note=note)


def measure(scale: Scale) -> list[Row]:
    clear_lakes()
    with JobServer(machine()["cores"]) as session:
        say("  bytes")
        rows = [_per_byte(scale, session)]
        clear_lakes()
        say("  partitions")
        rows.append(_per_partition(scale, session))
    clear_lakes()
    return rows


if __name__ == "__main__":
    part_main("growth", measure)

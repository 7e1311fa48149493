"""Puts the figures of ``latest.json`` into benchmarks/README.md: ``python -m benchmarks.page``.

The page names a place for each table by a comment, ``<!-- figures: goals -->``; what is between it and
the next ``<!-- end -->`` is made here and replaced each time. What was not measured says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import report
from benchmarks.harness import ROOT, short

PAGE = ROOT / "benchmarks" / "README.md"
MISSING = "not measured yet"
QUESTIONS = "first_questions"  # the part with a table of its own
_MET = {True: "met", False: "**missed**", None: ""}
_BETWEEN = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# Goal in words, part, row. The number of the goal is in the row itself.
GOALS = (
    ("V2 uncompressed, 100 B records: 1.8x kafka-clients or more", "kernels", "V2 none 100 B"),
    ("V2 uncompressed, 1 KiB records: 1.5x or more", "kernels", "V2 none 1 KiB"),
    ("V2 lz4: 1.6x or more", "kernels", "V2 lz4"),
    ("V2 snappy: 1.6x or more", "kernels", "V2 snappy"),
    ("V2 zstd: 1.4x or more", "kernels", "V2 zstd"),
    ("V2 gzip: 1.8x or more", "kernels", "V2 gzip"),
    ("V1 uncompressed: 8x or more", "kernels", "V1 none"),
    ("V1 lz4, inner checksums too: 1.2x or more", "kernels", "V1 lz4"),
    ("aiokafka's C extension, V2 uncompressed: 4x or more", "kernels", "V2 none, aiokafka"),
    ("the job over 1 GiB: at most 1.4x the time pyarrow alone needs to write", "job", "job, pyarrow alone"),
    ("the same in a session of Spark: 1.4x", "job", "job in Spark, pyarrow alone"),
    ("the job: 4x Spark's own writer to Delta or more", "job", "job, Spark's writer"),
    ("the job: 6x Spark's Kafka source or more", "broker", "job, Spark's Kafka source"),
    ("a warm session, one small file: 0.7 s", "job", "warm, one small file"),
    ("a warm session, nothing new: 0.3 s", "job", "warm, nothing new"),
    ("watching 20 partitions: a round with nothing new in 0.3 s", "watch", "a round with nothing new"),
    ("watching 20 partitions: a round after one grew in 1.5 s", "watch", "a round, one partition grew"),
    ("Avro to typed columns: 10x fastavro's dicts or more", "typed", "Avro to columns"),
    ("`decode --typed`: at most 2x the time of `decode`", "typed", "decode --typed"),
    ("Parquet no larger than Spark's with zstd", "job", "Parquet size, Spark's writer"),
    *(
        (f"{worker} at most 600 MiB, {words}", "memory", f"{worker}, {name}")
        for name, words in (
            *(("none", "uncompressed"), ("zstd", "zstd"), ("gzip", "gzip"), ("snappy", "snappy")),
            ("lz4, 1 KiB", "lz4 with 1 KiB records"),
        )
        for worker in ("worker process", "Python worker of Spark")
    ),
    ("landing by spark-submit: at most 1.3x Spark's start and pyarrow's writing", "spark_flow", "landing"),
    ("decoding landed bytes, a warm session: at most 1.5x `--source`", "spark_flow", "from raw, warm"),
    (
        "`decode_frame` over landed chunks: at most 1.3x `decode_segments`",
        "spark_flow",
        "decode_frame over chunks",
    ),
    ("the flow in Spark, cold: at most 3x the wall of worker processes", "spark_flow", "the flow, cold"),
    ("the flow: a Python worker at most 600 MiB", "spark_flow", "Python worker of the flow"),
    ("20,000 landed segments: at most 1.5x their files", "spark_flow", "many landed segments"),
    ("one segment on 2 cores: 1.8x one core or more", "slices", "one segment, all cores"),
    (
        "small segments in 100 partitions: at most 1.6x a byte of big ones",
        "slices",
        "small segments",
    ),
    ("small segments: at most a few Parquet files a partition", "slices", "Parquet files a partition"),
    ("time a byte flat as bytes grow", "growth", "bytes"),
    ("10,000 partitions: at most 1.2x the time of one", "growth", "partitions"),
    ("planning 1,000,000 segments in under 2 GiB", "planning", "driver's memory, 1,000,000 segments"),
    (
        "cold, ten small segments: at most 0.75x an empty Spark + Delta session",
        "startup",
        "ten small segments, cold",
    ),
    ("cold, a command over 2 x 256 MiB, the whole process: 5 s", "startup", "two large segments, cold"),
    (
        "the same by its own `--json`: 5 s",
        "startup",
        "two large segments, cold, by its --json",
    ),
    ("`register` in a warm session: 5 s", "views", "register, a warm session"),
    *(
        (f"{what}, {engine}", "views", f"{view}, {engine}")
        for engine in ("Spark", "DuckDB")
        for what, view in (
            ("offset_gaps over 4 million records: 3 s", "offset_gaps"),
            (
                "committed_records of a partition: at most 1.3x the time of its records",
                "committed_records of a partition",
            ),
        )
    ),
    (
        "find, uncompressed, on 2 cores: half the time of `cat FILES` to `wc`",
        "find",
        "find a value, two processes",
    ),
    ("find, uncompressed: at most 2x the processor time of ripgrep", "find", "find a value"),
    ("find a key, zstd: at most 1.1x the decoder that builds keys alone", "find", "find a key, zstd"),
    ("dump, uncompressed: 10x Kafka's DumpLogSegments or more", "find", "dump"),
    ("dump, zstd: 10x", "find", "dump, zstd"),
    ("a second run compiles nothing", "startup", "compiled by a second run"),
    ("imports compile nothing", "startup", "compiled by imports"),
)

_CORES_AN_EXECUTOR = 8
_EXECUTORS = (10, 50, 200)
_PRICE = 0.05  # a core-hour


def rows_of(parts: dict[str, Any], part: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in parts.get(part, {}).get("rows", [])}


def _spread(value: dict[str, float]) -> str:
    if value["low"] == value["high"]:
        return short(value["median"])
    return f"{short(value['median'])} ({short(value['low'])} to {short(value['high'])})"


def figure(row: dict[str, Any]) -> str:
    """A row in words: the ratio with its spread, then what it is made of."""
    unit = row["unit"]
    if row["ratio"] is None:
        return f"{_spread(row['ours'])} {unit}"
    ours, theirs = short(row["ours"]["median"]), short(row["theirs"]["median"])
    return f"{_spread(row['ratio'])}x: {ours} {unit}, {row['peer']} {theirs} {unit}"


def _goal(row: dict[str, Any]) -> str:
    """Returns the goal of a ratio, and whether it is met."""
    if row["goal"] is None:
        return ""
    return f"{'at least' if row['at_least'] else 'at most'} {row['goal']}x: {_MET[row['met']]}"


def _table(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    marked = [head, tuple("---" for _ in head), *lines]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in marked)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def goals(parts: dict[str, Any]) -> str:
    lines = []
    for text, part, name in GOALS:
        row = rows_of(parts, part).get(name)
        verdict = _MET[row["met"]] if row else ""
        lines.append((text, figure(row) if row else MISSING, verdict, f"`{part}`"))
    return _table(("goal", "figure", "", "part"), lines)


def floors(parts: dict[str, Any]) -> str:
    rows = [row for name, row in rows_of(parts, "kernels").items() if name.startswith("floor")]
    lines = [
        (
            row["name"].removeprefix("floor, "),
            f"{short(row['ours']['median'])} MB/s",
            f"{short(row['theirs']['median'])} MB/s",
            f"{_spread(row['ratio'])}x",
        )
        for row in rows
    ]
    head = ("file", "ours", "floor", "time of ours / floor")
    return _table(head, lines) if lines else f"{MISSING}\n"


def questions(parts: dict[str, Any]) -> str:
    """Each first question beside a count, with the columns that the count reads."""
    lines = [
        (name, figure(row), row["note"], _MET[row["met"]]) for name, row in rows_of(parts, QUESTIONS).items()
    ]
    return _table(("page, question", "figure", "in a new connection", ""), lines) if lines else f"{MISSING}\n"


def others(parts: dict[str, Any]) -> str:
    """Rows that neither GOALS nor a table of their own has."""
    named = {(part, name) for _, part, name in GOALS}
    lines = [
        (name, figure(row), row["note"], _goal(row), f"`{part}`")
        for part in parts
        if part != QUESTIONS
        for name, row in rows_of(parts, part).items()
        if (part, name) not in named and not name.startswith("floor")
    ]
    return _table(("", "figure", "", "goal", "part"), lines) if lines else f"{MISSING}\n"


def machines(parts: dict[str, Any]) -> str:
    lines = []
    for part, about in parts.items():
        at = about["machine"]
        where = f"{at['cores']} x {at['cpu']}, {at['memory_gib']} GiB"
        lines.append((f"`{part}`", about["size"], where, str(at["load_before"]), f"{about['seconds']:.0f} s"))
    head = ("part", "size", "machine", "load before", "took")
    return _table(head, lines) if lines else f"{MISSING}\n"


def bytes_a_core_second(parts: dict[str, Any]) -> float | None:
    """What one core of the machine takes of a large source in a second, everything included."""
    row = rows_of(parts, "growth").get("bytes")
    if row:
        return 1e9 / row["ours"]["median"] / parts["growth"]["machine"]["cores"]
    row = rows_of(parts, "job").get("job, speed")
    return row["ours"]["median"] * 1e6 / parts["job"]["machine"]["cores"] if row else None


def petabyte(parts: dict[str, object]) -> str:
    """Hours and cost of 10^15 bytes on some numbers of executors, by the speed of one core."""
    rate = bytes_a_core_second(parts)
    if rate is None:
        return f"{MISSING}\n"
    core_hours = 1e15 / rate / 3600
    lines = []
    for count in _EXECUTORS:
        cores = count * _CORES_AN_EXECUTOR
        hours = core_hours / cores
        lines.append(
            (f"{count} of {_CORES_AN_EXECUTOR} cores", f"{short(cores * rate / 1e9)} GB/s", short(hours))
        )
    head = ("executors", "speed", "hours of decoding")
    return (
        f"One core takes {short(rate / 1e6)} MB/s: {core_hours:,.0f} core-hours, "
        f"{core_hours * _PRICE:,.0f} USD at {_PRICE} USD a core-hour, whatever the number of executors.\n\n"
        + _table(head, lines)
    )


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "goals": goals,
    "floors": floors,
    "questions": questions,
    "others": others,
    "machines": machines,
    "petabyte": petabyte,
}


def filled(text: str) -> str:
    """Returns the text of the page with the stored figures."""
    parts = report.load()
    return _BETWEEN.sub(lambda found: f"{found[1]}{TABLES[found[2]](parts)}{found[3]}", text)


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()

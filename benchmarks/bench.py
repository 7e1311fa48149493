"""All parts, one table, ``latest.json`` and the plot: what ``make bench`` and ``make bench-full`` run."""

from __future__ import annotations

import argparse
import importlib
import time

from benchmarks import report
from benchmarks.harness import SCALES, say

PARTS = (
    *(
        "kernels",
        "resync",
        "job",
        "flush",
        "broker",
        "watch",
        "restore",
        "memory",
        "slices",
        "spark_flow",
        "planning",
    ),
    *("startup", "views", "reads", "find", "recover", "typed", "tier", "first_questions"),
)
FULL_PARTS = (*PARTS, "growth")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SCALES, default="reduced", help="how much to measure")
    parser.add_argument("--full", action="store_const", dest="size", const="full", help="--size full")
    parser.add_argument(
        "parts", nargs="*", help=f"some of {', '.join(FULL_PARTS)}; those of the size without"
    )
    requested = parser.parse_args()
    unknown = set(requested.parts) - set(FULL_PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    began = time.monotonic()
    parts = requested.parts or (FULL_PARTS if requested.size == "full" else PARTS)
    for part in parts:
        measure = importlib.import_module(f"benchmarks.{part}").measure
        report.run_part(part, measure, SCALES[requested.size])
    stored = report.store(requested.size)
    results = report.load(stored)
    report.print_table(results, parts)
    report.draw(results, stored.with_suffix(".png"))
    say(f"{time.monotonic() - began:.0f} s; figures in {stored.name}, plot in {stored.stem}.png")


if __name__ == "__main__":
    main()

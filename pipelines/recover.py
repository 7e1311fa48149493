"""``kafka-log-lake recover``: one log out of the copies that are left, and the bill of what is lost.

Compares the copies of partitions on the disks of brokers, heals damage in one by another, and decodes the one
true log into a lake. ``--write`` makes a log directory of it that a broker starts from. Needs no Java.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial

if __package__ in (None, ""):  # spark-submit puts pipelines/ on sys.path; the imports need its parent
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from pipelines.command.commands import RECOVER
from pipelines.command.errors import UserError
from pipelines.command.on_demand import SparkOnDemand
from pipelines.command.options import run_command
from pipelines.command.settings import Settings
from pipelines.decode_batches import decode_into
from pipelines.recovery import job, text


def run(on_demand: SparkOnDemand, settings: Settings, report: str | None = None) -> None:
    """Recovers, and prints the bill. Raises a UserError for sources or folders that can't be used.

    report: a folder for the bill as a page and as CSV.
    """
    if not settings.source:
        raise UserError("--source is missing: name the disks, such as --source broker1=/mnt/broker1")
    if settings.lake is None and report is None:
        raise UserError("--lake is missing: name the folder of the lake, such as --lake ./lake")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafka-log-lake-") as temporary:
        lake = settings.lake or f"{temporary}/lake"
        own = dataclasses.replace(settings, lake=lake)
        done = job.recover(own, partial(decode_into, on_demand))
        if report is not None:
            text.write_report(done, report)
    seconds = time.monotonic() - began
    if settings.json:
        print(json.dumps({**text.to_json(done), "seconds": round(seconds, 3)}))
    else:
        print("\n".join(text.lines(done, seconds, settings.lake)))


def main(argv: Sequence[str] | None = None) -> int:
    return run_command(RECOVER, run, argv)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m pipelines.sql_shell --lake L``: Spark's own SQL shell, with the tables and views of a lake.

An init file fills an in-memory catalog, so that the shell leaves no files behind, in the working folder or
elsewhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyspark

from pipelines.command.commands import SQL
from pipelines.command.errors import RunFailed, UserError
from pipelines.command.java import java_problem
from pipelines.command.options import run_command
from pipelines.command.session import ANYWHERE, EMBEDDED
from pipelines.command.settings import Settings
from pipelines.views.register import temporary_views
from udfs.format.schema import SEGMENTS


def shell_command(settings: Settings, home: Path, scratch: Path, init_file: Path) -> list[str]:
    """The ``spark-sql`` command with the settings of an embedded session; Spark's files go to ``scratch``."""
    conf = {**ANYWHERE, **EMBEDDED, "spark.sql.warehouse.dir": f"file:{scratch}/warehouse"}
    options = [item for key, value in conf.items() for item in ("--conf", f"{key}={value}")]
    return [
        str(home / "bin" / "spark-sql"),
        *("--master", f"local[{settings.cores or '*'}]", "--driver-memory", settings.driver_memory),
        *("--driver-java-options", f"-Dderby.system.home={scratch}"),
        *options,
        *("-i", str(init_file)),
    ]


def run(settings: Settings) -> None:
    """Opens the shell and waits until it ends."""
    lake = settings.require_lake()
    address = lake if "://" in lake else str(Path(lake.removeprefix("file:")).absolute())
    if "://" not in lake and not Path(address, SEGMENTS.name, "_delta_log").is_dir():
        raise UserError(f"there is no lake at {lake}: run `make run`, or name one: make sql LAKE=folder")
    problem = java_problem()
    if problem:
        raise UserError(problem)
    home = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory(prefix="kafka-log-lake-") as folder:
        scratch = Path(folder)
        init_file = scratch / "init.sql"
        init_file.write_text("".join(f"{statement};\n" for statement in temporary_views(address)))
        command = shell_command(settings, home, scratch, init_file)
        # Ctrl-C is for the shell, where it stops a statement; this process ignores it
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        done = subprocess.run(command, env={**os.environ, "SPARK_HOME": str(home)}, check=False)
    if done.returncode:
        raise RunFailed(f"spark-sql ended with exit code {done.returncode}")


def main(argv: Sequence[str] | None = None) -> int:
    return run_command(SQL, run, argv, with_spark=False)


if __name__ == "__main__":
    sys.exit(main())

"""``python -m pipelines.sql_shell --lake L``: Spark's own SQL shell, with the tables and views of a lake.

The catalog is in memory and filled by an init file, so that nothing is left behind, neither in the working
folder nor elsewhere.
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

from pipelines.command.errors import RunFailed, UserError
from pipelines.command.java import java_problem
from pipelines.command.options import Parser, add_setting, exit_code_of, set_up_logging
from pipelines.command.session import ANYWHERE, EMBEDDED
from pipelines.command.settings import Settings, make_settings
from pipelines.views.register import temporary_views
from udfs.format.schema import SEGMENTS


def shell_command(settings: Settings, home: Path, scratch: Path, init_file: Path) -> list[str]:
    """``spark-sql`` with the settings of every session of ours, keeping what it must write in ``scratch``."""
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
    """Opens the shell and waits for its end."""
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
        # Ctrl-C is the shell's: it stops a statement there, not this process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        done = subprocess.run(command, env={**os.environ, "SPARK_HOME": str(home)}, check=False)
    if done.returncode:
        raise RunFailed(f"spark-sql ended with exit code {done.returncode}")


def main(argv: Sequence[str] | None = None) -> int:
    set_up_logging()

    def job() -> None:
        parser = Parser("Opens a SQL shell over the tables and views of a lake.")
        for name in ("lake", "cores", "driver_memory"):
            add_setting(parser, name)
        run(make_settings(parser.values(argv)))

    return exit_code_of(job)


if __name__ == "__main__":
    sys.exit(main())

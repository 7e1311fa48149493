"""Makes Java's archive of the classes that Spark loads, which ``pipelines.command.class_archive`` describes.

``make setup`` runs it with the environment's Python. An archive that is there is kept. Where none can be made
one line says why, and sessions start without.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark import SparkContext

from pipelines import decode_batches, ingest_raw, query
from pipelines.command.class_archive import (
    archive_folder,
    archive_key,
    archive_name,
    java_options,
    launch_environment,
    whole_archive,
)
from pipelines.command.java import java_command
from pipelines.command.session import ONLY_PLANS, session
from pipelines.command.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
_SOURCE = ROOT / "tests" / "data" / "corpus" / "v2-txn-abort"
_QUERIES = (
    "SELECT topic, partition, count(*), max(offset) FROM committed_records GROUP BY ALL ORDER BY ALL",
    "SELECT offset, timestamp, CAST(key AS STRING) FROM records WHERE NOT is_control LIMIT 10",
    "SELECT * FROM crc_report WHERE crc_failures > 0 OR damaged_bytes > 0",
)
# Variables that give a JVM of Spark more options, or a longer class path
_ADDED = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "HADOOP_", "YARN_", "SPARK_")


def load_classes() -> None:
    """Runs what the commands run in one JVM; returns after that has ended, and so has written its archive."""
    with tempfile.TemporaryDirectory() as folder:
        source, lake = ("--source", str(_SOURCE)), ("--lake", f"{folder}/lake")
        with session(Settings(), only_plans=True) as spark:
            gateway = SparkContext._gateway
            codes = [decode_batches.main([*source, *lake])]
            # From here on as in a session that does not only plan
            for key in ONLY_PLANS:
                if key.startswith("spark.sql."):
                    spark.conf.unset(key)
            codes += [query.main([*lake, "--engine", "spark", statement]) for statement in _QUERIES]
            codes += [ingest_raw.main([*source, *lake])]
            codes += [decode_batches.main([*source, "--lake", f"{folder}/spark", "--sink", "spark"])]
    if any(codes) or gateway is None:
        sys.exit(f"exit codes of the commands: {codes}")
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def make_archive(home: Path, key: str) -> None:
    """Makes the archive of a key in place of all that earlier runs left.

    A run that is killed leaves no file with an archive's name. Raises OSError or CalledProcessError.
    """
    folder = archive_folder(home)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "conf").mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder) as part:
        made = Path(part, "classes.jsa")
        options = java_options(home, f"-XX:ArchiveClassesAtExit={made}")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_ADDED)}
        environment |= launch_environment(home)
        submit = f"--conf {shlex.quote(f'spark.driver.defaultJavaOptions={options}')} pyspark-shell"
        subprocess.run(
            [sys.executable, "-c", "from tools import class_archive; class_archive.load_classes()"],
            cwd=ROOT,
            env=environment | {"PYSPARK_SUBMIT_ARGS": submit},
            capture_output=True,
            text=True,
            check=True,
        )
        if not made.exists():
            raise FileNotFoundError("Java wrote none")
        with made.open("rb") as content:
            os.fsync(content.fileno())
        made.replace(folder / archive_name(key, made.stat().st_size))


def main() -> None:
    home = Path(pyspark.__file__).parent.resolve()
    try:
        key = archive_key(home, java_command() or "java")
        if key is None:
            problem = f"{home / 'conf'} holds files that are not the project's"
        else:
            if whole_archive(home, key) is None:
                make_archive(home, key)
            return
    except subprocess.CalledProcessError as error:
        problem = (error.stderr.strip().splitlines() or [str(error)])[-1]
    except OSError as error:
        problem = str(error)
    print(f"setup: sessions start without an archive of Java's classes: {problem}", file=sys.stderr)


if __name__ == "__main__":
    main()

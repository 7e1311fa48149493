"""Prepares the environment's Spark: Delta's jars, the environment's Python, a quiet log.

``make setup`` runs it once with the environment's Python. After that ``.venv/bin/spark-submit`` and
``.venv/bin/pyspark`` work without settings and without activating the environment:

* Delta's jars, resolved by Spark's own package resolution, are in ``pyspark/jars``. The jars that pyspark
  ships are not replaced.
* ``find-spark-home`` finds this pyspark by ``.venv/bin/spark-distribution``, whichever ``python3`` is on
  PATH.
* ``pyspark/conf`` names this environment's Python for driver and workers, has every session open Delta's
  tables, and has the project's log4j settings.
* Python workers import ``pyspark.zip``, which ships sources alone: the compiled modules lie next to them, so
  that a process that Spark starts does not compile all that it imports, for 0.4 s.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from py_compile import PycInvalidationMode
from zipfile import ZipFile

import pyspark

from kafka_log_lake.pipelines.engine.session import ANYWHERE, DELTA_PACKAGE

# jcl-over-slf4j, which Spark ships, holds the same classes.
REPLACED = {"commons-logging"}

SPARK_ENV = """\
if [ -z "${{PYSPARK_PYTHON:-}}" ]; then
  PYSPARK_PYTHON="$(cd -P "$(dirname "${{BASH_SOURCE[0]}}")" && cd -P "{bin_folder}" && pwd)/python"
fi
# find-spark-home has set python3, which may be any
if [ "${{PYSPARK_DRIVER_PYTHON:-python3}}" = python3 ]; then
  PYSPARK_DRIVER_PYTHON=$PYSPARK_PYTHON
fi
SPARK_SUBMIT_OPTS="{delta} ${{SPARK_SUBMIT_OPTS:-}}"
"""
# Without them a session of Spark's own, such as that of its shell, refuses Delta's tables
DELTA = " ".join(
    f"-D{name}={ANYWHERE[name]}" for name in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
)

RESOLVE = """
import sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
         .config("spark.jars.packages", sys.argv[1]).getOrCreate())
print("\\n".join(spark.conf.get("spark.jars").split(",")))
spark.stop()
"""


def artifact(jar_name: str) -> str:
    """Returns ``roaringbitmap`` for ``roaringbitmap-1.2.jar``, from which Ivy's ``group_`` was removed."""
    return re.sub(r"-\d[\w.\-]*\.jar$", "", jar_name)


def resolve(package: str, home: Path) -> list[Path]:
    """Returns the jars of a package and of its dependencies; Ivy fetches missing ones into its cache."""
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", RESOLVE, package],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        sys.exit(f"{done.stderr}\nsetup: Spark could not resolve {package}: is there a network?")
    return [Path(line.removeprefix("file:")) for line in done.stdout.split()]


def install_jars(jars: list[Path], target: Path) -> None:
    """Copies the jars that pyspark does not ship. The first, Delta's own, comes last: it marks completion."""
    there = {artifact(jar.name) for jar in target.glob("*.jar")} | REPLACED
    for jar in reversed(jars):
        name = jar.name.split("_", 1)[1]
        if artifact(name) in there:
            continue
        part = target / f"{name}.part"
        shutil.copyfile(jar, part)
        part.replace(target / name)


def compile_modules(archive: Path) -> None:
    """Adds the compiled modules to an archive of sources that has none."""
    with ZipFile(archive) as source:
        if any(name.endswith(".pyc") for name in source.namelist()):
            return
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            content, made = Path(folder, "content"), Path(folder, "made")
            source.extractall(content)
            # their paths are the sources', which tracebacks show
            unchecked = PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(
                content, ddir=str(archive), quiet=2, legacy=True, invalidation_mode=unchecked
            )
            os.replace(shutil.make_archive(str(made), "zip", content), archive)


def write_conf(home: Path, project: Path) -> None:
    """Writes ``pyspark/conf``, which Spark's scripts read by themselves."""
    conf = home / "conf"
    conf.mkdir(exist_ok=True)
    bin_folder = os.path.relpath(Path(sys.executable).parent, conf)
    (conf / "spark-env.sh").write_text(SPARK_ENV.format(bin_folder=bin_folder, delta=DELTA))
    shutil.copyfile(project / "conf" / "log4j2.properties", conf / "log4j2.properties")


def link_distribution(home: Path) -> None:
    """Links ``spark-distribution``, next to ``find_spark_home.py``, where that script looks first."""
    link = Path(sys.executable).parent / "spark-distribution"
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(home, link.parent))


def main() -> None:
    home = Path(pyspark.__file__).parent
    delta_name = ":".join(DELTA_PACKAGE.split(":")[1:]).replace(":", "-") + ".jar"
    if not (home / "jars" / delta_name).exists():
        install_jars(resolve(DELTA_PACKAGE, home), home / "jars")
    compile_modules(home / "python" / "lib" / "pyspark.zip")
    write_conf(home, Path(__file__).resolve().parent.parent)
    link_distribution(home)


if __name__ == "__main__":
    main()

"""Makes the environment's own Spark ready for bare use: Delta's jars, the environment's Python, a quiet log.

Run once by ``make setup`` with the environment's Python. Afterwards ``.venv/bin/spark-submit`` works with
nothing set and nothing activated:

* Delta's jars, resolved by Spark's own package resolution, lie in ``pyspark/jars``. What pyspark ships
  itself stays as it is.
* ``.venv/bin/spark-distribution`` leads ``find-spark-home`` to this pyspark whatever ``python3`` is on PATH.
* ``pyspark/conf`` names this environment's Python for driver and workers, and the project's log4j settings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from pipelines.command.session import DELTA_PACKAGE

# jcl-over-slf4j, which Spark ships, holds the same classes.
REPLACED = {"commons-logging"}

SPARK_ENV = """\
if [ -z "${{PYSPARK_PYTHON:-}}" ]; then
  PYSPARK_PYTHON="$(cd -P "$(dirname "${{BASH_SOURCE[0]}}")" && cd -P "{bin_folder}" && pwd)/python"
fi
"""

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
    """``roaringbitmap-1.2.jar`` -> ``roaringbitmap``; Ivy's ``group_`` in front, if any, is the caller's."""
    return re.sub(r"-\d[\w.\-]*\.jar$", "", jar_name)


def resolve(package: str, home: Path) -> list[Path]:
    """Jars of the package and all it needs, fetched into Ivy's cache where they are not there."""
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
        sys.exit(f"{done.stderr}\nsetup: Spark could not resolve {package}: is the network there?")
    return [Path(line.removeprefix("file:")) for line in done.stdout.split()]


def install_jars(jars: list[Path], target: Path) -> None:
    """Copies those whose artifact pyspark does not ship; the first, which the others are for, last."""
    there = {artifact(jar.name) for jar in target.glob("*.jar")} | REPLACED
    for jar in reversed(jars):
        name = jar.name.split("_", 1)[1]
        if artifact(name) in there:
            continue
        part = target / f"{name}.part"
        shutil.copyfile(jar, part)
        part.replace(target / name)


def write_conf(home: Path, project: Path) -> None:
    """``pyspark/conf``: settings that Spark's scripts read by themselves."""
    conf = home / "conf"
    conf.mkdir(exist_ok=True)
    bin_folder = os.path.relpath(Path(sys.executable).parent, conf)
    (conf / "spark-env.sh").write_text(SPARK_ENV.format(bin_folder=bin_folder))
    shutil.copyfile(project / "conf" / "log4j2.properties", conf / "log4j2.properties")


def link_distribution(home: Path) -> None:
    """The place beside ``find_spark_home.py`` where that script looks first."""
    link = Path(sys.executable).parent / "spark-distribution"
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(home, link.parent))


def main() -> None:
    home = Path(pyspark.__file__).parent
    delta_name = ":".join(DELTA_PACKAGE.split(":")[1:]).replace(":", "-") + ".jar"
    if not (home / "jars" / delta_name).exists():
        install_jars(resolve(DELTA_PACKAGE, home), home / "jars")
    write_conf(home, Path(__file__).resolve().parent.parent)
    link_distribution(home)


if __name__ == "__main__":
    main()

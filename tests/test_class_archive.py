"""Java's archive of Spark's classes: which sessions use it, and that it never shows where they can't."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from pipelines.command.class_archive import (
    archive_folder,
    archive_key,
    archive_name,
    find_archive,
    java_options,
)
from pipelines.command.java import java_command
from tests.support import corpus
from tests.support.java import QUICK_ENVIRONMENT
from tests.test_session import fake_java

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(pyspark.__file__).parent.resolve()
FROM_ARCHIVE = "org.apache.spark.SparkContext source: shared objects file (top)"


def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as a user without settings runs it, but for Java's compiler."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "JAVA_TOOL_"))}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=kept | QUICK_ENVIRONMENT | variables, capture_output=True, text=True
    )


def loaded(folder: Path) -> str:
    """What the JVMs of a command have logged of their classes."""
    return "".join(log.read_text() for log in folder.glob("classes-*.log"))


def test_a_command_loads_spark_from_the_archive(lake: str, tmp_path: Path) -> None:
    """JAVA_TOOL_OPTIONS of the user work beside it."""
    log = f"-Xlog:class+load:file={tmp_path}/classes-%p.log"
    command = ("-m", "pipelines.decode_batches", "--source", corpus.ROOT / "v2-codec-zstd", "--lake", lake)
    done = run(*command, "--read", "binary", JAVA_TOOL_OPTIONS=log)
    assert done.returncode == 0, done.stderr
    assert FROM_ARCHIVE in loaded(tmp_path)


TELL = """
from pipelines.command.session import session
from pipelines.command.settings import Settings
with session(Settings()) as spark:
    print(spark.conf.get("spark.user.setting", "none"), spark._jvm.System.getProperty("user.option"))
"""


def test_java_options_of_the_user_are_added(tmp_path: Path) -> None:
    options = f"-Duser.option=kept -Xlog:class+load:file={tmp_path}/classes-%p.log"
    done = run(
        "-c", TELL, PYSPARK_SUBMIT_ARGS=f'--conf "spark.driver.extraJavaOptions={options}" pyspark-shell'
    )
    assert (done.stdout, done.stderr) == ("none kept\n", "")
    assert FROM_ARCHIVE in loaded(tmp_path)


def test_a_configuration_folder_of_the_user_is_read(tmp_path: Path) -> None:
    options = f"-Duser.option=kept -Xlog:class+load:file={tmp_path}/classes-%p.log"
    defaults = f"spark.user.setting found\nspark.driver.extraJavaOptions {options}\n"
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    done = run("-c", TELL, SPARK_CONF_DIR=str(tmp_path))
    assert done.stdout == "found kept\n", done.stderr
    assert loaded(tmp_path)
    assert FROM_ARCHIVE not in loaded(tmp_path)


def linked_spark(folder: Path) -> Path:
    """A pyspark of links to the environment's, with a configuration and archives of its own."""
    home = folder / "a site" / "pyspark"
    home.mkdir(parents=True)
    for child in HOME.iterdir():
        if child.name not in ("conf", "class-archive"):
            (home / child.name).symlink_to(child)
    (home / "conf").mkdir()
    for name in ("spark-env.sh", "log4j2.properties"):
        (home / "conf" / name).write_bytes((HOME / "conf" / name).read_bytes())
    (archive_folder(home) / "conf").mkdir(parents=True)
    return home


def test_an_archive_of_another_class_path_does_not_show(tmp_path: Path) -> None:
    home = linked_spark(tmp_path)
    (real,) = archive_folder(HOME).glob("*.jsa")
    archive = archive_folder(home) / archive_name(str(archive_key(home, java())), real.stat().st_size)
    archive.symlink_to(real)
    assert find_archive(home, java()) == archive
    done = run("-c", TELL, PYTHONPATH=os.pathsep.join([str(home.parent), str(ROOT)]))
    assert (done.returncode, done.stdout, done.stderr) == (0, "none None\n", "")


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_java_starts_as_ever_with_an_archive_of_zeros(size: int, tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(bytes(size))
    options = shlex.split(java_options(HOME, f"-XX:SharedArchiveFile={archive}"))
    started = [
        subprocess.run([java(), *given, "-version"], capture_output=True, text=True, check=True)
        for given in ([], options)
    ]
    assert started[0].stderr.replace(", sharing", "") == started[1].stderr
    assert started[0].stdout == started[1].stdout == ""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Spark with two jars and an archive for them."""
    home = tmp_path / "pyspark"
    for name in ("jars/a.jar", "jars/b.jar", "conf/spark-env.sh", "conf/log4j2.properties"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    archive_folder(home).mkdir()
    (archive_folder(home) / archive_name(str(archive_key(home, java())), 4)).write_text("jsa!")
    return home


def java() -> str:
    return java_command() or "java"


def test_an_archive_is_found(home: Path) -> None:
    archive = find_archive(home, java())
    assert archive is not None
    assert archive.read_text() == "jsa!"


@pytest.mark.parametrize("content", ["js", "jsa!!"])
def test_an_archive_of_another_size_is_not_used(home: Path, content: str) -> None:
    """Java maps it without a look at its end, and is killed by a signal later."""
    next(archive_folder(home).glob("*.jsa")).write_text(content)
    assert find_archive(home, java()) is None


@pytest.mark.parametrize(
    "changed",
    ["jars/b.jar", "jars/c.jar", "conf/spark-env.sh", "conf/spark-defaults.conf", "conf/hive-site.xml"],
)
def test_an_archive_is_not_used_after_a_change(home: Path, changed: str) -> None:
    (home / changed).write_text("changed")
    assert find_archive(home, java()) is None


def test_an_archive_is_not_used_with_another_java(home: Path, tmp_path: Path) -> None:
    fake_java(tmp_path, "echo 'openjdk version \"17.0.99\" 2030-01-01' >&2")
    assert find_archive(home, str(tmp_path / "bin" / "java")) is None


def test_java_tool_options_make_no_other_java(home: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pipelines.command.class_archive import find_archive\n"
        "print(find_archive(Path(sys.argv[1]), sys.argv[2]))"
    )
    done = run("-c", code, home, java(), JAVA_TOOL_OPTIONS="-Duser.option=kept")
    assert done.stdout == f"{find_archive(home, java())}\n"


def test_an_archive_is_not_used_where_it_was_moved_to(home: Path) -> None:
    moved = home.rename(home.with_name("moved"))
    assert find_archive(moved, java()) is None

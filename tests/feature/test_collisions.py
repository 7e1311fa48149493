"""A user's packages have the names of our folders: neither side takes the other's, here or on workers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "tests" / "data" / "corpus" / "v2-codec-none"
NAMES = ("pipelines", "udfs", "conf", "tools", "tests", "engine", "lake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data engineer's repository with packages of these names, each with a function ``whose``."""
    for name in NAMES:
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text("def whose():\n    return 'the user'\n")
    return tmp_path


def python(folder: Path, code: str, *arguments: str) -> str:
    """What a script of the user's prints, in that folder and with this environment's packages."""
    script = folder / "job.py"
    script.write_text(code)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *arguments, str(script)], cwd=folder, env=kept, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_worker_processes(folder: Path) -> None:
    code = f"""
import pipelines, udfs, kafka_log_lake
from kafka_log_lake import Settings, connect, decode, find, scan
assert pipelines.whose() == udfs.whose() == "the user"
if __name__ == "__main__":
    print(len(list(find({str(LOGS)!r}, offset="0"))))
    print(scan({str(LOGS)!r}).logs[0].records)
    decode(None, Settings(source={str(LOGS)!r}, lake="lake-here"))
    print(connect("lake-here").sql("SELECT count(*) > 0 FROM records").fetchall()[0][0])
    assert kafka_log_lake.__file__.endswith("kafka_log_lake/__init__.py")
"""
    found = python(folder, code).split()
    assert int(found[0]) > 0
    assert int(found[1]) > 0
    assert found[2] == "True"


def test_the_commands_in_such_a_folder(folder: Path) -> None:
    for words in (["scan", str(LOGS)], ["decode", "--source", str(LOGS), "--lake", "made"]):
        command = [sys.executable, "-m", "kafka_log_lake", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("way", ["folder", "py_files"])
def test_in_spark(folder: Path, way: str) -> None:
    """Executors run the user's function and ours: his package lies beside the script, or comes in a zip."""
    with zipfile.ZipFile(folder / "his.zip", "w") as made:
        made.write(folder / "pipelines" / "__init__.py", "pipelines/__init__.py")
    if way == "py_files":
        shutil.rmtree(folder / "pipelines")
    code = f"""
from pyspark.sql import functions as F
from kafka_log_lake import decode_segments, get_session, register
spark = get_session()
spark.sparkContext.addPyFile("his.zip")
import pipelines

@F.udf("string")
def whose(x):
    import pipelines
    return pipelines.whose()

rows = decode_segments(spark, {str(LOGS)!r})
on_workers = rows.select(whose("offset").alias("w")).distinct().collect()[0]["w"]
print(rows.count() > 0, on_workers, pipelines.whose())
print(spark.read.format("kafka_log").load({str(LOGS)!r}).count() == rows.count())
register(spark)
print(spark.sql("SELECT crc32c(CAST('a' AS BINARY)) AS c").collect()[0]["c"])
"""
    first, second, third = python(folder, code).splitlines()[-3:]
    assert first == "True the user the user"
    assert second == "True"
    assert int(third) == 0xC1D04330


def test_in_a_checkout_the_old_names_lead_to_the_same(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + (
        "from udfs import decode_segment\nfrom pipelines import register\nimport kafka_log_lake\n"
        "print(decode_segment is kafka_log_lake.decode_segment, register is kafka_log_lake.register)\n"
    )
    assert python(tmp_path, code).split() == ["True", "True"]


def test_importing_changes_nothing_in_the_process(tmp_path: Path) -> None:
    code = """
import gc, signal, sys, threading
before = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), sys.excepthook, gc.isenabled())
import kafka_log_lake
from kafka_log_lake import Settings, decode_segment, find, scan, connect
import kafka_log_lake.__main__
after = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), sys.excepthook, gc.isenabled())
print(before == after, threading.active_count())
"""
    assert python(tmp_path, code).split() == ["True", "1"]

"""A user's packages have the names of our folders: neither side takes the other's, here or on workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.collisions import LOGS, ROOT, python, write_packages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_packages(tmp_path)
    return tmp_path


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

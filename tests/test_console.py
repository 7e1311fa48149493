"""``kafka-log-lake``: the commands of ``python -m pipelines`` under one name, with the same options."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kafka_log_lake
from kafka_log_lake import __main__ as console
from pipelines.command.commands import COMMANDS, DECODE, INGEST, Command
from pipelines.command.settings import option

ROOT = Path(__file__).parent.parent


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", [DECODE, INGEST], ids=lambda command: command.name)
def test_options_mean_the_same_by_either_name(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--source", "it's a", "--source=b", "--one-copy", "--no-json", "--slice-bytes", "1MiB"]
    given += ["--topics", "-x", "--print-config"]
    given[given.index("-x") - 1 : given.index("-x") + 1] = ["--topics=-x"]
    assert console.main([command.name, *given]) == 0
    ours = capsys.readouterr().out
    assert "it's a" in ours
    assert ours == run("-m", f"pipelines.{command.module}", *given).stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_names_every_option(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main([command.name, "--help"]) == 0
    shown = capsys.readouterr().out
    for name in command.settings:
        assert option(name)[:18] in shown  # a narrow terminal cuts the longest
    assert command.help.split()[0] in shown


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["--version"]) == 0
    assert re.fullmatch(r"kafka-log-lake \d[\w.]*\n", capsys.readouterr().out)


def test_help_names_every_command() -> None:
    shown = run("-m", "kafka_log_lake", "--help").stdout
    assert all(f" {command.name} " in shown for command in COMMANDS)
    assert "--install-completion" in shown


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["decod"], "No such command 'decod'"),
        (["decode", "--lak", "x"], "No such option: --lak"),
        (["decode", "--lake"], "'--lake' requires an argument; see --help"),
        (["decode", "--slice-bytes", "-1"], "--slice-bytes must be a number of bytes above 0"),
        (["query", "--lake", "x"], "Missing argument 'STATEMENT'; see --help"),
        (["query", "--lake", "x", "--format", "xml", "SELECT 1"], "argument --format: invalid choice: 'xml'"),
        (["scan"], "Missing argument 'PATH'"),
    ],
)
def test_wrong_arguments_are_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console.main(argv) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert message in told.err
    assert told.err.count("\n") == 1


def test_what_users_import_is_there() -> None:
    for name in kafka_log_lake.__all__:
        assert getattr(kafka_log_lake, name) is not None
    assert kafka_log_lake.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kafka_log_lake.nothing  # noqa: B018


def test_importing_it_loads_nothing() -> None:
    code = "import sys, kafka_log_lake; assert not {'numba', 'pyspark', 'pyarrow'} & set(sys.modules)"
    assert run("-c", code).returncode == 0


def test_without_spark_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from kafka_log_lake.__main__ import main; sys.exit(main(['decode', '--source', 'x', '--lake', 'y']))"
    )
    done = run("-c", code)
    assert done.returncode == 2
    assert done.stderr.startswith("error: decode needs Spark: install the wheel with its extra, pip install ")
    assert done.stderr.endswith(".whl[spark]'\n")


@pytest.mark.parametrize("module", ["pipelines.decode_batches", "pipelines.query", "kafka_log_lake"])
def test_a_python_without_the_packages_says_so_in_one_line(module: str) -> None:
    command = [sys.executable, "-S", "-m", module, "--help"]  # -S: without installed packages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(
        "error: this Python does not have the packages of kafka-log-lake: run `make setup`"
    )

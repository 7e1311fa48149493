"""``kafka-log-lake``: the commands of ``python -m pipelines`` under one name, with the same options."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from databricks.bundles.jobs import Job

import kafka_log_lake
from kafka_log_lake.pipelines.cli import options
from kafka_log_lake.pipelines.cli import program as console
from kafka_log_lake.pipelines.cli.commands import COMMANDS
from kafka_log_lake.pipelines.cli.commands.decode import DECODE
from kafka_log_lake.pipelines.cli.commands.ingest import INGEST
from kafka_log_lake.pipelines.cli.declaration import Command
from kafka_log_lake.pipelines.cli.setting_names import RARE
from kafka_log_lake.pipelines.cli.values import option
from tests.support.drawn import first

ROOT = Path(__file__).parents[3]
SEGMENT = str(ROOT / "tests/data/corpus/v2-headers/headers.v1-0/00000000000000000000.log")


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
    with pytest.raises(SystemExit):
        console.main([command.name, "--help-all" if RARE & {*command.settings} else "--help"])
    shown = capsys.readouterr().out
    for name in command.settings:
        assert option(name) in shown
    assert command.help.split()[0] in shown


@pytest.mark.parametrize("command", first(5, COMMANDS), ids=lambda command: command.name)
def test_each_command_runs_as_a_file(command: Command, tmp_path: Path) -> None:
    """As spark-submit runs it: from any folder, with that of the file first on sys.path."""
    place = ROOT / "pipelines" / command.module
    job = str(place / "__main__.py" if place.is_dir() else place.with_suffix(".py"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, job, "--help"], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 0
    assert done.stdout.decode().lower().startswith("usage: kafka-log-lake")


@pytest.mark.parametrize("name", ["", *(command.name for command in COMMANDS)])
def test_help_fits_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(options, "invocation", lambda: "kafka-log-lake")  # whatever folder it is in
    with contextlib.suppress(SystemExit):
        console.main([*filter(None, [name]), "--help"])
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", ["find", "inspect", "dump", "scan"])
def test_help_of_what_needs_no_lake_fits_a_screen(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        console.main([name, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    examples = lines[lines.index("Examples:") + 1 :]
    assert [f" {name} " in line for line in examples[:4]] == [True, True, True, False]


def test_the_first_screen_leaves_out_what_is_for_tuning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        console.main(["ingest", "--help"])
    shown = capsys.readouterr().out
    assert not [name for name in RARE if f"{option(name)} " in shown]
    assert "Which segments, and how their bytes are read:" in shown
    assert "; created if missing" in " ".join(shown.split())
    assert "--help-all" in shown
    with pytest.raises(SystemExit):
        console.main(["query", "--help"])
    assert "created if missing" not in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["--help"], ["help"]])
def test_alone_it_prints_help(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(argv) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("usage: kafka-log-lake COMMAND [OPTIONS]")
    assert shown.err == ""


def test_help_takes_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        console.main(["help", "scan"])
    assert capsys.readouterr().out.startswith("Usage: kafka-log-lake scan")


def test_a_command_is_known_by_the_name_of_its_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["decode_batches", "--topics", "x", "--print-config"]) == 0
    assert "topics: x" in capsys.readouterr().out


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    def completed(line: str) -> set[str]:
        answer = tmp_path / "answer"
        requested = {
            "_ARGCOMPLETE": "1",
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
            "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        }
        environment = {**os.environ, **requested, "_ARGCOMPLETE_IFS": "\n"}
        subprocess.run([sys.executable, "-m", "kafka_log_lake"], cwd=ROOT, env=environment, timeout=60)
        return {word.strip() for word in answer.read_text().splitlines()}

    assert {"decode", "scan"} <= completed("kafka-log-lake ")
    assert completed("kafka-log-lake decode --redec") == {"--redecode"}


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["--version"]) == 0
    assert re.fullmatch(r"kafka-log-lake \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_help_names_every_command() -> None:
    shown = run("-m", "kafka_log_lake", "--help").stdout
    assert all(f" {command.name} " in shown for command in COMMANDS)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["decod"], "no such command: decod; did you mean decode?"),
        (["decode", "--lak", "x"], "unknown argument '--lak'; did you mean --lake?"),
        (["export", "--topic", "-a"], "argument --topic: expected one argument, after = if it begins with -"),
        (["decode", "--slice-bytes", "-1"], "--slice-bytes must be a number of bytes above 0"),
        (["query", "--lake", "x"], "the following arguments are required: STATEMENT; see --help"),
        (["query", "--lake", "x", "--format", "xml", "SELECT 1"], "argument --format: invalid choice: 'xml'"),
        (["decode", "logs", "--lake", "x"], "unknown argument 'logs': --source goes before its PATH"),
        (["query", "x", "SELECT 1"], "unknown argument 'SELECT 1': --lake goes before its PATH"),
        (
            ["query", "--lake", "x", "SELECT", "README.md", "FROM", "t"],
            "goes on with 'README.md': put it in quotes",
        ),
        (["scan"], "PATH is missing: name a log directory"),
        (["scan", ""], "PATH is empty"),
        (["quality-report", "--lake", "x", "--output", ""], "--output is empty"),
        (["recover", "--source", "x", "--report", ""], "--report is empty"),
        (["find", SEGMENT, "--schemas", "x"], "are for --typed and --where-json PATH=VALUE: add one"),
        (["find", "--lake", "x", "--include-swap"], "--include-swap: only for segments, not for --lake"),
        (["find", SEGMENT, "--partition", "-1"], "--partition must be a whole number from 0 to 2147483647"),
        (["find", SEGMENT, "--since", "2026-02-01", "--until", "2026-02-01"], "--until must be later than"),
        (["decode", "--source", "x", "--from-raw"], "--source is for files, --from-raw for what was landed"),
        (["decode", "--config", ""], "--config is empty"),
        (["decode", "--config", "/dev/zero"], "--config: cannot read /dev/zero: it is a device"),
        (["decode", "--interval", "x"], "--interval must be a number of 0 or above, such as 0.5, not 'x'"),
        (["find", "x", "--not", "--limit", "3"], "--not goes before a condition of find, as in --not --key"),
        (["find", "x", "--not", "--topics", "t"], "--not goes before a condition of find"),
        (["find", "x", "--not", "--committed"], "--not goes before a condition of find"),
        (
            ["inspect", SEGMENT, "--html", f"{SEGMENT}/page.html"],
            f"--html {SEGMENT}/page.html can't be written: Not a directory",
        ),
    ],
)
def test_wrong_arguments_are_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console.main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_the_entry_point_raises_where_it_failed_and_returns_where_it_did_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wheel task of Databricks calls it as a function: it succeeds unless that raises."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    module, _, name = project["project"]["scripts"]["kafka-log-lake"].partition(":")
    call = getattr(import_module(module), name)
    monkeypatch.setattr(sys, "argv", ["kafka-log-lake", "decode", "--lake"])
    with pytest.raises(SystemExit) as raised:
        call()
    assert raised.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr(sys, "argv", ["kafka-log-lake", "--version"])
    call()


def test_the_jobs_for_databricks_are_what_its_command_line_takes() -> None:
    bundle = yaml.safe_load((ROOT / "databricks" / "databricks.yml").read_text())
    assert set(bundle) == {"bundle", "variables", "artifacts", "targets"}
    for target in bundle["targets"].values():
        job = target["resources"]["jobs"]["kafka_log"]
        tasks: Any = Job.from_dict(job).tasks
        assert [task.task_key for task in tasks] == ["ingest", "decode", "quality"]
        with pytest.raises(ValueError, match="Unexpected field"):
            Job.from_dict(cast("Any", {**job, "max_concurent_runs": 1}))


def test_what_users_import_is_there() -> None:
    for name in kafka_log_lake.__all__:
        assert getattr(kafka_log_lake, name) is not None
    assert kafka_log_lake.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kafka_log_lake.nothing  # noqa: B018


def test_importing_it_loads_nothing() -> None:
    code = "import sys, kafka_log_lake; assert not {'numba', 'pyspark', 'pyarrow'} & set(sys.modules)"
    assert run("-c", code).returncode == 0


@pytest.mark.parametrize(
    "command",
    [
        ("pipelines.find", "{logs}", "--key", "x"),
        ("kafka_log_lake", "find", "{logs}", "--key", "x"),
        ("pipelines.decode_batches", "--source", "{logs}", "--lake", "{lake}"),
        ("pipelines.query", "--lake", "{lake}", "SELECT * FROM crc_report"),
        ("pipelines.scan", "{logs}"),
    ],
    ids=lambda command: command[0],
)
def test_a_program_does_not_wait_for_pandas(lake: str, command: tuple[str, ...]) -> None:
    logs = str(ROOT / "tests/data/corpus/v2-headers")
    words = [word.format(logs=logs, lake=lake) for word in command]
    done = run("-X", "importtime", "-m", *words)
    assert done.returncode in (0, 4)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pyarrow.lib" in imported
    assert "pandas.core" not in imported
    assert "leaked" not in done.stderr  # of modules that the collector did not reach


def test_a_key_is_found_without_what_only_other_searches_need() -> None:
    """Arrow's functions and Numba take longer to load than a small log takes to search."""
    logs = str(ROOT / "tests/data/corpus/v2-headers")
    done = run("-X", "importtime", "-m", "pipelines.find", logs, "--key", "key-o-13", "--limit", "1")
    assert done.returncode == 0, done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not imported & {"pyarrow.compute", "numba", "duckdb"}


def test_the_version_is_printed_without_what_commands_need() -> None:
    """Completion and help wait for each module that the declaration of any command loads."""
    done = run("-X", "importtime", "-m", "kafka_log_lake", "--version")
    assert done.stdout.startswith("kafka-log-lake ")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not imported & {"json", "tempfile", "urllib.parse", "importlib.resources"}


def test_a_program_that_imports_it_keeps_its_own_settings(tmp_path: Path) -> None:
    """``python -m theirs`` looks like a command of ours while its package is imported."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__init__.py").write_text("import kafka_log_lake\n")
    code = "import gc, os, sys\nprint(gc.isenabled(), sys.excepthook is sys.__excepthook__, *os.environ)\n"
    (tmp_path / "theirs" / "program.py").write_text(code)
    environment = {name: one for name, one in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), str(ROOT)))
    command = [sys.executable, "-m", "theirs.program"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["True", "True"]
    assert "OPENBLAS_NUM_THREADS" not in done.stdout


def test_without_spark_one_line_says_what_to_install_and_help_is_there() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from kafka_log_lake.pipelines.cli.program import main\n"
        "try: main(['decode', '--help'])\n"
        "except SystemExit: main(['decode', '--source', 'x', '--lake', 'y'])"
    )
    done = run("-c", code)
    assert done.stdout.startswith("Usage: kafka-log-lake decode")
    assert done.stderr == (
        "error: decode needs pyspark: in a clone, pip install '.[spark]', "
        "or uvx --from '.[spark]' kafka-log-lake\n"
    )


@pytest.mark.parametrize("module", ["pipelines.decode_batches", "pipelines.query", "kafka_log_lake"])
def test_a_python_without_the_packages_says_so_in_one_line(module: str) -> None:
    command = [sys.executable, "-S", "-m", module, "--help"]  # -S: without installed packages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(
        "error: this Python does not have the packages of kafka-log-lake: run `make setup`"
    )


@pytest.mark.parametrize("first", ["typing", "argparse"])  # modules that Python does not load itself
@pytest.mark.parametrize("name", ["pipelines.scan", "pipelines.decode_batches", "kafka-log-lake"])
def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_word(
    tmp_path: Path, name: str, first: str
) -> None:
    interrupts = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / f"{first}.py").write_text(interrupts)
    called = ["-m", name]
    if name == "kafka-log-lake":
        (tmp_path / name).write_text("from kafka_log_lake.__main__ import script\nscript()\n")
        called = [str(tmp_path / name)]
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = subprocess.run(
        [sys.executable, *called],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")

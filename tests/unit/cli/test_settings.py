"""Settings from the command line and YAML: what is taken, and the one line where it is not."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml

from kafka_log_lake.pipelines.cli.commands.decode import DECODE
from kafka_log_lake.pipelines.cli.commands.dump import DUMP
from kafka_log_lake.pipelines.cli.commands.format_report import FORMAT_REPORT
from kafka_log_lake.pipelines.cli.commands.scan import SCAN
from kafka_log_lake.pipelines.cli.declaration import Command
from kafka_log_lake.pipelines.cli.errors import DamageFound, RunFailed, UserError
from kafka_log_lake.pipelines.cli.options import exit_code_of, parse_arguments, read_yaml, to_yaml
from kafka_log_lake.pipelines.cli.setting_names import FIELDS, SETTING_NAMES, make_settings
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.values import MIB, byte_text
from kafka_log_lake.pipelines.engine.run_command import run_command


def parse(*argv: str, command: Command = DECODE) -> Settings:
    parsed = parse_arguments(command, argv)
    assert parsed is not None
    return parsed[0]


def test_defaults_are_those_of_the_contract() -> None:
    settings = parse()
    assert settings.max_batch_uncompressed == 256 * MIB
    assert settings.quarantine_content_bytes == MIB
    assert (settings.read, settings.sink) == ("auto", "arrow")


def test_every_setting_has_its_option() -> None:
    values = {
        "driver_memory": "3g",
        "since": "2026-01-31",
        "until": "2026-01-31",
        "offsets": "7:",
        "currency": "EUR",
        "tier_key": "7=/7.pem",
        "table_properties": "delta.appendOnly=true",
    }
    more = {
        "topic": ["--partition", "7"],
        "partition": ["--topic", "7"],
        "clustered": ["--sink", "catalog"],
        "table_properties": ["--sink", "catalog"],
    }
    for field in FIELDS.values():
        option = "--" + field.name.replace("_", "-")
        value = [] if field.type in ("bool", "bool | None") else [values.get(field.name, "7")]
        if field.name in (
            "read",
            "sink",
            "mode",
            "json_values",
            "value_columns",
            "parquet_compression",
            "codec_levels",
        ):
            value = [str(field.default)]
        value += more.get(field.name, [])
        command = next(one for one in (DECODE, FORMAT_REPORT, DUMP) if field.name in one.settings)
        assert getattr(parse(option, *value, command=command), field.name) not in (None, False, ())


def test_options_of_another_command_are_refused_by_the_type() -> None:
    with pytest.raises(TypeError, match="price_per_gb_month"):
        Settings(price_per_gb_month=0.1)  # type: ignore[call-arg]
    with pytest.raises(UserError, match="unknown setting 'price_per_gb_month'"):
        make_settings({"price_per_gb_month": 0.1})


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    config = tmp_path / "decode.yml"
    config.write_text("source: [a, b]\nlake: there\none_copy: true\nslice_bytes: 1MiB\n")
    settings = parse("--config", str(config), "--lake", "here", "--no-one-copy")
    assert settings == Settings(source=("a", "b"), lake="here", slice_bytes=MIB)


def test_printed_settings_give_the_same_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    argv = ["--source", "a: b", "--source", "ü", "--topics", "x|y", "--cores", "3", "--fail-on-damage"]
    argv += ["--since", "2026-01-31", "--offsets", "10:20"]  # 620 to YAML, without quotes
    assert parse_arguments(DECODE, [*argv, "--print-config"]) is None
    config = tmp_path / "printed.yml"
    config.write_text(capsys.readouterr().out)
    assert parse("--config", str(config)) == parse(*argv)


def test_sizes_are_shown_as_a_person_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_arguments(DECODE, ["--slice-bytes", "65536000", "--print-config"]) is None
    printed = capsys.readouterr().out
    assert "\nslice_bytes: 64000KiB\n" in printed
    assert "\nmax_batch_uncompressed: 256MiB\n" in printed
    with pytest.raises(SystemExit):
        parse("--help-all")
    assert "(default 256MiB)" in " ".join(capsys.readouterr().out.split())
    assert [byte_text(size) for size in (1, 1000, 1024, 3 << 30)] == ["1", "1000", "1KiB", "3GiB"]


def test_shipped_configuration_is_all_defaults() -> None:
    assert make_settings(read_yaml("conf/decode.yml")) == Settings()


def test_yaml_of_settings_names_each_once() -> None:
    assert tuple(yaml.safe_load(to_yaml(Settings()))) == SETTING_NAMES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs: 1\ntopics: a\njobs: 2\n", "'jobs' is there twice, again in line 3"),
        ("a: {kind: text, kind: plain}\n", "'kind' is there twice, again in line 1"),
        ("a: 2020-13-45\n", "month must be in 1..12"),
        ("a: !!int x\n", "invalid literal"),
        ("[" * 20_000, "is nested too deep"),
        ("a: !!python/object/apply:os.getpid []\n", "could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_yaml_of_settings_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "settings.yml"
    file.write_text(text)
    with pytest.raises(UserError) as raised:
        read_yaml(str(file))
    assert str(raised.value).startswith(f"--config: {file} is ")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--topcs", "x"], r"unknown argument '--topcs'; did you mean --topics\?"),
        (["stray"], "unknown argument 'stray': --source goes before its PATH; see --help"),
        (["--lake"], "expected one argument, after = if it begins with -; see --help"),
        (["--lake", ""], "--lake must be a non-empty string"),
        (["--topics", "a("], r"--topics must be a regular expression; 'a\(' does not compile: missing \)"),
        (["--slice-bytes", "-1"], "--slice-bytes must be a number of bytes above 0"),
        (["--slice-bytes", "0"], "--slice-bytes must be a number of bytes above 0"),
        (["--slice-bytes", "9" * 20], "--slice-bytes must be a number of bytes above 0 and below 8EiB"),
        (["--cores", "9999"], "--cores must be a whole number from 1 to 1024, not 9999"),
        (["--max-files-per-run", "many"], "--max-files-per-run must be a whole number above 0 and below"),
        (["--read", "fast"], "--read must be one of auto, direct, binary, not 'fast'"),
        (["--driver-memory", "2"], "--driver-memory must be a Java heap size"),
        (["--catalog-schema", "a;b"], "--catalog-schema must be a name"),
        (
            ["--parquet-compression", "lzo"],
            "--parquet-compression must be one of zstd, lz4, snappy, gzip, none",
        ),
        (
            ["--parquet-compression-level", "fast"],
            "--parquet-compression-level must be a whole number, not 'fast'",
        ),
        (
            ["--parquet-compression-level", "23"],
            "--parquet-compression-level of zstd must be -7 to 22, not 23",
        ),
        (
            ["--parquet-compression", "gzip", "--parquet-compression-level", "0"],
            "--parquet-compression-level of gzip must be 1 to 9, not 0",
        ),
        (
            ["--parquet-compression", "lz4", "--parquet-compression-level", "3"],
            "--parquet-compression-level: lz4 has no levels; zstd and gzip have",
        ),
        (["--config", "/nonexistent.yml"], "--config: cannot read /nonexistent.yml: No such file"),
    ],
)
def test_wrong_arguments_are_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse(*argv)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("topcs: x", r"unknown setting 'topcs'; did you mean topics\?"),
        ("topic: x", "--topic and --partition are given together, .*; --topics selects topics$"),
        ("one-copy: true", r"unknown setting 'one-copy'; did you mean one_copy\?"),
        ("zzz: 1", "unknown setting 'zzz'; known settings: source, topic"),
        ("one_copy: 'yes'", "--one-copy must be true or false, not 'yes'"),
        ("topics: 5", "--topics must be a non-empty string"),
        ("cores: 1.5", "--cores must be a whole number from 1 to 1024, not 1.5"),
        ("cores: true", "--cores must be a whole number from 1 to 1024, not True"),
        ("source: {a: b}", "--source must be a string or a list of strings"),
        ("lake: [", "is not valid YAML"),
        ("- a", "is a list: write `name: value` lines, without the dashes"),
        ("a", "must consist of `name: value` lines"),
        ("lake: !!python/object:os.system x", "is not valid YAML"),
    ],
)
def test_wrong_files_are_one_line(tmp_path: Path, content: str, message: str) -> None:
    config = tmp_path / "wrong.yml"
    config.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        parse("--config", str(config))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("5B", 5), ("2k", 2048), ("2KiB", 2048), ("1 MB", MIB), ("3gib", 3072 * MIB)]
)
def test_sizes_may_carry_a_unit(text: str, size: int) -> None:
    assert Settings(slice_bytes=text).slice_bytes == size  # type: ignore[arg-type]  # parsed when made


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("mend it"), 2, "error: mend it\n"),
        (RunFailed("gone"), 1, "error: gone\n"),
        (DamageFound("2 ranges"), 3, "2 ranges\n"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("first\nsecond"), 1, "error: ValueError: first (traceback with KAFKA_LAKE_DEBUG=1)\n"),
        (MemoryError(), 1, "error: MemoryError: no message; the memory is not enough: a lower --cores"),
        (RuntimeError(), 1, "error: RuntimeError: no message"),
        (pa.ArrowInvalid("no bucket"), 1, "error: no bucket (traceback with"),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str) -> None:
    def job() -> None:
        raise error

    assert exit_code_of(job) == code
    reported = capsys.readouterr().err
    assert reported.startswith(line)
    assert reported.count("\n") == 1


@pytest.mark.parametrize(("command", "argv"), [(SCAN, ["x"]), (DECODE, ["--source=x", "--lake=y"])])
def test_ctrl_c_names_the_next_step_where_there_is_one(
    capsys: pytest.CaptureFixture[str], command: Command, argv: list[str]
) -> None:
    def run(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    assert run_command(command, run, argv, with_spark=False) == 130
    next_step = "; start the same command again to continue" if command is DECODE else ""
    assert capsys.readouterr().err == f"interrupted{next_step}\n"


def test_a_workers_error_is_the_end_of_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def job() -> None:
        raise RuntimeError(
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "x.py", line 1, in f\nKeyError: 7\n\n\tat org.apache.spark.Java(X.scala:1)\n'
        )

    assert exit_code_of(job) == 1
    assert capsys.readouterr().err.startswith("error: KeyError: 7 (")


def test_a_full_disk_is_no_bug_and_its_line_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    def job() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert exit_code_of(job) == 1
    assert capsys.readouterr().err == (
        "error: [Errno 28] No space left on device; free some space, then start the same command again\n"
    )


def test_ctrl_c_in_a_query_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def job() -> None:
        raise RuntimeError("Query interrupted")  # as DuckDB does in the main thread

    assert exit_code_of(job) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_mistakes_in_python_are_one_line_with_the_cure() -> None:
    from kafka_log_lake import decode, decode_segments, register

    made: Any = Settings  # mypy would see these mistakes
    settings, session = made(source="logs", lake="lake"), SimpleNamespace(createDataFrame=None)
    job: Any = decode
    lazily: Any = decode_segments
    views: Any = register
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: made(sources="logs"), "unknown setting 'sources'; did you mean source?"),
        (lambda: made("logs", "lake"), "Settings takes values by name"),
        (lambda: job(settings, session), "the session goes first, then the settings"),
        (lambda: job(session, {"source": "logs"}), "not dict as the second"),
        (lambda: lazily("logs", session), "the first argument is Spark's session"),
        (lambda: views("lake", session), "the first argument is Spark's session"),
    ]
    for call, message in calls:
        with pytest.raises(UserError) as raised:
            call()
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)

"""README and docs: what they name exists, what they show runs, and what it prints is what they say."""

from __future__ import annotations

import ast
import dataclasses
import glob
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import pipelines
from kafka_log_lake import __main__ as console
from pipelines import decode_batches, format_report, ingest_raw, quality_report, query, sql_shell
from pipelines.command.commands import COMMANDS as ALL_COMMANDS
from pipelines.command.commands import DECODE, INGEST, QUALITY_REPORT
from pipelines.command.settings import SETTING_NAMES, Settings, option
from pipelines.command.values import byte_count
from pipelines.report.check import CHECKS
from pipelines.scan import scan
from pipelines.source import naming
from pipelines.views.declared import SESSION_VIEWS, VIEWS
from tests.support.answers import answer
from tests.support.corpus import ORACLE
from tests.support.corpus import ROOT as CORPUS
from tools import picture, tables_doc
from udfs.format.report_tables import QUALITY_METRICS
from udfs.format.schema import RECORDS, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, *DOCS]
VIEWS_PAGE = ROOT / "docs" / "views.md"
COMMANDS, OPERATIONS = ROOT / "docs" / "commands.md", ROOT / "docs" / "operations.md"
FORMATS = ROOT / "docs" / "formats_and_cost.md"
QUALITY = ROOT / "docs" / "quality.md"
JOBS = {"decode_batches": decode_batches.main, "ingest_raw": ingest_raw.main}
OTHERS: dict[str, Callable[[list[str]], int]] = {
    "query": query.main,
    "sql_shell": sql_shell.main,
    "quality_report": quality_report.main,
    "format_report": format_report.main,
}


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def cells(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its head."""
    section = page.read_text().split(f"{heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert lines is not None
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in lines[0].splitlines()[2:]]


def bundled_sources() -> tuple[str, ...]:
    """What ``make run`` decodes, as the Makefile names it."""
    shown = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", "run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (command,) = [line for line in shown.stdout.splitlines() if "pipelines.decode_batches" in line]
    words = shlex.split(command)
    return tuple(str(ROOT / words[i + 1]) for i, word in enumerate(words) if word == "--source")


@pytest.fixture(scope="module")
def bundled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lake that ``make run`` writes."""
    lake = str(tmp_path_factory.mktemp("docs") / "lake")
    decode_batches.run(spark, Settings(source=bundled_sources(), lake=lake))
    return lake


# --- What the pages name ---


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_and_modules_named_in_code_exist(page: Path) -> None:
    words = [word for code in re.findall(r"`([^`\n]+)`", page.read_text()) for word in code.split()]
    paths = [
        w for w in words if re.fullmatch(r"(pipelines|udfs|tests|notebooks|docs|conf|tools)/[\w./*-]*", w)
    ]
    assert [path for path in paths if not glob.glob(str(ROOT / path))] == []
    modules = {m for w in words if (m := re.match(r"(pipelines|udfs|tools)\.\w+", w)) is not None}
    for module in modules:
        package, _, name = module[0].partition(".")
        there = (ROOT / package / f"{name}.py").exists() or hasattr(__import__(package), name)
        assert there, module[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join([*re.findall(r"`([^`\n]+)`", page.read_text()), *blocks(page, "sh")])
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", text)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_parse(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every shown call of a job is one that its parser takes; --print-config stops it there."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.search(r"pipelines[./](\w+)(?:\.py)? (.*)", line)
            if found is None or found[1] not in JOBS:
                continue
            arguments = shlex.split(found[2], comments=True)
            assert JOBS[found[1]]([*arguments, "--print-config"]) == 0, line
            capsys.readouterr()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_options_named_exist(page: Path) -> None:
    ours = {option(field.name) for field in dataclasses.fields(Settings)}
    ours |= {"--config", "--print-config", "--format", "--no-", "--install-completion"}
    ours |= {option(argument.name) for command in ALL_COMMANDS for argument in command.arguments}
    sparks = {"--py-files", "--packages", "--archives", "--conf"}
    benchmarks = {"--size"}
    codes = [code for code in re.findall(r"`([^`\n]+)`", page.read_text()) if "pip " not in code]
    named = {found for code in codes for found in re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)}
    assert named <= ours | sparks | benchmarks


# --- The pages that follow the code ---


def test_the_page_of_tables_is_current() -> None:
    """If this fails: python -m tools.tables_doc > docs/tables.md"""
    assert (ROOT / "docs" / "tables.md").read_text() == tables_doc.document()


def test_columns_of_the_views_are_as_written(spark: SparkSession, lake: str) -> None:
    pipelines.register(spark, lake)
    for view in VIEWS:
        fields = spark.table(view.name).schema.fields
        found = [(f.name, f.dataType.simpleString(), f.metadata["comment"]) for f in fields]
        assert found == [(c.name, c.sql_type, c.comment) for c in view.columns], view.name


def test_readme_lists_all_tables_and_views() -> None:
    found = {row[0].strip("`") for row in cells(README, "## Tables")}
    assert found == {table.name for table in TABLES}
    views = README.read_text().split("| view | gives |", 1)[1].split("\n\n", 1)[0]
    named = re.findall(r"^\| (`.*?`) \|", views, re.MULTILINE)
    listed = {name for cell in named for name in re.findall(r"`(\w+)`", cell)}
    assert listed == {view.name for view in VIEWS} | {"key_partitions"}


def test_each_view_has_an_example_on_a_page() -> None:
    pages = (VIEWS_PAGE, ROOT / "docs" / "internal_topics.md")
    named = [re.findall(r"^## `(\w+)`", page.read_text(), re.MULTILINE) for page in pages]
    assert named[0] == sorted(named[0])
    # the base of the internal views, and a function that the page shows under a heading of its own
    others = {"internal_records", "group_lag_at"}
    assert {name for names in named for name in names} == {v.name for v in SESSION_VIEWS} - others


def test_the_page_of_commands_has_every_option_and_its_default() -> None:
    written = {row[0].strip("`").split()[0]: row[1].strip("`") for row in cells(COMMANDS, "## Options")}
    fields = {option(field.name): field for field in dataclasses.fields(Settings)}
    assert written.keys() == fields.keys() | {"--config", "--print-config"}
    for name, field in fields.items():
        default = written[name]
        if field.metadata["parse"] is byte_count and field.default is not None:
            assert byte_count(default) == field.default, name
        else:
            assert default == ("" if field.default in (None, (), False) else str(field.default)), name


def test_the_page_of_commands_says_which_options_are_for_decoding_alone() -> None:
    alone = {row[0].strip("`").split()[0] for row in cells(COMMANDS, "## Options") if row[2] == "decoding"}
    assert alone == {option(name) for name in set(DECODE.settings) - set(INGEST.settings)}


def test_the_page_of_commands_says_which_options_are_for_reports() -> None:
    reports = {row[0].strip("`").split()[0] for row in cells(COMMANDS, "## Options") if row[2] == "report"}
    assert reports == {option(name) for name in set(SETTING_NAMES) - set(DECODE.settings)}


@pytest.mark.parametrize(("page", "heading"), [(COMMANDS, "## Quality report"), (QUALITY, "# Data quality")])
def test_pages_have_every_option_of_the_quality_report(page: Path, heading: str) -> None:
    written = {row[0].strip("`").split()[0]: row[1].strip("`") for row in cells(page, heading)}
    arguments = {
        option(argument.name): (argument.choices or (argument.default or "",))[0]
        for argument in QUALITY_REPORT.arguments
    }
    defaults = {option(name): "2" if name == "cores" else "" for name in QUALITY_REPORT.settings}
    assert written == arguments | defaults


def test_the_page_of_quality_has_every_check() -> None:
    written = [(row[0].strip("`"), row[1], float(row[2])) for row in cells(QUALITY, "## Checks")]
    assert written == [(check.name, check.severity, check.threshold) for check in CHECKS]


def test_the_page_of_quality_has_every_column() -> None:
    written = [tuple(cell.strip("`") for cell in row) for row in cells(QUALITY, "## The table")]
    assert written == [(c.name, c.sql_type, c.comment) for c in QUALITY_METRICS.columns]


def test_what_operations_quotes_stands_in_the_code() -> None:
    """Quoted warnings, with ... for what differs: each piece is in a string of the sources."""
    strings = [
        node.value
        for path in [*(ROOT / "pipelines").rglob("*.py"), *(ROOT / "udfs").rglob("*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    for row in cells(OPERATIONS, "## Warnings") + cells(OPERATIONS, "## Errors"):
        for piece in filter(None, (p.strip() for p in row[0].strip("`").split("..."))):
            assert any(piece in text for text in strings), piece


def test_operations_has_every_reason_to_skip_a_file() -> None:
    others = {"SEGMENT_SUFFIX", "SWAP_SUFFIX", "CLEANED_SUFFIX", "NULL_TOPIC"}
    reasons = {
        value
        for name, value in vars(naming).items()
        if isinstance(value, str) and name.isupper() and not name.startswith("_") and name not in others
    }
    assert {row[0].strip("`") for row in cells(OPERATIONS, "## What is skipped")} == reasons


# --- What the pages show ---


@pytest.mark.parametrize(
    ("page", "least"), [(README, 3), (VIEWS_PAGE, len(VIEWS))], ids=lambda v: str(v)[-9:]
)
def test_shown_queries_print_what_the_page_shows(
    spark: SparkSession, bundled: str, page: Path, least: int
) -> None:
    text = page.read_text()
    shown = re.findall(r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(shown) >= least
    for statement, output in shown:
        assert "\n".join(answer(spark, bundled, statement, "table")) + "\n" == output


def test_queries_of_the_page_of_quality_print_what_it_shows(
    spark: SparkSession, bundled: str, tmp_path: Path
) -> None:
    quality_report.run(Settings(lake=bundled), output=str(tmp_path))
    text = QUALITY.read_text()
    shown = re.findall(r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for statement, output in shown:
        assert "\n".join(answer(spark, bundled, statement, "table")) + "\n" == output


def test_query_of_the_page_on_formats_prints_what_it_shows(spark: SparkSession, bundled: str) -> None:
    format_report.run(spark, Settings(lake=bundled, codec_levels="snappy", sample_batches=1))
    ((statement, output),) = re.findall(
        r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", FORMATS.read_text(), re.MULTILINE | re.DOTALL
    )
    assert "\n".join(answer(spark, bundled, statement, "table")) + "\n" == output


def test_committed_records_are_what_a_read_committed_consumer_got(spark: SparkSession, bundled: str) -> None:
    """Reliability.md's promise, for every bundled partition that a broker served."""

    def ask(statement: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in answer(spark, bundled, statement)]

    found: dict[Path, list[int]] = {}
    for row in ask("SELECT segment, offset FROM committed_records ORDER BY offset"):
        found.setdefault(Path(row["segment"].removeprefix("file://")).parent, []).append(row["offset"])
    checked = 0
    for segment in ask("SELECT DISTINCT partition_dir FROM segments"):
        folder = Path(segment["partition_dir"].removeprefix("file://"))
        oracle = ORACLE / folder.relative_to(CORPUS)
        if not (oracle / "read_committed.jsonl").exists():
            continue
        start = json.loads((oracle / "offsets.json").read_text())["logStartOffset"]
        lines = (oracle / "read_committed.jsonl").read_text().splitlines()
        assert [o for o in found.get(folder, []) if o >= start] == [
            json.loads(line)["offset"] for line in lines
        ]
        checked += 1
    assert checked > 30


def test_the_picture_of_a_session_shows_what_the_commands_print(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails: python -m tools.picture"""
    for name, sample in picture.LOGS.items():
        shutil.copytree(CORPUS / sample, tmp_path / "kafka-logs" / name)
    monkeypatch.setenv("COLUMNS", str(picture.WIDTH))
    found = scan(Settings(source=(str(tmp_path / "kafka-logs"),)))
    lake = str(tmp_path / "lake")
    decode_batches.run(spark, Settings(source=(str(tmp_path / "kafka-logs"),), lake=lake))
    drawn = ElementTree.parse(picture.PICTURE).iter("{http://www.w3.org/2000/svg}text")
    words = " ".join(" ".join(element.itertext()) for element in drawn).split()
    for topic in found.logs:
        assert topic.topic in words
        assert f"{topic.records:,}" in words
    for _, damage in found.damages:
        assert {f"{damage.position:,}", damage.reason, str(damage.next_offset)} <= set(words)
    for line in answer(spark, lake, picture.QUERY, "table"):
        assert set(line.split()) <= set(words), line
    assert "http://www.w3.org/2000/svg" in picture.PICTURE.read_text()
    assert "url(http" not in picture.PICTURE.read_text()


def test_python_of_the_readme_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    with_spark, lazy, alone = blocks(README, "python")
    names: dict[str, Any] = {"spark": spark}
    exec(with_spark, names)
    assert names["summary"].records == DeltaTable(tmp_path / "lake" / "records").count() > 0
    exec(lazy, names)
    assert names["records"].columns == [column.name for column in RECORDS.columns]
    assert names["records"].count() == names["summary"].records
    capsys.readouterr()
    exec(alone, {})
    assert "crc_mismatch at byte 3374 - 796 bytes" in capsys.readouterr().out


def test_every_answer_on_the_page_of_questions_runs(
    spark: SparkSession, bundled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "questions.md"
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    shutil.copytree(bundled, tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    pipelines.register(spark, "lake")
    for statement in blocks(page, "sql"):
        spark.sql(statement).collect()
    assert len(spark.sql(blocks(page, "sql")[-1]).collect()) > 0
    commands = [shlex.split(block) for block in blocks(page, "sh")]
    assert [command[0] for command in commands] == ["kafka-log-lake"] * len(commands)
    assert {command[1] for command in commands} >= {"scan", "decode", "query", "maintain", "quality-report"}
    for command in commands:
        assert console.main(command[1:]) == 0, command
    names: dict[str, Any] = {}
    for block in blocks(page, "python"):
        if "sys.argv" not in block:  # a file of its own: test_recipe runs it
            exec(block, names)
    in_lake = names["frame"][names["frame"]["topic"] == "tx-aborted"]
    assert len(names["committed"]) == len(in_lake) > 0
    assert set(names["loose"].column("topic").to_pylist()) == {"clicks"}
    assert pq.read_table("records.parquet").num_rows > 0


def test_python_alone_needs_no_spark() -> None:
    """The block of the README that promises no Spark, in a Python that cannot import it."""
    script = (
        "import sys; sys.modules['pyspark'] = sys.modules['pipelines'] = None\n"
        + blocks(README, "python")[-1]
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "records from offset 0" in done.stdout


def test_statements_of_operations_run(spark: SparkSession, tmp_path: Path) -> None:
    """Upkeep of the tables: the same rows afterwards, and the next runs go on as if nothing had been."""
    lake = str(tmp_path / "lake")
    asked = Settings(source=(str(CORPUS / "v2-txn-open"),), lake=lake)
    again = dataclasses.replace(asked, redecode="tx-open")
    decode_batches.run(spark, asked)
    decode_batches.run(spark, again)
    before = {table.name: rows(lake, table.name) for table in TABLES}
    statements = [s for block in blocks(OPERATIONS, "sql") for s in block.split(";") if s.strip()]
    assert {s.split()[0] for s in statements} == {"OPTIMIZE", "VACUUM", "SELECT", "DESCRIBE"}
    for statement in statements:
        spark.sql(statement.replace("/data/lake", lake)).collect()
    assert {table.name: rows(lake, table.name) for table in TABLES} == before
    assert decode_batches.run(spark, asked).segments == 0
    assert decode_batches.run(spark, again).segments == 1
    assert len(rows(lake, "records")) == len(before["records"])


def rows(lake: str, table: str) -> list[str]:
    return sorted(map(repr, DeltaTable(f"{lake}/{table}").to_pyarrow_table().to_pylist()))


def test_help_of_every_command_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    for name, main in {**JOBS, **OTHERS}.items():
        assert f"pipelines.{name}" in COMMANDS.read_text()
        with pytest.raises(SystemExit) as ended:
            main(["--help"])
        assert ended.value.code == 0
        assert "--lake" in capsys.readouterr().out

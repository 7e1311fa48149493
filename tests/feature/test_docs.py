"""README and docs: what they name exists, and what follows the code is current."""

from __future__ import annotations

import ast
import dataclasses
import glob
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from packaging.requirements import Requirement

import kafka_log_lake
from benchmarks import page as figures
from benchmarks import report
from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.commands import COMMANDS as ALL_COMMANDS
from kafka_log_lake.pipelines.cli.options import parser_of, with_not
from kafka_log_lake.pipelines.cli.setting_names import ALIASES, FIELDS
from kafka_log_lake.pipelines.cli.values import flag, option
from kafka_log_lake.pipelines.dataframes.options import Options, option_name
from kafka_log_lake.pipelines.format_report import command as format_report
from kafka_log_lake.pipelines.listing import naming
from kafka_log_lake.pipelines.quality_report import command as quality_report
from kafka_log_lake.pipelines.quality_report.check import CHECKS
from kafka_log_lake.pipelines.query import command as query
from kafka_log_lake.pipelines.sql_shell import command as sql_shell
from kafka_log_lake.pipelines.views.declared import PUBLIC, SESSION_VIEWS, VIEWS
from tests.support.docs import (
    ARCHITECTURE,
    COMMANDS,
    DOCS,
    INNER_VIEWS,
    MESSAGES,
    QUALITY,
    README,
    ROOT,
    TUTORIAL,
    VIEWS_PAGE,
    blocks,
)
from tools import site, tables_doc

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PAGES = [README, *DOCS]
JOBS: dict[str, Callable[[list[str]], int]] = {
    "decode_batches": decode_batches.main,
    "ingest_raw": ingest_raw.main,
}
OTHERS: dict[str, Callable[[list[str]], int]] = {
    "query": query.main,
    "sql_shell": sql_shell.main,
    "quality_report": quality_report.main,
    "format_report": format_report.main,
}


def cells(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its head."""
    section = page.read_text().split(f"{heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert lines is not None
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in lines[0].splitlines()[2:]]


# --- What the pages name ---


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_links_lead_to_headings() -> None:
    """In the checkout, and on the site, where ``make docs`` finds the same."""

    def anchors(text: str) -> set[str]:
        text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        plain = [re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles]
        return {re.sub(r"[-\s]+", "-", title) for title in plain}

    of_site = {ROOT / name: text for name, text in site.texts().items()}
    of_checkout = {path: path.read_text() for path in site.sources()}
    missing = [
        f"{page.name}: {target}#{anchor}"
        for pages in (of_site, of_checkout)
        for page, text in pages.items()
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text)
        if "://" not in target
        and anchor not in anchors(pages[(page.parent / target).resolve() if target else page])
    ]
    assert missing == []


def test_the_site_has_every_page() -> None:
    """A page that no menu leads to is not found."""
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = re.findall(r"[\w-]+\.md", repr(menu))
    assert sorted(listed) == sorted(site.texts())


def test_llms_txt_lists_every_page_with_what_it_is_about() -> None:
    pages = site.texts()
    listed = re.findall(r"^- \[(.+)\]\((.+)\): (.+)$", site.llms_text(pages), re.MULTILINE)
    assert [place for _, place, _ in listed] == [f"{name.removesuffix('.md')}.html" for name in pages]


def test_the_page_of_the_python_api_has_every_name() -> None:
    path = ROOT / "docs" / "python_api.md"
    named = [name.removeprefix("kafka_log_lake.") for name in site.PART.findall(path.read_text())]
    assert sorted(named) == sorted(kafka_log_lake.__all__)
    text = site.page(path, site.sources())
    assert re.findall(r"^## (\w+)$", text, re.M) == named
    assert "- `columns`: names of the columns that are wanted" in text


def test_links_of_the_site_stay_within_it() -> None:
    pages = site.texts()
    for name, text in pages.items():
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text)
        inside = {link for link in links if "://" not in link}
        assert {link for link in inside if not link.startswith(("images/", "schemas/"))} <= pages.keys(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_and_modules_named_in_code_exist(page: Path) -> None:
    words = [word for code in re.findall(r"`([^`\n]+)`", page.read_text()) for word in code.split()]
    paths = [
        w for w in words if re.fullmatch(r"(pipelines|udfs|tests|notebooks|docs|conf|tools)/[\w./*-]*", w)
    ]
    assert [path for path in paths if not glob.glob(str(ROOT / path))] == []
    modules = {m for w in words if (m := re.match(r"(pipelines|udfs|tools)\.\w+", w)) is not None}
    for module in modules:
        place = ROOT / module[0].replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").is_file(), module[0]


def test_the_map_names_files_that_exist() -> None:
    """Its paths begin at the checkout, or at one of the two halves."""
    words = re.findall(r"`([\w/]+(?:/|\.py|\.sql))`", ARCHITECTURE.read_text())
    names = [word for word in words if "/" in word]
    assert len(names) > 50
    above = [ROOT, ROOT / "pipelines", ROOT / "udfs", *(ROOT / "udfs").iterdir()]
    assert [name for name in names if not any((folder / name).exists() for folder in above)] == []


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


def test_commands_of_the_console_parse() -> None:
    commands = {command.name: command for command in ALL_COMMANDS}
    shown = [
        (found[1], found[2])
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if (found := re.search(r"kafka-log-lake ([a-z-]+) (.*?)(?: \|\| .*)?$", line)) is not None
    ]
    assert len({name for name, _ in shown}) > 8
    for name, rest in shown:  # an argument that there is not is an error
        parser_of(commands[name]).values(with_not(shlex.split(rest, comments=True)))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_options_named_exist(page: Path) -> None:
    ours = {option(name) for name in FIELDS}
    ours |= {"--config", "--print-config", "--format", "--no-", "--not", "--help", "--help-all"}
    ours |= {option(f"no_{name}") for name, field in FIELDS.items() if field.metadata["parse"] is flag}
    ours |= {name for command in ALL_COMMANDS for one in command.arguments for name in one.options}
    ours |= {option(alias) for names in ALIASES.values() for alias in names}
    sparks = {"--py-files", "--packages", "--archives", "--conf"}
    benchmarks = {"--size"}
    shown = re.findall(r"`([^`\n]+)`", page.read_text())
    codes = [code for code in shown if not re.search(r"\b(?:pip|uvx) ", code)]
    named = {found for code in codes for found in re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)}
    assert named <= ours | sparks | benchmarks


# --- The pages that follow the code ---


def test_the_page_of_tables_names_each_and_the_site_has_its_columns() -> None:
    page = (ROOT / "docs" / "tables.md").read_text()
    made = site.texts()["tables.md"]
    for part, tables in tables_doc.PARTS.items():
        section = page.partition(f"\n## {part.capitalize()}\n")[2].lstrip()
        assert re.findall(r"`(\w+)`", section.splitlines()[0]) == [table.name for table in tables]
        for table in tables:
            shown = made.partition(f"\n### `{table.name}`\n")[2].partition("\n##")[0]
            assert {column.name for column in table.columns} <= set(re.findall(r"`(\w+)`", shown))


def test_each_part_of_the_site_has_a_page_and_its_texts_are_no_markup() -> None:
    """A browser would leave out ``array<string>``."""
    named = [name for path in site.sources() for name in site.PART.findall(path.read_text())]
    assert sorted(name for name in named if "." not in name) == sorted(site.PARTS)
    made = [write() for write in (*site.PARTS.values(), *site.MADE.values())]
    assert not re.findall(r"<\w+", re.sub(r"`[^`\n]*`", "", "\n".join(made)))


def test_the_site_has_every_column_of_a_view_for_users() -> None:
    page = site.texts()["view_columns.md"]
    for view in SESSION_VIEWS:
        if view.name in {name for names in PUBLIC.values() for name in names}:
            section = page.partition(f"### `{view.name}`\n")[2].partition("\n### ")[0]
            named = set(re.findall(r"`(\w+)`", section))
            assert {column.name for column in view.columns} <= named or "those of `records`" in section


def test_columns_of_the_views_are_as_written(spark: SparkSession, lake: str) -> None:
    kafka_log_lake.register(spark, lake)
    for view in VIEWS:
        fields = spark.table(view.name).schema.fields
        found = [(f.name, f.dataType.simpleString(), f.metadata["comment"]) for f in fields]
        assert found == [(c.name, c.sql_type, c.comment) for c in view.columns], view.name


def test_the_extras_of_the_notebooks_have_what_they_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {extra: {Requirement(one).name for one in ones} for extra, ones in extras.items()}
    assert names["notebooks"] >= names["report"] | names["typed"]  # they run the quality report and --typed
    lines = "\n".join(path.read_text() for path in (ROOT / "notebooks").glob("*.py"))
    imported = set(re.findall(r"^(?:import|from) (\w+)", lines, re.MULTILINE))
    assert imported - sys.stdlib_module_names - {"kafka_log_lake"} <= names["notebooks"] | names["spark"]


@pytest.mark.parametrize(("page", "count"), [(README, 4), (TUTORIAL, 6)], ids=lambda one: str(one)[-11:])
def test_commands_of_a_first_page_print_what_it_shows(page: Path, count: int, tmp_path: Path) -> None:
    """The commands that anybody can try: each shown line is one that is printed."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shown = re.findall(
        r"^```sh\n((?:.*kafka-log-lake .*\n)+)```\n\n```text\n((?:.+\n)+)```$", page.read_text(), re.M
    )
    assert len(shown) == count
    for commands, lines in shown:
        printed: set[str] = set()
        for line in commands.splitlines():  # in processes of their own: a session of Spark would be used
            words = shlex.split(line.partition("kafka-log-lake ")[2])
            command = [sys.executable, "-m", "kafka_log_lake", *words]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
            )
            printed |= {line.rstrip() for line in done.stdout.splitlines()}
        assert {line.rstrip() for line in lines.splitlines()} - {"..."} <= printed
    if page == TUTORIAL:
        (plot,) = blocks(page, "python")
        environment |= {"MPLBACKEND": "agg", "MPLCONFIGDIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", plot], cwd=tmp_path, env=environment, check=True)
        assert (tmp_path / "orders.png").read_bytes().startswith(b"\x89PNG")


def test_the_readme_is_short_and_its_views_exist() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 180
    named = [row[0].strip("`") for row in cells(README, "Load and query")]
    assert set(named) <= {view.name for view in SESSION_VIEWS}
    assert len(named) == 6


def test_the_page_of_views_lists_them_by_task() -> None:
    rows = [(task, re.findall(r"`(\w+)`", names)) for task, names in cells(VIEWS_PAGE, "# Views, by example")]
    assert rows == [(task, list(names)) for task, names in PUBLIC.items()]


def test_each_view_has_an_example_on_a_page() -> None:
    pages = (
        VIEWS_PAGE,
        INNER_VIEWS,
        *(ROOT / "docs" / f"{name}.md" for name in ("internal_topics", "applications")),
    )
    named = [re.findall(r"^## `(\w+)`", page.read_text(), re.MULTILINE) for page in pages]
    assert named[0] == sorted(named[0])
    # what other views are made of, and a function that the page shows under a separate heading
    others = {
        "internal_records",
        "connect_records",
        "connect_commits",
        "mm2_records",
        "group_positions",
        "group_lag_at",
    }
    assert {name for names in named for name in names} == {v.name for v in SESSION_VIEWS} - others


def test_the_site_has_every_option_with_its_default_and_commands() -> None:
    section = site.texts()["commands.md"].partition("\n## Options\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
    found = {row[0].split("`")[1].split()[0]: row[1:] for row in rows if len(row) == 4 and "`" in row[0]}
    assert found.keys() == {option(name) for name in FIELDS}
    assert found["--max-content"][0] == "`32MiB`"
    assert found["--watch"] == ["", "`decode`", "repeat until SIGTERM or Ctrl-C"]
    assert found["--currency"][:2] == ["`USD`", "`format-report`"]
    (hours,) = (line for line in site.PARTS["options of maintain"]().splitlines() if "--vacuum" in line)
    assert hours.endswith(" (default 168) |")


def test_the_page_of_figures_has_those_that_are_stored() -> None:
    """If this fails: python -m benchmarks.page"""
    text = figures.PAGE.read_text()
    assert figures.filled(text) == text
    assert text.count("| **missed** |") + text.count(": **missed** |") == sum(
        row["met"] is False for part in report.load().values() for row in part["rows"]
    )


def test_the_page_of_quality_has_every_check() -> None:
    written = [(row[0].strip("`"), row[1], float(row[2])) for row in cells(QUALITY, "## Checks")]
    assert written == [(check.name, check.severity, check.threshold) for check in CHECKS]


def test_what_messages_quotes_is_in_the_code() -> None:
    """Quoted warnings, with ... for what differs: each piece is in a string of the sources."""
    strings = [
        node.value
        for path in [*(ROOT / "pipelines").rglob("*.py"), *(ROOT / "udfs").rglob("*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    for row in cells(MESSAGES, "## Warnings") + cells(MESSAGES, "## Errors"):
        for piece in filter(None, (p.strip() for p in row[0].strip("`").split("..."))):
            assert any(piece in text for text in strings), piece


def test_messages_has_every_reason_to_skip_a_file() -> None:
    others = {"SEGMENT_SUFFIX", "SWAP_SUFFIX", "CLEANED_SUFFIX", "DELETED_SUFFIX", "NULL_TOPIC", "NULL"}
    reasons = {
        value
        for name, value in vars(naming).items()
        if isinstance(value, str) and name.isupper() and not name.startswith("_") and name not in others
    }
    assert {row[0].strip("`") for row in cells(MESSAGES, "## What is skipped")} == reasons


def test_help_of_every_command_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    text = COMMANDS.read_text()
    for name, main in {**JOBS, **OTHERS}.items():
        assert {f"`{name}`", f"| `{name.replace('_', '-')} "} & {
            *re.findall(r"`\w+`|^\| `[\w-]+ ", text, re.M)
        }
        with pytest.raises(SystemExit) as ended:
            main(["--help"])
        assert ended.value.code == 0
        assert "--lake" in capsys.readouterr().out


def test_the_page_of_the_data_source_has_every_option() -> None:
    page = (ROOT / "docs" / "data_source.md").read_text()
    table = page.partition("## Options")[2].partition("\n## ")[0]
    written = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[6:]]
    for field, (name, default, meaning) in zip(
        dataclasses.fields(Options), filter(any, written), strict=True
    ):
        meaning = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", meaning)  # without links
        assert (name, meaning) == (f"`{option_name(field.name)}`", field.metadata["meaning"])
        parsed = field.metadata["parse"](default.strip("`")) if default else field.default or None
        assert parsed == (field.default if default else None)

"""Who may import whom, read from the sources' syntax trees: a room may import those above it in its list."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "kafka_log_lake"
SOURCES = sorted(path for name in ("udfs", "pipelines", PACKAGE) for path in ROOT.glob(f"{name}/**/*.py"))
# Bytes to Arrow: what runs on executors and in worker processes. spark/ alone knows Spark
UDFS = (
    *("package_files", "no_pandas", "compute", "words", "errors", "now_reading", "reads", "calls", "worker"),
    *("format", "kernels", "storage", "decoder", "batches", "files", "arrow", "functions", "values"),
    *("indexes", "spark"),
)
# From arguments to tables: what the features share, each room above those after it
SHARED = (
    *("rules", "cli", "engine", "listing", "tier", "plan", "tasks"),
    *("lake", "typed", "views", "sql", "dataframes", "decode"),
)
# One room a command; the two jobs are modules
FEATURES = (
    *("ingest_raw", "decode_batches", "decode_values", "find", "scan", "load_check", "inspect_batch"),
    *("dump_log", "recover"),
    *("maintain", "query", "sql_shell", "export", "quality_report", "format_report", "mcp_server", "restore"),
)
# The few that use another feature: what a search, a scan, a job and a report say of copies and batches is
# what `recover` and `inspect` say of them
USES = {
    "scan": {"load_check", "recover"},
    "find": {"recover"},
    "decode_batches": {"recover", "decode_values"},
    "quality_report": {"inspect_batch"},
    "restore": {"recover"},
}
# vectorized_varint is a kernel with a separate module: users know it by that name
WITH_KERNELS = {"vectorized_varint": "kernels"}
SPARK = {"pyspark", "delta", "py4j", "deltalake", "duckdb"}
JVM = {"pyspark", "delta", "py4j"}
KERNELS = {"llvmlite", "numba"}


@cache
def imports(source: Path) -> list[tuple[int, str]]:
    """(level, name) of every import in a file, also of those inside functions; level 0 is absolute."""
    return list(_imports(source))


def _imports(source: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, f"{node.module}.{alias.name}") for alias in node.names)


def packages(source: Path) -> set[str]:
    return {name.split(".")[0] for _, name in imports(source)}


def room(parts: tuple[str, ...]) -> str:
    """The room of a module of udfs or pipelines: its folder, or itself."""
    own = parts[1] if len(parts) > 1 else ""
    return WITH_KERNELS.get(own, own)


def inner(source: Path, half: str) -> set[str]:
    """The rooms of udfs or pipelines that a file imports."""
    names = [name.split(".") for _, name in imports(source)]
    return {room(tuple(parts[1:])) for parts in names if parts[:2] == [PACKAGE, half] and len(parts) > 2}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports(source: Path) -> None:
    parts = source.relative_to(ROOT).with_suffix("").parts
    own = room(parts)
    assert all(level == 0 for level, _ in imports(source)), "absolute imports only"
    assert not packages(source) & {"tests", "udfs", "pipelines"}, f"ours are imported as {PACKAGE}.…"
    if parts[0] == "udfs":
        assert not inner(source, "pipelines")
        assert inner(source, "udfs") <= {*UDFS[: UDFS.index(own) + 1]} if own in UDFS else True
        if own != "spark":
            assert not packages(source) & SPARK
    if parts[0] == "pipelines" and own in SHARED:
        assert inner(source, "pipelines") <= {*SHARED[: SHARED.index(own) + 1]}
    if parts[0] == "pipelines" and own in FEATURES:
        assert inner(source, "pipelines") <= {*SHARED, own} | USES.get(own, set())


def test_every_module_has_a_room() -> None:
    for half, rooms in (("udfs", UDFS), ("pipelines", (*SHARED, *FEATURES))):
        modules = {path.relative_to(ROOT).with_suffix("").parts for path in ROOT.glob(f"{half}/**/*.py")}
        assert {room(parts) for parts in modules} - {"__init__"} == {*rooms}


def test_no_modules_import_each_other() -> None:
    """Also not inside a function: of a circle no part can be read, moved or tested by itself."""
    of = {".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)): path for path in SOURCES}
    uses = {
        module: {
            found
            for _, name in imports(path)
            for found in (name, name.rpartition(".")[0])
            if found in of and found != module
        }
        for module, path in of.items()
    }
    while free := {module for module, others in uses.items() if not others & uses.keys()}:
        uses = {module: others for module, others in uses.items() if module not in free}
    assert not uses


def test_the_package_is_the_two_halves() -> None:
    """Links: the wheel has their files as they are, and no module has two names."""
    for half in ("udfs", "pipelines"):
        link = ROOT / PACKAGE / half
        assert link.is_symlink()
        assert link.resolve() == ROOT / half


def test_no_module_hides_one_of_the_standard_library() -> None:
    """spark-submit puts pipelines/ first on sys.path."""
    jobs = {path.stem for path in (ROOT / "pipelines").iterdir()}
    assert not jobs & set(sys.stdlib_module_names)


def test_few_modules_touch_the_jvm_and_none_needs_py4j() -> None:
    """A session of Spark Connect has neither: ``pipelines.engine.driver``."""
    touches = re.compile(r"\._jvm\b|\._jsc\b|\.sparkContext\b|\.rdd\b|\bjava_gateway\b")
    found = {str(path.relative_to(ROOT)) for path in SOURCES if touches.search(path.read_text())}
    assert found == {
        "pipelines/engine/driver.py",
        "pipelines/engine/session.py",
        "pipelines/listing/hadoop.py",
    }
    assert not any("py4j" in packages(path) for path in SOURCES)


def test_java_check_runs_before_anything_is_installed() -> None:
    assert packages(ROOT / "pipelines" / "cli" / "java.py") <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("modules", "not_loaded"),
    [
        # LLVM and the tables of checksums cost every start some time, and only workers need them
        (("pipelines.decode_batches", "pipelines.ingest_raw"), KERNELS),
        (("pipelines.dataframes.slices",), JVM | KERNELS),  # reads of the data source are planned so
        (("pipelines.scan.command", "udfs.decoder.segment_decoder"), SPARK),
        (("pipelines.find.command",), SPARK),
        (("pipelines.dump_log.command", "pipelines.dump_log.log_text", "pipelines.dump_log.objects"), SPARK),
        (
            (
                *("pipelines.inspect_batch.command", "pipelines.inspect_batch.locate"),
                "pipelines.inspect_batch.page",
            ),
            SPARK,
        ),
        (("pipelines.quality_report.command",), JVM),
        (("pipelines.query.command", "pipelines.sql.database"), JVM),
        (("pipelines.export.command",), JVM | {"xlsxwriter"}),
    ],
)
def test_what_a_start_does_not_load(modules: tuple[str, ...], not_loaded: set[str]) -> None:
    named = ", ".join(f"{PACKAGE}.{module}" for module in modules)
    code = f"import sys, {named}; assert not {not_loaded} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_unit_tests_start_no_spark() -> None:
    """Those of the rules alone do: they hold both engines to one model."""
    with_spark = {
        path.relative_to(ROOT / "tests/unit").parts[0]
        for path in (ROOT / "tests" / "unit").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and any(argument.arg == "spark" for argument in node.args.args)
    }
    assert with_spark <= {"batches"}

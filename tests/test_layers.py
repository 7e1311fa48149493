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

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("udfs", "pipelines", "kafka_log_lake", "pyspark_kafka_log")
SOURCES = sorted(path for name in PACKAGES for path in ROOT.glob(f"{name}/**/*.py"))
# Bytes to Arrow. spark/ alone knows Spark
UDFS = (
    *("package_files", "no_pandas", "compute", "words", "worker", "format", "kernels", "source", "recovery"),
    *(
        "decoded",
        "rules",
        "log_start",
        "compile_kernels",
        "segment_decoder",
        "committed",
        "files",
        "arrow",
        "functions",
        "values",
        "indexes",
        "search",
        "dump",
        "inspection",
        "replicas",
        "spark",
    ),
)
# The driver's side: from arguments to commits. The commands next to these packages import what they need
PIPELINES = (
    *("rules", "command", "source", "plan", "data_source", "lake", "typed", "functions", "views", "sql"),
    *("kept", "inspection", "report", "execute", "scanning", "finding", "recovery"),
)
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
    """The room of a module: its folder below the package, or itself."""
    own = parts[1] if len(parts) > 1 else ""
    return WITH_KERNELS.get(own, own)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports(source: Path) -> None:
    own = source.relative_to(ROOT).with_suffix("").parts
    found = [name for level, name in imports(source) if level == 0]
    assert len(found) == len(imports(source)), "absolute imports only"
    assert "tests" not in packages(source)
    for package, rooms in (("udfs", UDFS), ("pipelines", PIPELINES)):
        if own[0] == package and room(own) in rooms:
            ours = [room(tuple(name.split("."))) for name in found if name.startswith(f"{package}.")]
            above = rooms[: rooms.index(room(own)) + 1]
            assert set(ours) <= set(above), f"{room(own)} may import {', '.join(above)}"
    if own[0] == "udfs":
        assert "pipelines" not in packages(source)
        if room(own) != "spark":
            assert not packages(source) & SPARK


def test_every_module_has_a_room() -> None:
    for package, rooms in (("udfs", UDFS), ("pipelines", PIPELINES)):
        folders = {path.parent.name for path in ROOT.glob(f"{package}/*/__init__.py")}
        assert folders <= set(rooms)


def test_no_module_hides_one_of_the_standard_library() -> None:
    """spark-submit puts pipelines/ first on sys.path."""
    jobs = {path.stem for path in (ROOT / "pipelines").iterdir()}
    assert not jobs & set(sys.stdlib_module_names)


def test_few_modules_touch_the_jvm_and_none_needs_py4j() -> None:
    """A session of Spark Connect has neither: ``pipelines.command.driver``."""
    touches = re.compile(r"\._jvm\b|\._jsc\b|\.sparkContext\b|\.rdd\b|\bjava_gateway\b")
    found = {str(path.relative_to(ROOT)) for path in SOURCES if touches.search(path.read_text())}
    assert found == {
        "pipelines/command/driver.py",
        "pipelines/command/executors.py",
        "pipelines/command/session.py",
        "pipelines/source/hadoop.py",
    }
    assert not any("py4j" in packages(path) for path in SOURCES)


def test_java_check_runs_before_anything_is_installed() -> None:
    assert packages(ROOT / "pipelines" / "command" / "java.py") <= set(sys.stdlib_module_names)


def test_a_job_starts_without_the_decoder() -> None:
    """LLVM and the tables of checksums cost every start some time, and only workers need them."""
    code = (
        f"import sys, pipelines.decode_batches, pipelines.ingest_raw; assert not {KERNELS} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_reads_of_the_data_source_are_planned_without_a_jvm_and_the_decoder() -> None:
    code = f"import sys, pipelines.data_source.slices; assert not {JVM | KERNELS} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_scan_starts_without_spark() -> None:
    code = f"import sys, pipelines.scan, udfs.segment_decoder; assert not {SPARK} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_search_starts_without_spark() -> None:
    code = f"import sys, pipelines.find; assert not {SPARK} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_dump_and_inspect_start_without_spark() -> None:
    theirs = "pipelines.dump_log, pipelines.inspect_batch, udfs.dump.log_text, udfs.dump.objects"
    pages = "pipelines.inspection.locate, pipelines.inspection.page"
    code = f"import sys, {theirs}, {pages}; assert not {SPARK} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_quality_report_starts_without_spark() -> None:
    code = f"import sys, pipelines.quality_report; assert not {JVM} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_query_starts_without_spark() -> None:
    code = f"import sys, pipelines.query, pipelines.sql.database; assert not {JVM} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

"""Who may import whom, read from the sources' syntax trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*ROOT.glob("udfs/**/*.py"), *ROOT.glob("pipelines/**/*.py")])
ADAPTER = ROOT / "udfs" / "spark"


def imports(source: Path) -> Iterator[tuple[int, str]]:
    """(level, module) of every import in a file, also of those inside functions; level 0 is absolute."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


def packages(source: Path) -> set[str]:
    return {module.split(".")[0] for _, module in imports(source)}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports(source: Path) -> None:
    assert all(level == 0 for level, _ in imports(source)), "absolute imports only"
    if source.is_relative_to(ROOT / "udfs"):
        assert "pipelines" not in packages(source)
        if not source.is_relative_to(ADAPTER):
            assert not packages(source) & {"pyspark", "delta", "py4j"}
    assert "tests" not in packages(source)


def test_no_module_hides_one_of_the_standard_library() -> None:
    """spark-submit puts pipelines/ first on sys.path."""
    jobs = {path.stem for path in (ROOT / "pipelines").iterdir()}
    assert not jobs & set(sys.stdlib_module_names)


def test_java_check_runs_before_anything_is_installed() -> None:
    assert packages(ROOT / "pipelines" / "command" / "java.py") <= set(sys.stdlib_module_names)


def test_a_job_starts_without_the_decoder() -> None:
    """Numba costs a second of every start, and only workers need it."""
    code = "import sys, pipelines.decode_batches, pipelines.ingest_raw; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

"""Each package of an extra of the wheel, where it is missing: one line says how to get it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from kafka_log_lake.pipelines.cli.errors import one_line, with_next_step
from kafka_log_lake.udfs.errors import EXTRA_OF
from kafka_log_lake.udfs.values.protobuf import schema
from kafka_log_lake.udfs.values.schemas.payload import PayloadError
from tests.support import corpus

ROOT = Path(__file__).parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
LOGS = str(corpus.ROOT / "v2-headers")
# Runs a command in a Python that has no such package
_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from kafka_log_lake.pipelines.cli.program import main
sys.exit(main(sys.argv[2:]))
"""


def test_each_extra_has_a_package_that_leads_to_it() -> None:
    assert {*EXTRA_OF.values()} == {*EXTRAS}


@pytest.mark.parametrize("package", EXTRA_OF)
def test_the_extra_brings_the_package(package: str) -> None:
    brought = {Requirement(text).name.lower() for text in EXTRAS[EXTRA_OF[package]]}
    needed = {
        Requirement(text).name.lower()
        for name in brought
        for text in metadata.distribution(name).requires or ()
    }
    providers = {name.lower().replace("_", "-") for name in metadata.packages_distributions()[package]}
    assert providers & (brought | needed)


@pytest.mark.parametrize(
    ("package", "argv", "extra"),
    [
        ("duckdb", ["query", "--lake", "lake", "SELECT 1"], "sql"),
        ("deltalake", ["find", "--lake", "lake"], "sql"),
        ("duckdb", ["export", "--lake", "lake", "--topic", "t"], "export"),
        ("vl_convert", ["quality-report", "--lake", "lake"], "report"),
        ("deltalake", ["decode", "--source", LOGS, "--lake", "lake"], "spark"),
        ("prometheus_client", ["decode", "--source", LOGS, "--lake", "lake", "--metrics", "m"], "spark"),
        ("openlineage", ["decode", "--source", LOGS, "--lake", "lake", "--lineage", "l"], "lineage"),
        ("mcp", ["mcp", LOGS], "mcp"),
        ("fsspec", ["scan", "http://127.0.0.1:9/logs"], "fsspec"),
    ],
)
def test_a_command_without_a_package_names_its_extra(
    package: str, argv: list[str], extra: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", _WITHOUT, package, *argv]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("error: ")]
    assert f"in a clone, pip install '.[{extra}]', or uvx --from '.[{extra}]' kafka-log-lake" in line
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2)


@pytest.mark.parametrize("package", EXTRA_OF)
def test_a_package_that_turns_out_to_be_missing_is_named_with_its_extra(package: str) -> None:
    error = ModuleNotFoundError(f"No module named '{package}.part'", name=f"{package}.part")
    said = with_next_step(one_line(error))
    brought = f"'.[{EXTRA_OF[package]}]'"
    assert said == (
        f"{package} is not installed: in a clone, pip install {brought}, "
        f"or uvx --from {brought} kafka-log-lake"
    )


def test_a_protobuf_schema_without_protoc_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    with pytest.raises(PayloadError, match=r"grpc_tools is missing: in a clone, pip install '\.\[typed\]'"):
        schema.parse('syntax = "proto3"; message A { int32 a = 1; }')

"""The JSON that commands print is as ``docs/schemas/`` says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kafka_log_lake.pipelines.cli.program import main
from tests.support import corpus
from tools import json_schemas

SHOP = str(corpus.ROOT.parent / "shop")
HOSTILE = corpus.ROOT / "hostile"


def closed(schema: Any) -> Any:
    """Returns a schema that forbids the fields that it does not name: they would have no description."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    fields = {name: closed(value) for name, value in schema.items()}
    return {"additionalProperties": False, **fields} if schema.get("properties") else fields


def check(name: str, found: Any) -> None:
    validator = Draft202012Validator(closed(json_schemas.OUTPUTS[name][1]))
    wrong = [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(found)]
    assert wrong == [], name


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> list[Any]:
    """Runs a command; returns the objects that it prints, a line each."""
    capsys.readouterr()
    main([*argv])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_files_are_current() -> None:
    """If this fails: python -m tools.json_schemas"""
    for name, (_, schema) in json_schemas.OUTPUTS.items():
        Draft202012Validator.check_schema(schema)
        assert (json_schemas.FOLDER / f"{name}.schema.json").read_text() == json_schemas.text_of(name)


@pytest.mark.parametrize("folder", ["shop", "corpus/hostile/[bt]*-v2-*", "kraft", "tiered"])
def test_scan(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs = map(str, corpus.ROOT.parent.glob(folder))
    (found,) = run(capsys, "scan", *logs, "--json")
    assert found["logs"]
    check("scan", found)


def test_copies_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = []
    for disk in ("a", "b"):
        folder = tmp_path / disk
        shutil.copytree(f"{SHOP}/orders-0", folder / "orders-0")
        named.append(f"--source={disk}={folder}")
    log = next((tmp_path / "b" / "orders-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-40])
    (found,) = run(capsys, "scan", "--json", *named)
    assert found["replicas"]
    check("scan", found)
    for line in run(capsys, "find", "--format=json", "--limit=5", *named):
        assert line["copy"] == "a"
        check("find", line)
    (done,) = run(capsys, "recover", "--json", "--report", str(tmp_path / "page"), *named)
    check("recover", done)


def test_find(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "find", SHOP, "--format=json", "--typed", "--limit=200")
    found += run(capsys, "find", SHOP, "--format=json", "--offset=3", "--context=1", "--superseded")
    assert len(found) > 200
    assert any(line["headers"] for line in found)
    for line in found:
        check("find", line)


def test_inspect(capsys: pytest.CaptureFixture[str]) -> None:
    damaged = sorted(HOSTILE.glob("*/*.log"))
    assert damaged
    for path in damaged[::6]:
        for found in run(capsys, "inspect", str(path), "--json", "--records=1"):
            check("inspect", found)


def test_load_check(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = run(capsys, "load-check", str(corpus.ROOT.parent / "groups"), "--json")
    assert found["unloadable"]
    check("load_check", found)


def test_decode_and_the_quality_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(tmp_path / "lake")
    for job in ("decode", "decode", "ingest"):
        (found,) = run(capsys, job, "--source", SHOP, "--lake", lake, "--json")
        check("decode", found)
    main(["quality-report", "--lake", lake, "--output", str(tmp_path / "page")])
    check("quality", json.loads((tmp_path / "page" / "quality.json").read_text()))

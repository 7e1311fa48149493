"""Schemas of ``_schemas`` go into a registry that follows Confluent's API, each with its id and version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.restore import schemas
from kafka_log_lake.pipelines.restore.plan import Plan
from kafka_log_lake.pipelines.restore.request import Request
from kafka_log_lake.pipelines.typed.sources import read_registry
from tests.support import typed_corpus
from tests.support.fake_registry import fake_registry


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("schemas")
    typed_corpus.copy(["_schemas"], folder / "disk")
    assert (
        main(["decode", "--source", str(folder / "disk"), "--lake", str(folder / "lake"), "--cores", "1"])
        == 0
    )
    return str(folder / "lake")


def request(lake: str, state: Path | str, url: str | None) -> Request:
    return Request(lake=lake, at=None, bootstrap="", state=str(state), more={"registry": url})


def expected() -> dict[tuple[str, int], dict[str, Any]]:
    """The schemas that the registry still had, those deleted softly too."""
    return {
        (one["subject"], one["version"]): one
        for one in typed_corpus.oracle("_schemas")
        if one["deleted"] in (False, True)
    }


def other(id_: int) -> dict[str, Any]:
    """A schema that the sources do not have."""
    text = '{"type": "fixed", "name": "Other", "size": 3}'
    return {"subject": "other", "version": 1, "id": id_, "schema": text}


def a_schema() -> dict[str, Any]:
    """One of the default context."""
    return next(one for one in expected().values() if not one["subject"].startswith(":."))


def test_every_schema_keeps_its_id_and_version(lake: str, tmp_path: Path) -> None:
    with fake_registry() as registry:
        done = schemas.restore_schemas(request(lake, tmp_path, registry.url), Plan(()))
        wanted = expected()
        assert {(one.subject, one.version) for one in done if one.version >= 0} >= wanted.keys()
        assert [one for one in done if one.held_back] == []
        for place, one in wanted.items():
            found = registry.versions[place]
            assert (found["id"], found["schema"]) == (one["id"], one["schema"])
            assert found.get("schemaType", "AVRO") == one["type"]
            assert bool(found.get("deleted")) == bool(one["deleted"])
        assert "IMPORT" not in registry.modes.values()
        before = len(registry.log)
        again = schemas.restore_schemas(request(lake, tmp_path, registry.url), Plan(()))
        assert {one.state for one in again if one.version >= 0} == {schemas.WAS_THERE}
        assert not [line for line in registry.log[before:] if line.startswith("POST")]


def test_ids_that_the_target_uses_otherwise_are_held_back(lake: str, tmp_path: Path) -> None:
    one = a_schema()
    with fake_registry() as registry:
        registry.versions["other", 1] = other(one["id"])
        registry.modes["other"] = "READONLY"
        done = schemas.restore_schemas(request(lake, tmp_path, registry.url), Plan(()))
        held = {(row.subject, row.version): row.held_back for row in done if row.id == one["id"]}
        assert "the target uses its id for another schema: other version 1" in held.values()
        assert registry.versions["other", 1] == other(one["id"])
        assert registry.modes["other"] == "READONLY"
        assert "IMPORT" not in registry.modes.values()
        assert any("held back" in line for line in schemas.lines(done))


def test_a_refusal_is_one_line_and_the_others_are_restored(lake: str, tmp_path: Path) -> None:
    refused = next(one["subject"] for one in expected().values() if not _is_referred_to(one["subject"]))
    with fake_registry() as registry:
        registry.refuses.add(refused)
        done = schemas.restore_schemas(request(lake, tmp_path, registry.url), Plan(()))
        held = {row.subject: row.held_back for row in done if row.held_back}
        assert held == {refused: "the registry: Invalid schema of this subject (42201)"}
        assert "IMPORT" not in registry.modes.values()


def _is_referred_to(subject: str) -> bool:
    return any(subject == ref["subject"] for one in expected().values() for ref in one["references"] or ())


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_run_that_is_killed_leaves_its_modes_to_the_next(lake: str, tmp_path: Path, scheme: str) -> None:
    """The file of modes is what a kill leaves; IMPORT is not taken for the mode that the subject had.

    A state may be named by a URI, as of an object store.
    """
    subject = next(iter(expected()))[0]
    with fake_registry() as registry:
        registry.modes[subject] = "IMPORT"
        (tmp_path / "registry_modes.json").write_text(json.dumps({subject: "READONLY"}))
        schemas.restore_schemas(request(lake, f"{scheme}{tmp_path}", registry.url), Plan(()))
        assert registry.modes[subject] == "READONLY"
        assert not (tmp_path / "registry_modes.json").exists()


def test_a_plan_changes_nothing(lake: str, tmp_path: Path) -> None:
    with fake_registry() as registry:
        planned = schemas.plan_schemas(request(lake, tmp_path, registry.url))
        assert {one.state for one in planned} == {schemas.PLANNED}
        assert (registry.log, registry.versions) == ([], {})


def test_a_registry_that_is_not_there_is_one_line(lake: str, tmp_path: Path) -> None:
    with fake_registry() as registry:
        url = registry.url.replace("//", "//user:secret@")
    with pytest.raises(UserError, match=r"--registry: .* does not answer") as failed:
        schemas.restore_schemas(request(lake, tmp_path, url), Plan(()))
    assert "secret" not in str(failed.value)
    assert schemas.restore_schemas(request(lake, tmp_path, None), Plan(())) == []


def test_the_topic_itself_is_refused_where_its_ids_mean_other_schemas(lake: str, tmp_path: Path) -> None:
    source = schemas.source_registry(request(lake, tmp_path, None))
    schemas.check_topic(source, source)
    with fake_registry() as registry:
        registry.versions["other", 1] = other(a_schema()["id"])
        with pytest.raises(UserError, match="the target uses its id for another schema"):
            schemas.check_topic(source, read_registry(registry.url))

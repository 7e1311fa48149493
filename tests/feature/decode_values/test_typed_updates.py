"""Typed tables of logs and schemas that change: each record stays one row, by the schema that it has."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from kafka_log_lake import read_segment
from kafka_log_lake.pipelines.maintain import command as maintain
from tests.support import typed_corpus as corpus
from tests.support.typed_lake import decode, rows, typed


def test_a_log_that_grows_adds_rows_and_one_that_is_decoded_again_doubles_none(tmp_path: Path) -> None:
    folder = next(one for one in corpus.folders("pb-kinds") if one.name.endswith("-0"))
    segment, target = folder / f"{0:020d}.log", tmp_path / "logs" / folder.name / f"{0:020d}.log"
    target.parent.mkdir(parents=True)
    for copied in corpus.folders("_schemas"):
        shutil.copytree(copied, tmp_path / "logs" / copied.name)
    whole = segment.read_bytes()
    first = 12 + int.from_bytes(whole[8:12], "big")  # bytes of its first batch
    target.write_bytes(whole[:first])
    decode(tmp_path)
    assert typed(tmp_path) == 0
    expected = read_segment(segment, columns=["offset"])["offset"].to_pylist()
    assert 0 < len(rows(tmp_path, "typed/pb-kinds")) < len(expected)
    target.write_bytes(whole)
    decode(tmp_path)
    assert typed(tmp_path) == 0
    assert sorted(row["offset"] for row in rows(tmp_path, "typed/pb-kinds")) == expected
    decode(tmp_path, "--redecode", ".*pb-kinds.*")
    assert typed(tmp_path) == 0
    assert sorted(row["offset"] for row in rows(tmp_path, "typed/pb-kinds")) == expected


def test_schemas_that_come_later_mend_errors_and_no_row_is_doubled(tmp_path: Path) -> None:
    corpus.copy(("avro-evolution",), tmp_path / "logs")
    decode(tmp_path)
    assert typed(tmp_path) == 0
    payloads = len(corpus.records("avro-evolution"))
    assert {row["reason"] for row in rows(tmp_path, "value_errors")} == {"unknown_id"}
    export = tmp_path / "export.json"
    listed = listed_schemas("avro-evolution-value")
    export.write_text(json.dumps(listed))
    assert typed(tmp_path, "--schemas", str(export)) == 0
    found = rows(tmp_path, "typed/avro-evolution")
    assert len(found) == payloads
    assert all(row["value"] is not None for row in found)
    assert rows(tmp_path, "value_errors") == []


def listed_schemas(subject: str) -> list[dict[str, Any]]:
    return [
        {"subject": s.subject, "version": s.version, "id": s.id, "schemaType": s.type, "schema": s.text}
        for s in corpus.registry().schemas
        if s.subject == subject
    ]


def test_versions_stay_as_they_were_where_a_schema_comes_later(tmp_path: Path) -> None:
    """Also where the new values need no new column."""
    corpus.copy(("avro-evolution",), tmp_path / "logs")
    decode(tmp_path)
    export = tmp_path / "export.json"
    listed = listed_schemas("avro-evolution-value")
    nulls = []
    for known in (listed[1:], listed):
        export.write_text(json.dumps(known))
        assert typed(tmp_path, "--schemas", str(export)) == 0
        path = tmp_path / "lake/typed/avro-evolution"
        for version in range(1, DeltaTable(path).version() + 1):
            table = DeltaTable(path, version=version).to_pyarrow_table()
            nulls.append(table.filter(~pc.field("is_tombstone"))["value"].null_count)
    assert nulls[0] == nulls[1] > nulls[2] == 0


def test_every_version_is_right_where_columns_change(tmp_path: Path) -> None:
    """A new type of a column comes with all rows in one commit."""
    parts = sorted(corpus.folders("mix-all"))
    for folder in (*corpus.folders("_schemas"), parts[0]):
        shutil.copytree(folder, tmp_path / "logs" / folder.name)
    decode(tmp_path)
    assert typed(tmp_path) == 0
    for folder in parts[1:]:
        shutil.copytree(folder, tmp_path / "logs" / folder.name)
    decode(tmp_path)
    assert typed(tmp_path) == 0
    path = tmp_path / "lake/typed/mix-all"
    counts = [
        DeltaTable(path, version=version).to_pyarrow_table().num_rows
        for version in range(DeltaTable(path).version() + 1)
    ]
    first = sum(
        partition == int(parts[0].name.rpartition("-")[2]) for partition, _ in corpus.records("mix-all")
    )
    assert counts == [0, first, len(corpus.records("mix-all"))]


def test_upkeep_and_merges_by_another_tool_lose_and_double_no_row(tmp_path: Path) -> None:
    corpus.copy(("err-avro", "_schemas"), tmp_path / "logs")
    decode(tmp_path)
    assert typed(tmp_path) == 0

    def state() -> list[Counter[str]]:
        tables = (rows(tmp_path, name) for name in ("value_errors", "typed/err-avro"))
        return [Counter(f"{row['partition']}:{row['offset']}" for row in table) for table in tables]

    def files(table: str) -> int:
        return sum("_delta_log" not in one.parts for one in (tmp_path / "lake" / table).rglob("*.parquet"))

    before = state()
    assert len({row["partition"] for row in rows(tmp_path, "value_errors")}) == 2
    for merge in (
        lambda: maintain.main(["--lake", str(tmp_path / "lake"), "--vacuum-hours", "0"]),
        lambda: DeltaTable(tmp_path / "lake/value_errors").optimize.compact(),
        lambda: DeltaTable(tmp_path / "lake/typed/err-avro").optimize.compact(),
    ):
        merge()
        decode(tmp_path, "--redecode", "err-avro-0")
        assert typed(tmp_path) == 0
        assert state() == before
    assert files("typed/err-avro") > 2
    assert maintain.main(["--lake", str(tmp_path / "lake"), "--vacuum-hours", "0"]) == 0
    assert files("typed/err-avro") == 2  # the others were replaced
    assert typed(tmp_path) == 0
    assert state() == before

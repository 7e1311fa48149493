"""Typed tables and ``find`` of topics that Streams, Connect and MirrorMaker wrote, with a file of formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.decode_values import command as decode_values
from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.pipelines.scan import command as scan
from tests.support import apps_corpus as apps
from tests.support.logs import put
from tests.support.segment_maker import Batch, Record
from tests.unit.values.test_payloads import same


def formats_file(root: Path, cluster: str) -> str:
    path = root / f"{cluster}.yml"
    path.write_text(yaml.safe_dump(apps.said(cluster)))
    return str(path)


def check_table(cluster: str, topic: str, rows: list[dict[str, Any]]) -> None:
    """Holds the rows of a typed table to what the application's classes decode."""
    kind = apps.kinds()[cluster, topic]["kind"]
    by_offset = {row["offset"]: row for row in rows}
    lines = apps.oracle()[cluster, topic]
    assert by_offset.keys() == {line["offset"] for line in lines}
    for line in lines:
        row = by_offset[line["offset"]]
        if kind.startswith("mm2"):
            assert apps.together(row["key"], row["value"]) == line["decoded"]
        elif "decoded" in line and kind != "dlq":
            for side, expected in apps.wanted(cluster, line).items():
                held = row[side]
                is_json = kind in ("connect-json", "connect-offset") or (side, kind[:7]) == (
                    "value",
                    "connect",
                )
                own = json.loads(held) if is_json and held is not None else apps.canonical(held)
                assert same(own, expected), (line, held)


@pytest.mark.parametrize("cluster", apps.CLUSTERS)
def test_tables_hold_what_the_classes_decode(cluster: str, tmp_path: Path) -> None:
    lake, formats = str(tmp_path / "lake"), formats_file(tmp_path, cluster)
    words = ["--source", str(apps.DATA / cluster), "--lake", lake, "--typed", "--formats", formats]
    assert decode_batches.main(words) == 0
    for own, topic in apps.oracle():
        if own == cluster:
            rows = DeltaTable(f"{lake}/typed/{topic}").to_pyarrow_table().to_pylist()
            check_table(cluster, topic, rows)


def test_a_file_of_formats_that_comes_later_decodes_anew(tmp_path: Path) -> None:
    topic, lake = "views-closed", str(tmp_path / "lake")
    words = ["--source", str(apps.DATA / "streams"), "--lake", lake, "--topics", topic]
    assert decode_batches.main(words) == 0
    assert decode_values.main(["--lake", lake]) == 0
    assert str(DeltaTable(f"{lake}/typed/{topic}").to_pyarrow_table().schema.field("key").type) == "binary"
    assert decode_values.main(["--lake", lake, "--formats", formats_file(tmp_path, "streams")]) == 0
    check_table("streams", topic, DeltaTable(f"{lake}/typed/{topic}").to_pyarrow_table().to_pylist())


@pytest.mark.parametrize("has_formats", [True, False])
def test_find_gives_records_of_mirror_maker_and_headers_of_dead_letters(
    has_formats: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for cluster in apps.CLUSTERS:
        more = ("--formats", formats_file(tmp_path, cluster)) if has_formats else ()
        words = [str(apps.DATA / cluster), "--format", "json", "--typed", *more]
        assert find.main(words) == 0
        lines = map(json.loads, capsys.readouterr().out.splitlines())
        found = {(line["topic"], line["offset"]): line for line in lines}
        for (own, topic), records in apps.oracle().items():
            whole = apps.kinds()[own, topic]["kind"].startswith(("mm2", "dlq"))
            for one in records if own == cluster and whole else ():
                assert found[topic, one["offset"]]["record_typed"] == one["decoded"]


def test_a_wrong_file_of_formats_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "formats.yml"
    path.write_text("orders: {kind: windows}")
    words = [str(apps.DATA / "streams"), "--format", "json", "--typed", "--formats", str(path)]
    assert find.main(words) == 2
    assert "orders: unknown kind 'windows'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("has_formats", "said"),
    [
        (False, {"prices": "double, recognised", "views-closed": "bytes"}),
        (True, {"prices": "double, declared", "views-closed": "time-windowed, declared"}),
    ],
)
def test_scan_says_what_topics_hold_and_how_sure_it_is(
    has_formats: bool, said: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One format a side, and no list of ids that no registry has."""
    more = ("--formats", formats_file(tmp_path, "streams")) if has_formats else ()
    assert scan.main([str(apps.DATA / "streams"), "--json", *more]) == 0
    payloads = json.loads(capsys.readouterr().out)["payloads"]
    assert [one for one in payloads if one["schema_ids"]] == []
    reasons = {one["topic"]: one["reasons"] for one in payloads if one["reasons"]}
    assert reasons == ({"amounts": ["truncated"]} if has_formats else {})  # it has three bytes on purpose
    found = {
        (one["topic"], one["side"]): ", ".join(filter(None, (one["format"], one["certainty"])))
        for one in payloads
    }
    assert len(found) == len(payloads) - 2 + has_formats  # amounts and dead letters: numbers and other bytes
    sides = {("prices", "value"): said["prices"], ("views-closed", "key"): said["views-closed"]}
    assert {side: found[side] for side in sides} == sides
    assert found["attic-old-qty-repartition", "value"].partition(", ")[0] == "changed"


def test_a_lake_keeps_the_formats_until_others_replace_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, lake, formats = "views-closed", str(tmp_path / "lake"), formats_file(tmp_path, "streams")
    words = ["--source", str(apps.DATA / "streams"), "--lake", lake, "--topics", topic]
    assert decode_batches.main([*words, "--no-typed"]) == 0
    assert decode_values.main(["--lake", lake, "--formats", formats]) == 0
    written = DeltaTable(f"{lake}/typed/{topic}").version()
    capsys.readouterr()
    assert decode_values.main(["--lake", lake]) == 0
    assert "nothing new" in capsys.readouterr().out
    assert DeltaTable(f"{lake}/typed/{topic}").version() == written

    def key_formats(*more: str) -> set[str]:
        capsys.readouterr()
        assert find.main(["--lake", lake, "--typed", "--format", "json", *more]) == 0
        return {json.loads(line)["key_format"] for line in capsys.readouterr().out.splitlines()}

    none = tmp_path / "none.yml"
    none.write_text("{}")
    assert key_formats() == {"time-windowed"}
    assert key_formats("--formats", str(none)) == {"bytes"}
    assert decode_values.main(["--lake", lake, "--formats", str(none)]) == 0
    assert "replace other formats that the lake kept" in capsys.readouterr().err
    assert key_formats() == {"bytes"}


@pytest.mark.parametrize("misfit", [230, 510])
def test_all_commands_recognise_a_topic_by_the_same_500_records(
    misfit: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Longs in segments of 60 records; one record in the second partition is no long."""
    logs, lake = tmp_path / "logs", str(tmp_path / "lake")
    for base in range(0, 600, 60):
        values = (
            b"\1\2\3" if number == misfit else number.to_bytes(8, "big") for number in range(base, base + 60)
        )
        records = tuple(Record(key=b"k", value=value) for value in values)
        partition, offset = divmod(base, 180)
        put(logs / f"amounts-{partition}", offset, Batch(records, base_offset=offset).encode())
    assert decode_batches.main(["--source", str(logs), "--lake", lake, "--typed"]) == 0
    is_long = misfit > 500
    kinds = {kind.words for kind in scan.scan(logs).payloads if kind.side == "value"}
    assert kinds == ({"long, recognised"} if is_long else {"number", "bytes"})
    typed = DeltaTable(f"{lake}/typed/amounts").to_pyarrow_table().schema.field("value").type
    assert str(typed) == ("struct<long: int64, bytes: binary>" if is_long else "binary")
    for place in ([str(logs)], ["--lake", lake]):
        capsys.readouterr()
        assert find.main([*place, "--typed", "--format", "json"]) == 0
        formats = {json.loads(line)["value_format"] for line in capsys.readouterr().out.splitlines()}
        assert formats == ({"long", "bytes"} if is_long else {"bytes"})

"""What names, killed runs and people leave in a lake hinders no later job. No Spark."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from kafka_log_lake import connect
from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.decode_values import command as decode_values
from kafka_log_lake.pipelines.engine.delta import open_table
from kafka_log_lake.pipelines.maintain import command as maintain
from kafka_log_lake.pipelines.quality_report import command as quality_report
from kafka_log_lake.pipelines.query import command as query
from kafka_log_lake.pipelines.scan import command as scan
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS
from kafka_log_lake.udfs.format.report_tables import REPORT_TABLES
from kafka_log_lake.udfs.format.schema import TABLES
from tests.support.answers import all_rows, asked
from tests.support.dying import POINTS, DiedError, arrange
from tests.support.logs import batch, batches, contents, data, marker, put


def decode(root: Path, lake: str = "lake", *options: str) -> int:
    return decode_batches.main(["--source", str(root / "logs"), "--lake", str(root / lake), *options])


def test_topics_whose_folders_would_be_too_long_are_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """deltalake escapes each byte but letters and digits as three; a folder has at most 255 bytes."""
    fit, too_long = ("sound", "t" * 249, "%" * 83), ("%" * 84, "\u00e9" * 42)
    for topic in (*fit, *too_long, os.fsdecode(b"\xff")):
        put(tmp_path / "logs" / f"{topic}-0", 0, batch(0))
    assert decode(tmp_path) == 0
    said = capsys.readouterr()
    assert scan.main([str(tmp_path / "logs")]) == 0
    assert "2 files skipped: topic name too long for a folder of the lake" in said.err
    for out in (said.out, capsys.readouterr().out):
        assert "; not checked: 3 files that no table can hold" in out.splitlines()[-1]
    put(tmp_path / "logs" / "sound-0", 3, batch(3))
    assert decode(tmp_path) == maintain.main(["--lake", str(tmp_path / "lake")]) == 0
    found = asked(tmp_path / "lake", "SELECT topic, count(*) FROM records GROUP BY topic")
    assert dict(found) == dict.fromkeys(fit, 3) | {"sound": 6}
    assert not list((tmp_path / "lake" / "_runs").glob("*.json"))


@pytest.mark.parametrize("job", ["decode", "maintain"])
def test_an_intent_that_cannot_be_finished_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    """A run was killed between its commits, and a file that it still has to add is gone."""
    put(tmp_path / "logs" / "t-0", 0, *batches(0, 2), data(6, 7))
    assert decode(tmp_path) == 0
    put(tmp_path / "logs" / "t-0", 7, marker(7, 7), batch(8))
    with monkeypatch.context() as patched:

        def die() -> None:
            raise DiedError

        arrange(POINTS["records added"], die, patched.setattr)
        with pytest.raises(DiedError):
            decode(tmp_path)
    (intent,) = (tmp_path / "lake" / "_runs").glob("*.json")
    (lost,) = [file for file in json.loads(intent.read_text())["files"] if file["table"] == "batches"]
    (tmp_path / "lake" / "batches" / lost["path"]).unlink()
    if job == "maintain":
        assert maintain.main(["--lake", str(tmp_path / "lake")]) == 0
        assert not intent.exists()
    capsys.readouterr()
    assert decode(tmp_path) == 0
    assert job == "maintain" or "can't be finished (files that it wrote are gone)" in capsys.readouterr().err
    assert decode(tmp_path, "fresh") == 0
    assert contents(str(tmp_path / "lake")) == contents(str(tmp_path / "fresh"))


def without_own(lake: Path) -> dict[str, list[dict[str, Any]]]:
    found = contents(str(lake))
    return {
        name: sorted(({k: v for k, v in row.items() if k != "note"} for row in rows), key=repr)
        for name, rows in found.items()
    }


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"files": 7}'])
def test_an_intent_that_is_none_is_named(
    lake_template: str, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(lake_template, tmp_path / "lake")
    put(tmp_path / "logs" / "t-0", 0, batch(0))
    (tmp_path / "lake" / "_runs").mkdir(exist_ok=True)
    (tmp_path / "lake" / "_runs" / "kafka-log-decode-0000000001.json").write_text(text)
    assert decode(tmp_path, "lake") == 2
    assert "an unfinished run that can't be read" in capsys.readouterr().err


def test_a_column_that_a_user_added_to_each_table_breaks_no_job(tmp_path: Path) -> None:
    lake, logs = tmp_path / "lake", tmp_path / "logs"
    put(logs / "t-0", 0, *batches(0, 2), data(6, 7))
    put(logs / "t-1", 0, batch(0), batch(3)[:-1] + b"\xff")
    report = ["--lake", str(lake), "--output", str(tmp_path / "page"), "--fail-on", "never"]
    assert decode(tmp_path, "lake", "--with-indexes") == 0
    assert quality_report.main(report) == 0
    tables = [t.name for t in (*TABLES, *REPORT_TABLES) if (lake / t.name).is_dir()]
    assert {"segments", "records", "batches", "quarantine", "transactions", "runs"} <= set(tables)
    for name in tables:
        DeltaTable(lake / name).alter.add_columns([Field("note", PrimitiveType("string"), nullable=True)])
    put(logs / "t-0", 7, marker(7, 7), batch(8))  # grown
    put(logs / "t-1", 0, batch(0, text="other"), batch(3)[:-1] + b"\xff")  # rewritten
    put(logs / "u-0", 0, batch(0))
    assert decode(tmp_path, "lake", "--with-indexes") == 0
    assert decode(tmp_path, "lake", "--redecode", ".*t-0.*") == 0
    assert maintain.main(["--lake", str(lake)]) == 0
    assert quality_report.main(report) == 0
    assert ingest_raw.main(["--source", str(logs), "--lake", str(lake)]) == 0
    assert decode(tmp_path, "fresh", "--with-indexes") == 0
    assert without_own(lake) == without_own(tmp_path / "fresh")
    with connect(str(lake)) as database:
        for view in SESSION_VIEWS:
            assert database.sql(all_rows(view)).fetchall() is not None, view.name
    for name in tables:
        assert "note" in [field.name for field in open_table(str(lake / name)).schema().fields], name


def test_a_folder_with_an_illegal_name_costs_no_other_topic_its_typed_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Delta escapes a topic's name in paths, and the folder of ``..`` would be that of the lake itself."""
    for topic in ("sound", "a\nb", "..", "."):
        put(tmp_path / "logs" / f"{topic}-0", 0, batch(0))
    lake = str(tmp_path / "lake")
    assert decode(tmp_path) == decode_values.main(["--lake", lake]) == 0
    said = capsys.readouterr().err
    assert all(f"warning: {name} gets no typed table" in said for name in ("a\\nb", "..", "."))
    assert not (tmp_path / "lake/_delta_log").exists()
    assert not (tmp_path / "lake/typed/_delta_log").exists()
    assert len(open_table(f"{lake}/typed/sound").to_pyarrow_table()) == 3
    (run,) = asked(lake, "SELECT run_id FROM runs WHERE job = 'decode'")
    assert decode(tmp_path, "lake", "--redecode", ".") == 0
    assert connect(lake, at=run[0]).sql("SELECT count(*) FROM records").fetchall() == [(12,)]


def test_a_lake_that_lost_a_table_or_can_not_read_one_is_no_sound_lake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "logs" / "t-0", 0, batch(0))
    assert decode(tmp_path) == 0
    lake, of_batches = ["--lake", str(tmp_path / "lake")], tmp_path / "lake" / "batches"

    def readers() -> list[int]:
        report = quality_report.main([*lake, "--output", str(tmp_path / "report")])
        return [maintain.main(lake), query.main([*lake, "SELECT * FROM topics"]), report]

    max((of_batches / "_delta_log").iterdir()).write_text("{no JSON")
    capsys.readouterr()
    assert readers() == [2, 2, 2]
    printed = capsys.readouterr().err
    assert printed.count(f"error: cannot read the table {of_batches}: ") == len(printed.splitlines()) == 3
    shutil.rmtree(of_batches)
    assert decode(tmp_path) == 2  # though there is nothing new
    put(tmp_path / "logs" / "t-0", 3, batch(3))
    assert [decode(tmp_path), *readers()] == [2, 2, 2, 2]
    printed = capsys.readouterr().err
    assert (
        printed.count("has no table batches any more: restore the folder") == len(printed.splitlines()) == 5
    )


@pytest.mark.parametrize("name", ["quarantine", "segments"])
def test_another_table_in_a_folder_of_the_lake_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "logs" / "t-0", 0, batch(0))
    assert decode(tmp_path) == 0
    folder = tmp_path / "lake" / name
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "lake" / "records", folder)
    put(tmp_path / "logs" / "t-0", 3, batch(3))
    capsys.readouterr()
    codes = [decode(tmp_path), query.main(["--lake", str(tmp_path / "lake"), "SELECT * FROM crc_report"])]
    assert codes == [2, 2]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"error: {folder} is not the table {name} of this lake, it has no column ")
        assert line.endswith("put the lake's own folder back there, or decode into a new --lake")

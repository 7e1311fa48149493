"""No stored value, however mad, takes an answer away or changes the rows of another log.

A lake of sound and damaged logs, and the same lake with mad logs next to them: every view, check and report
answers on both, and says the same of the logs that are not mad.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from duckdb import DuckDBPyConnection

from kafka_log_lake import connect
from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.find import command as find
from kafka_log_lake.pipelines.format_report.stages import LAYOUTS
from kafka_log_lake.pipelines.quality_report import command as quality_report
from kafka_log_lake.pipelines.scan import command as scan
from kafka_log_lake.pipelines.scan.findings import ScannedLog
from kafka_log_lake.pipelines.views.declared import PUBLIC, SESSION_VIEWS, View
from kafka_log_lake.udfs.format.encode import PlainRecord
from tests.support.answers import all_rows
from tests.support.drawn import first
from tests.support.mad_logs import INT64, write_mad_logs, write_mad_settings
from tests.support.random_logs import random_logs, write_files

ENDS = (-(2**63), 2**63 - 1)
# With values as far out as they go
MAD_CALLS = [
    *(f"retention_report(at_ms => {at}, retention_ms => {2**63 - 1}, retention_bytes => 0)" for at in ENDS),
    *(f"retention_report(at_ms => 0, retention_ms => {ms}, retention_bytes => {ms})" for ms in ENDS),
    *(f"compaction_report(at_ms => {at}, min_compaction_lag_ms => {2**63 - 1})" for at in ENDS),
    f"hanging_transactions(timeout_ms => {-(2**63)})",
    f"timestamp_anomalies(max_future_ms => {2**63 - 1}, max_disorder_ms => {-(2**63)})",
    "group_lag_at('mad10', TIMESTAMP '9999-12-31 00:00:00Z')",
    "key_history('mad.0', CAST('k' AS BLOB))",
]


SOUND_LOGS: dict[str, ScannedLog] = {}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the logs, and two lakes of them: ``sound`` without the mad logs, ``mixed`` with them."""
    root = tmp_path_factory.mktemp("extremes").resolve()
    write_files(root, random_logs(5, 12))
    for lake in ("sound", "mixed"):
        argv = ["--source", str(root / "logs"), "--lake", str(root / lake), "--with-indexes"]
        assert decode_batches.main(argv) == 0
        SOUND_LOGS.update(scanned(root) if lake == "sound" else {})
        write_mad_logs(root / "logs")
        write_mad_settings(root / "logs")
    return root


def scanned(root: Path) -> dict[str, ScannedLog]:
    """What a scan finds of each log, by its folder."""
    return {one.partition_dir: one for one in scan.scan(Settings(source=(str(root / "logs"),))).logs}


@pytest.fixture(scope="module")
def sound(made: Path) -> Iterator[DuckDBPyConnection]:
    with connect(str(made / "sound")) as database:
        yield database


@pytest.fixture(scope="module")
def mixed(made: Path) -> Iterator[DuckDBPyConnection]:
    with connect(str(made / "mixed")) as database:
        yield database


def rows(database: DuckDBPyConnection, relation: str) -> tuple[Counter[str], int]:
    """The rows that name no mad log, no internal topic and no run; and how many others there are.

    Of a group without a commit the row has no topic, and says what the lake has of groups.
    """
    found: pa.Table = database.sql(f"SELECT * FROM {relation}").to_arrow_table()
    of_runs = ("run_id", "decoded_at", "read_at", "open_now_ms")  # another one a moment later
    # of the lake: whether it has commits at all
    of_lake = ("note", "unread_records") if relation.startswith("unused_topics") else ()
    kept = [name for name in found.column_names if name not in (*of_runs, *of_lake)]
    texts = [repr(row) for row in found.select(kept).to_pylist()]
    others = ("mad", "'__", "/__", "'topic': None")
    own = [text for text in texts if not any(word in text for word in others)]
    return Counter(own), len(texts) - len(own)


# No log of this lake has a row there
EMPTY = {"share_group_states", "remote_log_metadata", "group_lag_at", "key_history", "consumer_groups"}

EMPTY |= {
    *PUBLIC["applications"],
    "connect_records",
    "connect_commits",
    "mm2_records",
    "share_groups",
    "group_members",
}
EMPTY |= {"healed_records", "encryption_keys", "schema_encoders", "current_checkpoints", "unread_internal"}


@pytest.mark.parametrize("view", SESSION_VIEWS, ids=lambda view: view.name)
def test_every_view_answers_and_says_the_same_of_other_logs(
    sound: DuckDBPyConnection, mixed: DuckDBPyConnection, view: View
) -> None:
    relation = all_rows(view).removeprefix("SELECT * FROM ")
    found, mad = rows(mixed, relation)
    assert found == rows(sound, relation)[0]
    assert found or mad or view.name in EMPTY


@pytest.mark.parametrize("call", MAD_CALLS)
def test_views_answer_for_mad_arguments(
    sound: DuckDBPyConnection, mixed: DuckDBPyConnection, call: str
) -> None:
    assert rows(mixed, call)[0] == rows(sound, call)[0]


def checked(made: Path, lake: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The rows of ``quality_metrics`` of logs that are not mad."""
    argv = ["--lake", str(made / lake), "--output", str(made / f"page of {lake}"), "--fail-on", "never"]
    assert quality_report.main(argv) == 0, capsys.readouterr().err
    with connect(str(made / lake)) as database:
        found: pa.Table = database.sql(
            "SELECT * EXCLUDE (run_id, created_at, detail) FROM quality_metrics WHERE topic NOT LIKE 'mad%' "
            "AND topic NOT LIKE '\\_\\_%' ESCAPE '\\' ORDER BY ALL"
        ).to_arrow_table()
    return found.to_pylist()


def test_every_check_answers(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = checked(made, "sound", capsys)
    assert sound == checked(made, "mixed", capsys)
    assert {row["check"] for row in sound} > {"offset_gaps", "timestamp_future", "hanging_transactions"}


def test_a_scan_answers_and_says_the_same_of_other_logs(made: Path) -> None:
    found = scanned(made)
    assert found.items() > SOUND_LOGS.items()
    assert any("mad-late-2147483647" in folder for folder in found)


CONDITIONS = ["--offset 9223372036854775000:", "--since 2100-01-01T00:00:00Z", ""]


@pytest.mark.parametrize("conditions", first(1, CONDITIONS))
def test_find_answers(made: Path, capsys: pytest.CaptureFixture[str], conditions: str) -> None:
    found = []
    for argv in ([str(made / "logs")], ["--lake", str(made / "mixed")]):
        assert find.main([*argv, *conditions.split(), "--format", "json"]) in (0, 5)
        lines = map(json.loads, capsys.readouterr().out.splitlines())
        found.append(
            sorted((x["segment"], x["batch_position"], x["offset"], str(x["outcome"])) for x in lines)
        )
    assert found[0] == found[1]
    assert found[0] if conditions else len(found[0]) > 1000


def test_each_format_measures_records_of_mad_offsets_and_timestamps() -> None:
    for value in INT64:
        records = [PlainRecord(at, at, None, b"v") for at in (value, -(2**63), 2**63 - 1, 0)]
        sizes = {name: len(encode(records)) for name, (_, encode) in LAYOUTS.items()}
        assert (sizes["v0"], sizes["v1"]) == (4 * 27, 4 * 35)
        assert 4 * 7 < sizes["v3_proposal"] == sizes["v2"] - 4

"""What other systems see of runs: metrics, lineage, commits that name their run, named jobs of Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pyspark.java_gateway import ensure_callback_server_started

from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.decode.metrics import Metrics
from kafka_log_lake.pipelines.decode.watch import Batching
from kafka_log_lake.pipelines.tasks.slice_rows import SliceReader
from tests.support import as_command
from tests.support.dying import POINTS, DiedError, arrange
from tests.support.logs import batches, data, marker, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_log_lake.pipelines.plan.runs import Plan


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Eight records and a damaged range in two segments, of which one is transactional."""
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 2), b"garbage" * 10)
    put(tmp_path / "logs" / "b-0", 0, data(0, 7), marker(1, 7))
    return tmp_path / "logs"


def measured(path: Path) -> dict[str, float]:
    """The samples of a metrics file: name, and the value of its label if it has one."""
    text = path.read_text()
    assert text.endswith("# EOF\n")
    samples = (one for family in text_string_to_metric_families(text) for one in family.samples)
    return {" ".join([s.name.removeprefix("kafka_log_lake_"), *s.labels.values()]): s.value for s in samples}


def test_a_run_writes_its_metrics(tmp_path: Path, logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--source", str(logs), "--lake", str(tmp_path / "lake"), "--metrics", str(tmp_path / "m.prom")]
    assert decode_batches.main([*argv, "--json"]) == 0
    found = measured(tmp_path / "m.prom")
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    for name in ("segments", "records", "bytes", "batches"):
        assert found[f"{name}_total"] == printed[name] > 0
    assert found["damaged_ranges_total"] == printed["damaged"] == 1
    assert found["damaged_bytes_total"] == 70
    assert found["phase_seconds_total committing"] == pytest.approx(
        printed["phases"]["committing"], abs=0.001
    )
    assert (found["runs_total done"], found["runs_total failed"], found["lag_bytes"]) == (1, 0, 0)
    assert ingest_raw.main(argv) == 0
    assert measured(tmp_path / "m.prom")["bytes_total"] == sum(f.stat().st_size for f in logs.rglob("*.log"))


def test_a_run_that_fails_is_counted(tmp_path: Path) -> None:
    argv = ["--source", str(tmp_path), "--lake", str(tmp_path / "lake"), "--metrics", str(tmp_path / "m")]
    assert decode_batches.main(argv) == 2
    assert measured(tmp_path / "m")["runs_total failed"] == 1


@pytest.mark.parametrize("option", ["--metrics", "--lineage"])
def test_a_file_that_cannot_be_is_one_line(
    tmp_path: Path, logs: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    argv = ["--source", str(logs), "--lake", str(tmp_path / "lake"), option, str(tmp_path / "no" / "file")]
    assert decode_batches.main(argv) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "lake").exists()


def test_metrics_that_find_no_room_leave_nothing(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    metrics = Metrics(str(tmp_path / "m"))
    monkeypatch.setattr(os, "replace", full)
    metrics._write(tmp_path / "m")
    assert caplog.messages == [f"--metrics {tmp_path}/m can't be written: No space left on device"]
    assert list(tmp_path.iterdir()) == [logs]


def test_a_pipe_that_gets_metrics_stays_a_pipe(tmp_path: Path) -> None:
    """A job of root must not put a file in the place of /dev/stdout."""
    os.mkfifo(tmp_path / "pipe")
    with open(os.open(tmp_path / "pipe", os.O_RDWR), "rb", buffering=0) as pipe:
        Metrics(str(tmp_path / "pipe"))._write(tmp_path / "pipe")
        assert pipe.read(1 << 16).endswith(b"# EOF\n")
    assert (tmp_path / "pipe").is_fifo()


def test_what_waits_is_the_lag() -> None:
    now = 100.0

    class Planned:
        has_changes, planned, new_bytes = True, 3, 700

    plan: Plan = Planned()  # type: ignore[assignment]
    batching = Batching(Settings(commit_bytes=1000), clock=lambda: now)
    assert batching.is_due(plan)  # the first run
    batching.done()
    assert not batching.is_due(plan)
    now = 107.5
    assert not batching.is_due(plan)
    assert batching.lag == (3, 700, 7.5)


def test_lineage_is_a_start_and_an_end_for_each_run_with_something_to_do(tmp_path: Path, logs: Path) -> None:
    events = tmp_path / "events.json"
    argv = ["--source", str(logs), "--lake", str(tmp_path / "lake"), "--lineage", str(events)]
    for _ in range(2):  # the second finds nothing new
        assert decode_batches.main(argv) == 0
    start, end = map(json.loads, events.read_text().splitlines())
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"].replace("-", "") == said(tmp_path / "lake", "records")[-1]["run_id"]
    assert end["inputs"][0]["name"] == str(logs)
    assert end["inputs"][0]["inputFacets"]["inputStatistics"]["size"] > 0
    rows = {
        one["name"].rpartition("/")[2]: one["outputFacets"]["outputStatistics"]["rowCount"]
        for one in end["outputs"]
        if one.get("outputFacets")
    }
    assert rows == {"records": 8, "batches": 4, "quarantine": 1}
    assert {f"{tmp_path}/lake/segments", f"{tmp_path}/lake/transactions"} < {
        o["name"] for o in end["outputs"]
    }


def test_lineage_of_a_run_that_fails_says_why(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tmp_path / "events.json"

    def full() -> None:
        raise OSError(28, "No space left on device")

    arrange(POINTS["before the ledger"], full, monkeypatch.setattr)
    argv = ["--source", str(logs), "--lake", str(tmp_path / "lake"), "--lineage", str(events)]
    assert decode_batches.main(argv) == 1
    end = json.loads(events.read_text().splitlines()[-1])
    assert end["eventType"] == "FAIL"
    assert "No space left" in end["run"]["facets"]["errorMessage"]["message"]


def said(lake: Path, table: str) -> list[dict[str, Any]]:
    """What the commits of a table say of their runs, oldest first."""
    history = DeltaTable(lake / table).history()
    return [json.loads(one["userMetadata"]) for one in reversed(history) if "userMetadata" in one]


def test_each_commit_names_its_run_its_source_and_what_it_changed(tmp_path: Path, logs: Path) -> None:
    lake = tmp_path / "lake"
    settings = Settings(source=(str(logs),), lake=str(lake))
    as_command.decode(None, settings)
    (runs,) = DeltaTable(lake / "runs").to_pyarrow_table().to_pylist()
    rows = {"records": 8, "batches": 4, "quarantine": 1, "transactions": 1}
    for table in ("records", "batches", "quarantine", "transactions", "segments"):
        (one,) = said(lake, table)
        assert (one["run_id"], one["source"]) == (runs["run_id"], [str(logs)])
        assert one["metrics"].get("rows_added") == rows.get(table)
    assert said(lake, "segments")[0]["metrics"] == {"segments": 2, "bytes": runs["bytes"], "dropped": 0}
    put(logs / "b-0", 0, data(0, 7), marker(1, 7), data(2, 7), marker(3, 7))
    as_command.decode(None, settings)
    assert said(lake, "records")[-1]["metrics"]["rows_added"] == 2
    assert said(lake, "transactions")[-1]["metrics"]["files_removed"] == 1


@pytest.mark.parametrize("point", ["after the intent", "before the ledger", "before the intent goes"])
def test_a_run_that_was_killed_gets_its_row_from_the_next(
    tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    lake = tmp_path / "lake"
    settings = Settings(source=(str(logs),), lake=str(lake))
    (logs / "meta.properties").write_text("version=1\ncluster.id=shop-1\nnode.id=1\n")

    def die() -> None:
        raise DiedError

    with monkeypatch.context() as patch:
        arrange(POINTS[point], die, patch.setattr)
        with pytest.raises(DiedError):
            as_command.decode(None, settings)
    as_command.decode(None, settings)
    as_command.decode(None, settings)
    (row,) = DeltaTable(lake / "runs").to_pyarrow_table().to_pylist()
    (commit,) = said(lake, "segments")
    counts = ("segments", "batches", "records", "damaged", "bytes")
    sizes = sum(f.stat().st_size for f in logs.rglob("*.log"))
    assert tuple(row[name] for name in counts) == (2, 4, 8, 1, sizes)
    assert (row["run_id"], row["job"], row["seconds"]) == (commit["run_id"], "decode", None)
    assert row["cluster_id"] == "shop-1"


@pytest.mark.spark
def test_spark_shows_jobs_by_run_and_phase(
    spark: SparkSession, tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, seen = spark.sparkContext, []
    names = ("spark.jobGroup.id", "spark.job.description")

    def note() -> None:
        seen.append(tuple(context.getLocalProperty(name) for name in names))

    context.setLocalProperty(names[1], "mine")
    arrange((SliceReader, "rows", 1, "before"), note, monkeypatch.setattr)
    settings = Settings(source=(str(logs),), lake=str(tmp_path / "lake"))
    group = f"kafka-log-lake run {decode_batches.run(spark, settings).run_id}"
    size = sum(path.stat().st_size for path in logs.rglob("*.log"))
    assert 0 < size < 1000
    assert seen == [(group, f"decoding: 2 segments, {size} B")]
    assert [context.getLocalProperty(name) for name in names] == [None, "mine"]
    context.setLocalProperty(names[1], None)  # type: ignore[arg-type]


class _Listener:
    """What a user's listener of queries gets: the observed metrics of each query."""

    def __init__(self) -> None:
        self.seen: list[dict[str, int]] = []

    def onSuccess(self, function: str, execution: Any, nanoseconds: int) -> None:  # noqa: N802
        metrics = execution.observedMetrics()
        if metrics.contains("kafka_log_lake"):
            row = metrics.apply("kafka_log_lake")
            self.seen.append({name: row.getLong(row.fieldIndex(name)) for name in row.schema().fieldNames()})

    def onFailure(self, function: str, execution: Any, error: Any) -> None:  # noqa: N802
        pass

    class Java:
        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)


@pytest.mark.spark
def test_a_listener_of_queries_gets_what_was_decoded(spark: SparkSession, tmp_path: Path, logs: Path) -> None:
    ensure_callback_server_started(spark.sparkContext._gateway)
    session: Any = spark
    manager, listener = session._jsparkSession.listenerManager(), _Listener()
    manager.register(listener)
    try:
        settings = Settings(source=(str(logs),), lake=str(tmp_path / "lake"))
        run = decode_batches.run(spark, settings)
        session._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        manager.unregister(listener)
    size = sum(path.stat().st_size for path in logs.rglob("*.log"))
    counted = {"records": run.records, "batches": run.batches, "damaged_ranges": 1, "damaged_bytes": 70}
    assert listener.seen == [counted | {"sound_bytes": size - 70}]

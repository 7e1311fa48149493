"""Views over a small lake for each test: hostile names in commands, and rows that no ledger names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.views.declared import VIEWS, View
from tests.support import as_command
from tests.support.lake_rows import add_unpublished
from tests.support.logs import batch, data, marker, put
from tests.support.made_views import HOUR, NOW, asking, sent, written
from tests.support.segment_maker import LOG_APPEND, TRANSACTIONAL, Batch, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_commands_quote_a_hostile_topic(spark: SparkSession, tmp_path: Path) -> None:
    bad, lake = batch(0, 1), str(tmp_path / "lake")
    flags, open_ = LOG_APPEND | TRANSACTIONAL, (Record(value=b"v"),)
    start = Batch(open_, base_offset=0, flags=flags, producer_id=7).encode()
    later = Batch(open_, base_offset=1, flags=LOG_APPEND, max_timestamp=NOW + HOUR).encode()
    put(tmp_path / "src" / "it's; rm-0", 0, start, later)
    put(tmp_path / "src" / "it's; rm-1", 0, bad[:-1] + bytes([bad[-1] ^ 1]), batch(5, 1))
    put(tmp_path / "src" / "a\x03\n-0", 0, bad[:-1] + bytes([bad[-1] ^ 1]), batch(5, 1))
    as_command.decode(spark, Settings(source=(str(tmp_path / "src"),), lake=lake))
    ask = asking(lake)
    (lost, silent) = ask("SELECT reset_command FROM lost_offsets ORDER BY topic DESC")
    assert "--topic 'it'\\''s; rm:1' --reset-offsets" in lost["reset_command"]
    assert silent["reset_command"] is None, "pasted, its control characters would act"
    (hanging,) = ask("SELECT abort_command, check_command FROM hanging_transactions")
    assert "abort --topic 'it'\\''s; rm' --partition 0" in hanging["abort_command"]
    assert "find-hanging --topic 'it'\\''s; rm' --partition 0" in hanging["check_command"]


def test_views_see_nothing_that_the_ledger_does_not_name(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that a run is committing, or left behind when it was killed, change no view.

    The lake of test_engines has such rows too: Spark's views give what DuckDB's give.
    """
    bad, lake = batch(9, 2), str(tmp_path / "lake")
    ended = (data(0, 7, 2), marker(2, 7, commit=False))
    open_ = (data(20, 8, base_timestamp=NOW), written(21, NOW + HOUR), written(22, -1))
    put(tmp_path / "src" / "t-0", 0, *ended, sent(3, 0), batch(7, 2), bad[:-1] + b"~", *open_)
    (tmp_path / "src" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    as_command.decode(spark, Settings(source=(str(tmp_path / "src"),), lake=lake))
    ask = asking(lake)
    given = {"at_ms": NOW + 99 * HOUR}  # a default that is the time of asking would differ

    def relation(view: View) -> str:
        arguments = ", ".join(f"{p.name} => {given[p.name]}" for p in view.parameters if p.name in given)
        return f"SELECT * FROM {view.name}" + (f"({arguments})" if view.parameters else "")

    requested = {view.name: relation(view) for view in VIEWS}
    before = {name: sorted(map(repr, ask(statement))) for name, statement in requested.items()}
    without_rows = {name for name in before if not before[name]}
    elsewhere = {"log_clusters", "index_report", "healed_records", "encryption_keys", "schema_encoders"}
    assert without_rows == elsewhere | {"dead_letters"}  # of other tables and topics
    add_unpublished(lake)
    assert {name: sorted(map(repr, ask(statement))) for name, statement in requested.items()} == before

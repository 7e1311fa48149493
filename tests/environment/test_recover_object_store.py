"""Disks of brokers in a real S3 server: the same answers as of the same disks on this machine."""

from __future__ import annotations

from pathlib import Path

from kafka_log_lake import connect
from kafka_log_lake.pipelines.recover import command as recover
from tests.support.object_store import Store, uri
from tests.support.replica_disks import write
from tests.support.replica_sets import replica_set


def test_disks_in_an_object_store_give_the_same_log_and_bill(tmp_path: Path, store: Store) -> None:
    named = write(replica_set(5, moves_start=True), store.folder / "backup", 5, damage=0.1)
    names = [one.partition("=")[0] for one in named]
    answers: list[list[list[str]]] = []
    for root in (str(store.folder / "backup"), uri("backup")):
        sources = [f"--source={name}={root}/{name}" for name in names]
        lake = str(tmp_path / f"lake-{len(answers)}")
        assert recover.main([*sources, "--lake", lake, "--cores", "1"]) == 0
        answers.append([rows(lake, table, root) for table in ("records", "replica_report", "lost_records")])
        healed = connect(lake).execute("SELECT source_segment FROM healed_batches").fetchall()
        assert all(root in segment for (segment,) in healed)
    assert answers[0] == answers[1]


def rows(lake: str, table: str, root: str) -> list[str]:
    """Rows as text, without the names of places, and to the second of a file's time."""
    columns = "* REPLACE (date_trunc('second', last_written) AS last_written)" if "report" in table else "*"
    found = connect(lake).execute(f"SELECT {columns} FROM {table}").fetchall()
    return sorted(
        str(row).replace(f"file://{root}", root).replace(root, "").replace(lake, "") for row in found
    )

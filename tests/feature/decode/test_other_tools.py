"""Tables that other tools change, between runs and during them: rows as they left them, and jobs go on."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from deltalake import DeltaTable, Field, QueryBuilder
from deltalake.schema import PrimitiveType

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.maintain import command as maintain
from tests.support import as_command
from tests.support.answers import answer
from tests.support.drawn import first
from tests.support.dying import POINTS, arrange
from tests.support.logs import TABLES, batch, batches, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECODED = ("records", "batches", "quarantine", "transactions", "segments")


class Root(NamedTuple):
    logs: Path
    lake: Path


def run(root: Root, **options: str) -> None:
    as_command.decode(None, Settings(source=(str(root.logs),), lake=str(root.lake), **options))  # type: ignore[arg-type]


def rewrite(root: Root) -> None:
    """The cleaner leaves offsets 0 to 2 and 9 to 14 of a-0."""
    path = put(root.logs / "a-0", 0, batch(0), *batches(9, 2, text="w"))
    os.utime(path, (1_700_000_000,) * 2)


def offsets(root: Root) -> Counter[tuple[str, int]]:
    """Of ``records``, by DataFusion, which reads deletion vectors."""
    table = DeltaTable(root.lake / "records")
    found = QueryBuilder().register("r", table).execute('SELECT topic, "offset" AS place FROM r').read_all()
    return Counter(zip(*(found.column(name).to_pylist() for name in ("topic", "place")), strict=True))


def all_of(a: Any, b: Any) -> Counter[tuple[str, int]]:
    return Counter([*(("a", offset) for offset in a), *(("b", offset) for offset in b)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Root:
    root = Root(tmp_path_factory.mktemp("made") / "logs", tmp_path_factory.mktemp("lakes") / "lake")
    put(root.logs / "a-0", 0, *batches(0, 4))
    put(root.logs / "b-0", 0, *batches(0, 2))
    run(root)
    put(root.logs / "a-0", 0, *batches(0, 6))
    run(root)
    return root


@pytest.fixture
def root(made: Root, tmp_path: Path) -> Root:
    """A lake of two runs: offsets 0 to 17 of a-0 in two files, 0 to 5 of b-0."""
    put(made.logs / "a-0", 0, *batches(0, 6))
    return made._replace(lake=shutil.copytree(made.lake, tmp_path / "lake"))


def optimize(lake: Path) -> None:
    for table in TABLES:
        DeltaTable(lake / table).optimize.compact()
    DeltaTable(lake / "records").optimize.z_order(["offset"])


def vacuum(lake: Path) -> None:
    for table in TABLES:
        DeltaTable(lake / table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def add_column(lake: Path) -> None:
    for table in DECODED:
        delta = DeltaTable(lake / table)
        delta.alter.add_columns([Field("note", PrimitiveType("string"), nullable=True)])
        delta.update({"note": "'mine'"})


def delete(lake: Path) -> None:
    for table, condition in {"records": '"offset" = 1', "batches": "base_offset = 0"}.items():
        DeltaTable(lake / table).delete(condition)


def restore(lake: Path) -> None:
    """All tables as the first run left them."""
    for table in DECODED:
        delta = DeltaTable(lake / table)
        if delta.version():  # without a row there is the first version alone
            delta.restore(1)


def forget(lake: Path) -> None:
    DeltaTable(lake / "segments").delete("topic = 'a'")


WITHOUT_1 = all_of([0, *range(2, 18)], [0, *range(2, 6)])
# Operation -> the offsets that it leaves, and those once a-0 has grown to offset 23
OPERATIONS: dict[str, tuple[Callable[[Path], None], Any, Any]] = {
    "OPTIMIZE": (optimize, all_of(range(18), range(6)), all_of(range(24), range(6))),
    "VACUUM": (vacuum, all_of(range(18), range(6)), all_of(range(24), range(6))),
    "ADD COLUMN": (add_column, all_of(range(18), range(6)), all_of(range(24), range(6))),
    "DELETE": (delete, WITHOUT_1, WITHOUT_1 + all_of(range(18, 24), [])),
    "RESTORE": (restore, all_of(range(12), range(6)), all_of(range(24), range(6))),
    "DELETE of the ledger": (forget, all_of(range(18), range(6)), all_of(range(24), range(6))),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_between_runs(root: Root, name: str) -> None:
    operation, left, grown = OPERATIONS[name]
    operation(root.lake)
    vacuum(root.lake)
    assert offsets(root) == left
    put(root.logs / "a-0", 0, *batches(0, 8))
    run(root)
    assert offsets(root) == grown
    rewrite(root)
    run(root)
    b = [offset for topic, offset in grown if topic == "b"]
    assert offsets(root) == all_of([0, 1, 2, *range(9, 15)], b)
    run(root, redecode=".*")
    assert offsets(root) == all_of([0, 1, 2, *range(9, 15)], range(6))
    counted = answer(str(root.lake), "SELECT count(*) AS n FROM committed_records")
    assert counted == ['{"n":15}']


@pytest.mark.parametrize("point", ["after the intent", "records added", "before the ledger"])
@pytest.mark.parametrize("name", first(1, ["DELETE", "OPTIMIZE", "ADD COLUMN"]))
def test_during_a_run_that_replaces_rows(root: Root, name: str, point: str) -> None:
    operation, rows = OPERATIONS[name][0], [0, 1, 2, *range(9, 15)]
    rewrite(root)
    with pytest.MonkeyPatch.context() as patch:
        arrange(POINTS[point], lambda: operation(root.lake), patch.setattr)
        run(root)
    without = [1] if name == "DELETE" else []
    gone = without if point != "after the intent" else []  # the rows that it deleted were replaced after
    a = [offset for offset in rows if offset not in gone]
    assert offsets(root) == all_of(a, [offset for offset in range(6) if offset not in without])
    run(root, redecode=".*")
    assert offsets(root) == all_of(rows, range(6))


def test_a_column_of_a_user_keeps_its_values_in_rows_that_stay(root: Root) -> None:
    optimize(root.lake)
    add_column(root.lake)
    rewrite(root)
    run(root)
    for table in ("records", "batches", "segments"):
        found = DeltaTable(root.lake / table).to_pyarrow_table(columns=["topic", "note"]).to_pylist()
        notes = {(row["topic"], row["note"]) for row in found}
        assert ("b", "mine") in notes
        assert notes <= {("b", "mine"), ("a", None), *([("a", "mine")] if table == "segments" else [])}


@pytest.mark.spark
def test_rows_deleted_by_a_deletion_vector_stay_deleted(spark: SparkSession, root: Root) -> None:
    lake = root.lake
    DeltaTable(lake / "records").optimize.compact()
    for table in ("records", "batches", "segments"):
        spark.sql(
            f"ALTER TABLE delta.`{lake}/{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
    spark.sql(f"DELETE FROM delta.`{lake}/records` WHERE offset IN (1, 13)")
    spark.sql(f"DELETE FROM delta.`{lake}/batches` WHERE base_offset = 3")
    spark.sql(f"DELETE FROM delta.`{lake}/segments` WHERE topic = 'b' AND records > 100")
    assert offsets(root) == WITHOUT_1 - all_of([13], [])

    def by_spark() -> Counter[tuple[str, int]]:
        rows = spark.read.format("delta").load(f"{lake}/records").collect()
        return Counter((row["topic"], row["offset"]) for row in rows)

    put(root.logs / "a-0", 0, *batches(0, 8))
    run(root)
    assert by_spark() == WITHOUT_1 - all_of([13], []) + all_of(range(18, 24), [])
    assert maintain.main(["--lake", str(lake), "--vacuum-hours", "0"]) == 0
    spark.sql(f"DELETE FROM delta.`{lake}/records` WHERE offset = 2")
    rewrite(root)
    run(root)  # a file of each topic has a deletion vector, and that of b stays as it is
    assert by_spark() == all_of([0, 1, 2, *range(9, 15)], [0, *range(3, 6)])
    run(root, redecode=".*")
    assert by_spark() == all_of([0, 1, 2, *range(9, 15)], range(6)) == offsets(root)


@pytest.mark.spark
def test_a_change_feed_and_a_stream_give_what_a_run_changed(
    spark: SparkSession, root: Root, tmp_path: Path
) -> None:
    path = str(root.lake / "records")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    begin = DeltaTable(path).version() + 1
    stream = (
        spark.readStream.format("delta").option("startingVersion", begin).option("skipChangeCommits", "true")
    )

    def streamed() -> Counter[tuple[str, int]]:
        """What the stream has given so far."""
        target = f"{tmp_path}/seen"
        writer = stream.load(path).writeStream.option("checkpointLocation", f"{tmp_path}/checkpoint")
        writer.trigger(availableNow=True).format("parquet").start(target).awaitTermination()
        rows = spark.read.schema("topic STRING, offset BIGINT").parquet(target).collect()
        return Counter((row["topic"], row["offset"]) for row in rows)

    def changes() -> Counter[tuple[str, str, int]]:
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        rows = feed.option("startingVersion", begin).load(path).collect()
        return Counter((row["_change_type"], row["topic"], row["offset"]) for row in rows)

    put(root.logs / "a-0", 0, *batches(0, 8))
    run(root)
    added = Counter(("insert", "a", offset) for offset in range(18, 24))
    assert changes() == added
    assert streamed() == all_of(range(18, 24), [])
    maintain.main(["--lake", str(root.lake)])  # merges files: no row is another
    assert changes() == added
    rewrite(root)
    run(root)
    found = changes() - added
    new = Counter(("insert", "a", offset) for offset in [0, 1, 2, *range(9, 15)])
    assert found == new + Counter(("delete", "a", offset) for offset in range(24))
    put(root.logs / "b-0", 0, *batches(0, 3))
    run(root)
    assert streamed() == all_of(range(18, 24), range(6, 9))

"""The recipe of the page for platforms, under spark-submit: Parquet out of JSON, back to Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from benchmarks.broker import source_jars
from kafka_log_lake import decode_folder
from kafka_log_lake.pipelines.cli.settings import Settings
from tests.kafka.broker import broker
from tests.support import as_command
from tests.support.docs import ROOT, blocks
from tests.support.logs import batch, put
from tests.support.segment_maker import Batch, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ["partition", "key", "value", "headers"]


def of_orders(folder: Path) -> list[dict[str, Any]]:
    return pa.Table.from_batches(decode_folder(folder, topics="orders")).select(COLUMNS).to_pylist()


def rows(folder: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in pq.read_table(folder).to_pylist())


def test_the_recipe_saves_parquet_and_writes_the_same_records_to_kafka(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    headers = ((b"h", None), (b"h", b"1"))
    json = [Record(b"k", b'{"id": %d, "name": "n%d"}' % (i, i), headers) for i in range(5)]
    put(logs / "orders-0", 0, Batch(tuple(json), base_offset=0).encode())
    put(logs / "orders-1", 7, batch(7, text="no json "))
    as_command.decode(spark, Settings(source=(str(logs),), lake=str(tmp_path / "lake")))
    (recipe,) = [block for block in blocks(ROOT / "docs" / "platform.md", "python") if "sys.argv" in block]
    (tmp_path / "recipe.py").write_text(recipe)

    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    submit += ["--jars", source_jars(), "--conf", "spark.ui.enabled=false"]
    submit += ["--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with broker(tmp_path / "broker", {"num.partitions": "2"}) as running:
        done = subprocess.run(
            [*submit, "recipe.py", running.address],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert of_orders(running.logs) == of_orders(logs)
    assert rows(tmp_path / "orders.parquet") == [
        *((i, i, f"n{i}") for i in range(5)),
        *((offset, None, None) for offset in (7, 8, 9)),
    ]

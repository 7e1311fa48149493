"""Functions of this project in tasks of Spark, as ``pool`` runs them in worker processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from pipelines.command.driver import driver_of
from pipelines.command.on_demand import SparkOnDemand
from pipelines.scanning.pool import Map

_TASKS_PER_CORE = 4  # so that a long one does not keep the others waiting


def spark_map(on_demand: SparkOnDemand) -> Map | None:
    """A map over Spark's tasks; None where the job has worker processes of this machine instead.

    The function is one that workers can import, what it takes and gives can be pickled.
    """
    if on_demand.is_plain:
        return None
    spark = on_demand.checked_spark

    def run(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        pickled = [pickle.dumps(item) for item in items]
        if not pickled:
            return iter(())
        tasks = min(len(pickled), _TASKS_PER_CORE * driver_of(spark).parallelism())
        numbers = pa.array(range(len(pickled)), pa.int32())
        task = pa.array([number % tasks for number in range(len(pickled))], pa.int32())
        rows = pa.table({"task": task, "number": numbers, "item": pa.array(pickled, pa.binary())})
        given = spark.createDataFrame(rows).repartitionById(tasks, "task").select("number", "item")
        done = given.mapInArrow(_stage(function), "number int, result binary").toArrow().sort_by("number")
        return (pickle.loads(one) for one in done.column("result").to_pylist())

    return run


def _stage(
    function: Callable[[Any], Any],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, item in zip(*batch.to_pydict().values(), strict=True):
                result = pickle.dumps(function(pickle.loads(item)))
                yield pa.RecordBatch.from_pydict(
                    {"number": pa.array([number], pa.int32()), "result": pa.array([result], pa.binary())}
                )

    return stage

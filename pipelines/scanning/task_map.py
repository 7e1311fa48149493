"""Functions of this project in tasks of Spark, or in the worker processes that run stages without it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from pipelines.command.driver import driver_of
from pipelines.command.on_demand import SparkOnDemand
from pipelines.scanning.pool import Map, stage_of
from udfs.worker import MakeStage

_TASKS_PER_CORE = 4  # so that a long one does not keep the others waiting


def task_map(on_demand: SparkOnDemand) -> Map:
    """A map over Spark's tasks, or over worker processes of this machine where the job has these.

    The function is one that workers can import, what it takes and gives can be pickled.
    """

    def run(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        pickled = [pickle.dumps(item) for item in items]
        if not pickled:
            return iter(())
        numbers = pa.array(range(len(pickled)), pa.int32())
        rows = pa.table({"number": numbers, "item": pa.array(pickled, pa.binary())})
        do = _in_processes if on_demand.is_plain else _in_spark
        done = do(on_demand, partial(stage_of, function), rows)
        return (pickle.loads(one) for one in done.sort_by("number").column("result").to_pylist())

    return run


def _in_processes(on_demand: SparkOnDemand, make: MakeStage, rows: pa.Table) -> pa.Table:
    return pa.concat_tables(on_demand.processes.run(make, [rows.slice(i, 1) for i in range(len(rows))]))


def _in_spark(on_demand: SparkOnDemand, make: MakeStage, rows: pa.Table) -> pa.Table:
    spark = on_demand.checked_spark
    tasks = min(len(rows), _TASKS_PER_CORE * driver_of(spark).parallelism())
    task = pa.array([number % tasks for number in range(len(rows))], pa.int32())
    given = spark.createDataFrame(rows.append_column("task", task)).repartitionById(tasks, "task")
    return given.select("number", "item").mapInArrow(make(), "number int, result binary").toArrow()

"""Functions of this project in tasks of Spark, or in the worker processes that run stages without it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from pipelines.command.on_demand import SparkOnDemand
from pipelines.scanning.pool import Map, stage_of


def task_map(on_demand: SparkOnDemand) -> Map:
    """A map over Spark's tasks, or over worker processes of this machine where the job has these.

    The function is one that workers can import, what it takes and gives can be pickled.
    """

    def run(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        pickled = [pickle.dumps(item) for item in items]
        if not pickled:
            return iter(())
        tasks = [
            pa.table({"number": pa.array([number], pa.int32()), "item": pa.array([item], pa.binary())})
            for number, item in enumerate(pickled)
        ]
        done = on_demand.run_stage(partial(stage_of, function), tasks, "number int, result binary")
        return (pickle.loads(one) for one in done.sort_by("number").column("result").to_pylist())

    return run

"""Gives a job its Spark: a session that starts with the first step that needs it.

Wrong arguments, and a run that finds nothing new, are answered without waiting for Java. So is a command on
this machine whose stages need nothing of Spark: they run in worker processes.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.errors import CallError
from kafka_log_lake.pipelines.cli.settings import Running
from kafka_log_lake.pipelines.engine.driver import driver_of, is_local
from kafka_log_lake.pipelines.engine.executors import check_executors
from kafka_log_lake.pipelines.engine.pool import WorkerPool
from kafka_log_lake.pipelines.engine.session import (
    check_session,
    get_session,
    is_elsewhere,
    is_submitted,
    stop_session,
)
from kafka_log_lake.udfs import reads
from kafka_log_lake.udfs.calls import MakeStage, run_rows, run_stage

# Variables that name folders with configuration of Spark or Hadoop, or hold options of Spark
_CONFIGURATION = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS")
_TASKS_PER_CORE = 4  # so that a long one does not keep the others waiting


class SparkOnDemand:
    """The Spark of one job. given: the user's session; None to start one, or to take the active one.

    only_plans: see ``get_session``. Raises a CallError for a session and settings in the wrong order.
    """

    def __init__(
        self, settings: Running, *, only_plans: bool = False, given: SparkSession | None = None
    ) -> None:
        if not isinstance(settings, Running):
            raise CallError(
                "the session goes first, then the settings: decode(spark, Settings(source=..., lake=...)), "
                f"not {type(settings).__name__} as the second"
            )
        check_session(given)
        self.settings, self._only_plans = settings, only_plans
        self._given = given or SparkSession.getActiveSession()
        if self._given is not None:  # before the sources are listed
            driver_of(self._given).use_settings()

    @cached_property
    def spark(self) -> SparkSession:
        """Returns the session, whose workers have our code.

        Raises a UserError without a supported Java or Delta.
        """
        if self._given is None:
            return get_session(self.settings, only_plans=self._only_plans)
        driver_of(self._given).share_code()
        return self._given

    @cached_property
    def checked_spark(self) -> SparkSession:
        """Returns the session once its executors can decode; raises as ``check_executors`` does."""
        if self.has_executors and driver_of(self.spark).has_jvm:
            check_executors(self.spark)
        return self.spark

    def described(self, group: str, description: str) -> AbstractContextManager[object]:
        """Names a phase on Spark's pages, for the jobs in a block, where a session is there."""
        started = self._given if self._given is not None else vars(self).get("spark")
        return nullcontext() if started is None else driver_of(started).described(group, description)

    @property
    def is_plain(self) -> bool:
        """Says whether Spark has its own defaults: an embedded session, no configuration on this machine."""
        defaults = Path(pyspark.__file__).parent / "conf" / "spark-defaults.conf"
        is_configured = any(os.environ.get(name) for name in _CONFIGURATION) or defaults.exists()
        return self._given is None and not (is_submitted() or is_elsewhere() or is_configured)

    @cached_property
    def has_executors(self) -> bool:
        """Says whether tasks run on other machines than this one, or may."""
        return not (self.is_plain or (driver_of(self.spark).has_jvm and is_local(self.spark)))

    @cached_property
    def processes(self) -> WorkerPool:
        """Returns the worker processes of this machine, for what needs no Spark."""
        return WorkerPool(self.settings.processes)

    def map(self, function: Callable[[Any], Any], items: Iterable[object]) -> Iterator[Any]:
        """Yields what a function gives for each item, in their order: in workers, or in the session's tasks.

        The function is one that workers can import; it, the items and its results can be pickled. Each item
        is tried as often as Spark tries a task.
        """
        if self.is_plain:
            return self.processes.map(function, items)
        pickled = [pickle.dumps(item) for item in items]
        if not pickled:
            return iter(())
        spark, numbers, together = self.checked_spark, range(len(pickled)), self.tasks_of(len(pickled))
        columns = {
            "number": pa.array(numbers, pa.int32()),
            "item": pa.array(pickled, pa.binary()),
            "task": pa.array([number % together for number in numbers], pa.int32()),
        }
        rows = spark.createDataFrame(pa.table(columns)).repartitionById(together, "task").drop("task")
        done = rows.mapInArrow(partial(run_rows, function), "number int, result binary").toArrow()
        return map(_result, done.sort_by("number").column("result").to_pylist())

    def tasks_of(self, items: int) -> int:
        """Returns the number of Spark's tasks that so many items of ``map`` are, at least one."""
        return max(1, min(items, _TASKS_PER_CORE * driver_of(self.checked_spark).parallelism()))

    def run_stage(self, make: MakeStage, tasks: Sequence[pa.Table]) -> pa.Table:
        """Returns the rows that a stage gives for the rows of tasks, of which there is at least one."""
        return pa.concat_tables(self.map(partial(run_stage, make), tasks))

    def stop(self) -> None:
        """Stops the session if this job started it, and the worker processes."""
        if "processes" in vars(self):
            self.processes.close()
        if self._given is None and "spark" in vars(self):
            stop_session(self.spark)


def _result(pickled: bytes) -> object:
    """Returns what a task gave, and counts what it read."""
    result, read = pickle.loads(pickled)
    reads.add(read)
    return result


@contextmanager
def spark_on_demand(
    settings: Running, *, only_plans: bool = False, given: SparkSession | None = None
) -> Iterator[SparkOnDemand]:
    """Yields a ``SparkOnDemand`` for one job, and stops what it started at the end."""
    on_demand = SparkOnDemand(settings, only_plans=only_plans, given=given)
    try:
        if is_submitted():
            _ = on_demand.spark  # a cluster takes a program that never joins its session for a failed one
        yield on_demand
    finally:
        on_demand.stop()

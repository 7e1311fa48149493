"""Declares what a run does with the tables of a lake, whatever holds them.

They lie at an address (``path_lake``: deltalake reads and commits) or in a schema of a catalog
(``catalog_lake``: Spark does). In which order a run commits to them is in ``commit``.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.lake import transactions
from kafka_log_lake.pipelines.lake.intents import Intent, Intents, RowRange
from kafka_log_lake.pipelines.lake.published import Commit, run_metadata
from kafka_log_lake.pipelines.plan.ledger import Partition
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.udfs.format import schema
from kafka_log_lake.udfs.format.schema import Table

DECODED = (schema.RECORDS, schema.BATCHES, schema.QUARANTINE)


class LakeTables(abc.ABC):
    """The tables of a lake for one app (DECODE_APP or INGEST_APP)."""

    def __init__(self, on_demand: SparkOnDemand, address: str, intents: Intents, app_id: str) -> None:
        self.address, self.intents, self.app_id = address, intents, app_id
        self.cluster_id: str | None = None  # of the sources of this job
        self._on_demand = on_demand
        given = on_demand.settings
        self._settings = given if isinstance(given, Settings) else Settings()

    # The tables

    @abc.abstractmethod
    def path(self, table: str) -> str:
        """Returns the path of a table, or its name in the catalog."""

    @abc.abstractmethod
    def table(self, name: str) -> DataFrame:
        """Returns a table as Spark reads it."""

    @abc.abstractmethod
    def read(self, table: Table, columns: Iterable[str], where: str = "") -> pa.Table:
        """Reads columns of a table into this process. where: a condition of deltalake's SQL, "" for all."""

    @abc.abstractmethod
    def has(self, table: Table) -> bool:
        """Returns whether a table is there: those of reports appear with their first rows."""

    @abc.abstractmethod
    def create(self, table: Table) -> None:
        """Creates a table if it is missing."""

    @abc.abstractmethod
    def add_rows(self, table: Table, rows: pa.Table) -> None:
        """Appends rows to a table of reports, such as ``runs``, which is made where it is missing."""

    @abc.abstractmethod
    def replace_report_rows(self, table: Table, rows: pa.Table, where: str) -> None:
        """Replaces the rows of a table of reports that meet a condition, which the new ones meet, too."""

    def transactions_of(self, partitions: Collection[Partition]) -> pa.Table:
        """Returns the rows of ``transactions`` of some topic-partitions."""
        return transactions.stored(self.read, partitions)

    def located(self, segments: Sequence[Segment]) -> list[Segment]:
        """Returns landed segments, each with the files of ``raw_segments`` that hold its bytes, for tasks.

        They stay as they are where only Spark can read these files.
        """
        return list(segments)

    # Their commits

    @abc.abstractmethod
    def commits(self, table: str) -> Iterator[Commit]:
        """Returns the commits of a table, newest first, as far as its log still has them."""

    @abc.abstractmethod
    def committed(self, table: str) -> int:
        """Returns the number of the last run of this app that committed to a table; 0 for none."""

    @abc.abstractmethod
    def free_version(self) -> int:
        """Returns a run number above those in all tables."""

    @abc.abstractmethod
    def restore(self, table: Table, version: int, intent: Intent) -> None:
        """Restores a table to a version, to undo an intent. Raises a DeltaError or an OSError if it can't."""

    @abc.abstractmethod
    def replace_rows(self, table: Table, intent: Intent) -> None:
        """Makes the run's commit to a table of ``DECODED``, or to ``raw_segments``."""

    @abc.abstractmethod
    def replace_computed(self, table: Table, rows: pa.Table, ranges: list[RowRange], intent: Intent) -> None:
        """Makes the run's commit to a table that is computed from others."""

    @abc.abstractmethod
    def replace_ledger(self, intent: Intent) -> None:
        """Makes the run's commit to the ledger, which names the versions of the other tables."""

    # Other jobs, where nothing else keeps them out

    def pin(self) -> None:  # noqa: B027
        """Opens the table that publishes: what is planned from now on is published onto this version."""

    def next_version(self) -> int:
        """Returns the number (``Intent.version``) of the next run. Raises a RunFailed if another job runs."""
        return self.free_version()

    def fenced(self, intent: Intent) -> Intent:
        """Returns the intent with the version to publish it onto. Raises a RunFailed if another job runs."""
        return intent

    def is_outrun(self, intent: Intent) -> bool:
        """Returns whether a run can't be published any more: another has published since its plan."""
        return False

    def is_done(self, table: Table, intent: Intent) -> bool:
        """Returns whether a table has the run's commit. Raises a RunFailed where a later run's is there."""
        return self.committed(table.name) >= intent.version

    @property
    def decoded_tables(self) -> tuple[Table, ...]:
        """Returns the tables that a run commits before the ledger, of those that are there.

        A lake of an earlier release has no ``offset_findings`` until a job has opened it.
        """
        return (*DECODED, *(table for table in schema.COMPUTED if self.has(table)))


def intent_metadata(intent: Intent, **more: object) -> dict[str, str]:
    """Returns the metadata of the commits of an intent's run. more: see ``run_metadata``."""
    return run_metadata(intent.run_id, intent.app_id, intent.version, source=intent.source, **more)

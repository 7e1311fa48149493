"""Implements the data source ``kafka_log`` as Spark calls it, and its batch reader.

Spark keeps a planned reader on the DataFrame: a reader that takes filters (``pushFilters``) would give later
queries of the same DataFrame the rows of the first one's filter alone (Spark 4.2,
``test_spark_keeps_a_filtered_reader``). So this one takes none, and options prune instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.dataframes.reading import one_line, read_slices

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kafka_log_lake.pipelines.dataframes.options import Options
    from kafka_log_lake.pipelines.dataframes.stream import KafkaLogStreamReader
    from kafka_log_lake.pipelines.dataframes.typed import TypedPlan
    from kafka_log_lake.udfs.spark.protocol import TableRead


class KafkaLogSource(DataSource):
    """The data source that reads log segments as rows of ``records``, ``batches`` or ``quarantine``."""

    _plan: TypedPlan | None = None

    @classmethod
    def name(cls) -> str:
        return "kafka_log"

    @one_line
    def schema(self) -> str | StructType:
        """Returns the columns as a schema of Spark. Raises a UserError for wrong options or no path."""
        from kafka_log_lake.pipelines.dataframes.options import ddl
        from kafka_log_lake.pipelines.listing.uris import resolve

        options = self._parsed()
        resolve(options.path)
        if not options.typed:
            return ddl(options.table, options.columns)
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._planned(options).schema)

    def _parsed(self) -> Options:
        from kafka_log_lake.pipelines.dataframes.options import parse_options

        return parse_options(self.options)

    def _planned(self, options: Options) -> TypedPlan:
        """Plans a typed read of a topic once: Spark pickles this source after ``schema``."""
        from kafka_log_lake.pipelines.dataframes.typed import plan_typed

        if self._plan is None:
            self._plan = plan_typed(options)
        return self._plan

    @one_line
    def reader(self, schema: StructType) -> KafkaLogReader:
        if self._parsed().typed:
            options, read = requested(self.options, None)
            return KafkaLogReader(options, read, self._planned(options))
        return KafkaLogReader(*requested(self.options, schema))

    @one_line
    def streamReader(self, schema: StructType) -> KafkaLogStreamReader:  # noqa: N802
        from kafka_log_lake.pipelines.dataframes.stream import KafkaLogStreamReader

        if self._parsed().typed:
            raise UserError("typed is for reads, not for streams: decode --typed --watch keeps tables")
        return KafkaLogStreamReader(*requested(self.options, schema))


def requested(given: Mapping[str, str], schema: StructType | None) -> tuple[Options, TableRead]:
    """Returns checked options, and what tasks need. schema: None for no columns. Raises a UserError."""
    import pyarrow as pa

    from kafka_log_lake.pipelines.cli.settings import Settings
    from kafka_log_lake.pipelines.dataframes.options import FAILFAST, parse_options, requested_columns
    from kafka_log_lake.udfs.spark.protocol import StageOptions, TableRead

    options, defaults = parse_options(given), Settings()
    columns = requested_columns(options.table, schema) if schema is not None else ((), pa.schema([]))
    if schema is not None and options.columns and set(columns[0]) != set(options.columns):
        raise UserError("option columns and .schema(...) name other columns: give one of them")
    stage = StageOptions(
        run_id="",
        began_us=0,
        window_bytes=defaults.window_bytes,
        max_batch_uncompressed=options.max_batch_uncompressed,
        quarantine_content_bytes=defaults.quarantine_content_bytes,
        lake="",
        parquet_compression="",
        tier_key=options.tier_key,
    )
    failfast = options.mode == FAILFAST
    return options, TableRead(options.table, *columns, failfast, stage, options.scope)


class KafkaLogReader(DataSourceReader):
    """Plans the segments of a path; each input partition holds slices for one task."""

    def __init__(self, options: Options, read: TableRead, plan: TypedPlan | None = None) -> None:
        """Takes the options and the read. plan: given with option ``typed``, else None."""
        self._options, self._read, self._plan = options, read, plan
        if plan is not None:
            from kafka_log_lake.pipelines.dataframes.typed import records_read

            self._read = records_read(read)

    @one_line
    def partitions(self) -> list[InputPartition]:
        from kafka_log_lake.pipelines.dataframes.slices import plan_read

        return [InputPartition(slices) for slices in plan_read(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = read_slices(self._read, partition)
        if self._plan is None:
            return rows
        from kafka_log_lake.pipelines.dataframes.typed import typed_rows

        return typed_rows(self._plan, rows)


def sent_source() -> type[DataSource]:
    """Returns the class that a session of Spark Connect sends to its server as the data source.

    Spark pickles this class whole, so that a process without this project can load it. Spark 4.2 plans and
    reads a stream in processes that get no code from the session, unlike all others. Where they
    lack the project this class says so, in place of ``No module named 'kafka_log_lake'``.
    """

    class KafkaLog(DataSource):
        @classmethod
        def name(cls) -> str:
            return "kafka_log"

        def _source(self) -> Any:
            from kafka_log_lake.pipelines.dataframes.source import KafkaLogSource

            return KafkaLogSource(self.options)

        def schema(self) -> Any:
            return self._source().schema()

        def reader(self, schema: object) -> Any:
            return self._source().reader(schema)

        def streamReader(self, schema: object) -> Any:  # noqa: N802
            try:
                return self._source().streamReader(schema)
            except ModuleNotFoundError:
                raise RuntimeError(
                    "streams of kafka_log over Spark Connect need the wheel of kafka-log-lake in the Python "
                    "of the server's workers: install it there, or follow the log with decode --watch"
                ) from None

    return KafkaLog

"""The data source as a session of Spark Connect sends it to its server."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


def sent_source() -> type[DataSource]:
    """A class that Spark pickles whole, so that a process without this project can load it.

    Spark 4.2 plans and reads a stream in processes that get no code from the session, unlike all others.
    Where they lack the project this class says so, in place of ``No module named 'pipelines'``.
    """

    class KafkaLog(DataSource):
        @classmethod
        def name(cls) -> str:
            return "kafka_log"

        def _source(self) -> Any:
            from pipelines.data_source.source import KafkaLogSource

            return KafkaLogSource(self.options)

        def schema(self) -> Any:
            return self._source().schema()

        def reader(self, schema: Any) -> Any:
            return self._source().reader(schema)

        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            try:
                return self._source().streamReader(schema)
            except ModuleNotFoundError:
                raise RuntimeError(
                    "streams of kafka_log over Spark Connect need the wheel of kafka-log-lake in the Python "
                    "of the server's workers: install it there, or follow the log with decode --watch"
                ) from None

    return KafkaLog

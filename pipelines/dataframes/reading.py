"""Holds what both readers of the data source use: reading the rows of slices, and errors of one line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from kafka_log_lake.pipelines.cli.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_log_lake.udfs.spark.protocol import TableRead


def one_line(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a method so that its UserError has no traceback, which Spark would show with it."""

    @functools.wraps(method)
    def call(*args: object, **kwargs: object) -> Any:
        try:
            return method(*args, **kwargs)
        except UserError as error:
            raise error.with_traceback(None) from None

    return call


def read_slices(read: TableRead, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one input partition's slices; Spark makes one without any for no rows."""
    if partition.value is not None:
        from kafka_log_lake.udfs.spark.table_rows import (
            read_table,  # loads the decoder, which planning does without
        )

        yield from read_table(read, partition.value)

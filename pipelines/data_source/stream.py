"""The reader of ``spark.readStream.format("kafka_log")``: offsets of micro-batches, and what they read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from pipelines.command.errors import UserError
from pipelines.data_source.follow import Place, advance, may_have_more, spans
from pipelines.data_source.options import FAILFAST, Options
from pipelines.data_source.slices import list_requested, make_tasks
from pipelines.data_source.source import one_line, read_slices
from pipelines.plan.slices import Segment
from udfs.source.store import canonical, is_object_store

if TYPE_CHECKING:
    import pyarrow as pa

    from udfs.spark.protocol import TableRead

Folders = dict[str, list[Segment]]


class KafkaLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are a dict of partition folders, each with the fields of a ``Place``."""

    def __init__(self, options: Options, read: TableRead) -> None:
        for path in options.path:
            if is_object_store(canonical(path)):
                raise UserError(
                    f"{path} can't be read as a stream, which follows the headers of local files: "
                    "read it with spark.read, or follow it with decode --watch"
                )
        self._options, self._read = options, read
        self._failfast = options.mode == FAILFAST
        self._folders: Folders | None = None  # as the last offset saw them
        self._target: dict[str, tuple[int, int]] | None = None  # folder -> last segment, its length

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    @one_line
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        folders = self._list()
        self._target = {
            name: (segments[-1].file_base_offset, segments[-1].length) for name, segments in folders.items()
        }

    @one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._folders = self._list()
        folders = self._folders if self._target is None else self._up_to_target(self._folders)
        places = {name: Place(**fields) for name, fields in start.items()}
        pending = {
            name: segments for name, segments in folders.items() if may_have_more(segments, places.get(name))
        }
        share = limit.max_bytes // max(1, len(pending)) if isinstance(limit, ReadMaxBytes) else None
        for name, segments in pending.items():
            places[name] = advance(segments, places.get(name), share and max(1, share), self._failfast)
        return {name: asdict(places[name]) for name in sorted(places)}

    @one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        folders = self._folders if self._folders is not None else self._list()
        self._folders = None
        found = []
        for name, fields in end.items():
            if fields != start.get(name):
                before = Place(**start[name]) if name in start else None
                found += spans(name, folders.get(name, []), before, Place(**fields), self._failfast)
        return [InputPartition(task) for task in make_tasks(found, self._options.slice_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_slices(self._read, partition)

    def _list(self) -> Folders:
        by_folder = itertools.groupby(list_requested(self._options), lambda segment: segment.partition_dir)
        return {name: list(segments) for name, segments in by_folder}

    def _up_to_target(self, folders: Folders) -> Folders:
        """What was there when an AvailableNow query started."""
        found: Folders = {}
        for name, (last, length) in (self._target or {}).items():
            kept = [segment for segment in folders.get(name, []) if segment.file_base_offset <= last]
            if kept and kept[-1].file_base_offset == last:
                kept[-1] = replace(kept[-1], length=min(length, kept[-1].length))
            if kept:
                found[name] = kept
        return found

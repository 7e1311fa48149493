"""``decode_folder``: the records of whole folders as Arrow record batches, without Spark or a lake."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

import pyarrow as pa

from pipelines.command.errors import UserError
from pipelines.command.settings import Settings
from pipelines.source.listing import list_segments, no_segments_error
from pipelines.source.uris import local_path
from udfs.committed import delivery_of
from udfs.files import OnDamage, decode_segment


def decode_folder(
    path: str | os.PathLike[str],
    *,
    topics: str | None = None,
    exclude_topics: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    columns: Collection[str] | None = None,
    committed: bool = False,
    on_damage: OnDamage = "warn",
) -> Iterator[pa.RecordBatch]:
    """The records of every segment at or below a folder: topic, partition, and the columns of a segment.

    path: log directory, partition folder, ``.log`` file or glob. topics, exclude_topics: regular expressions
    for the whole name. topic, partition: of the segments, where the name of their folder does not tell it.
    columns, committed, on_damage: see ``decode_segment``. Yields record batches by folder and offset, in one
    thread. Raises a UserError where the path has no segment, or a folder or file can't be read.
    """
    named = Settings(topic=topic, partition=partition)
    listing = list_segments(
        os.fspath(path),
        topics=topics,
        exclude_topics=exclude_topics,
        topic=named.topic,
        partition=named.partition,
    )
    for name, why in listing.unreadable.items():
        raise UserError(f"{name} can't be read: {why}")
    wanted = listing.segments.filter(listing.segments.column("wanted"))
    if not wanted.num_rows:
        raise no_segments_error([os.fspath(path)], listing)
    folder, delivery = "", None
    for segment in wanted.select(["topic", "partition", "partition_dir", "segment"]).to_pylist():
        if committed and folder != segment["partition_dir"]:
            folder = segment["partition_dir"]
            delivery = delivery_of(local_path(folder) or "")
        file = local_path(segment["segment"]) or ""
        for batch in decode_segment(file, columns=columns, committed=delivery or False, on_damage=on_damage):
            codes = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
            topic = pa.DictionaryArray.from_arrays(codes, pa.array([segment["topic"]]))
            partition = pa.repeat(pa.scalar(segment["partition"], pa.int32()), batch.num_rows)
            names = ["topic", "partition", *batch.schema.names]
            yield pa.RecordBatch.from_arrays([topic, partition, *batch.columns], names=names)

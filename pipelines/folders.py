"""``decode_folder``: the records of whole folders as Arrow record batches, without Spark or a lake."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from pipelines.command.errors import UserError
from pipelines.source.listing import list_segments
from pipelines.source.uris import local_path
from udfs.files import OnDamage, decode_segment


def decode_folder(
    path: str | os.PathLike[str],
    *,
    topics: str | None = None,
    exclude_topics: str | None = None,
    on_damage: OnDamage = "warn",
) -> Iterator[pa.RecordBatch]:
    """The records of every segment at or below a folder: topic, partition, and the columns of a segment.

    path: log directory, partition folder, ``.log`` file or glob. topics, exclude_topics: regular expressions
    for the whole name. on_damage: see ``decode_segment``. Yields record batches by folder and offset, in one
    thread. Raises a UserError where the path has no segment, or a folder or file can't be read.
    """
    listing = list_segments(os.fspath(path), topics=topics, exclude_topics=exclude_topics)
    for name, why in listing.unreadable.items():
        raise UserError(f"{name} can't be read: {why}")
    wanted = listing.segments.filter(listing.segments.column("wanted"))
    for segment in wanted.select(["topic", "partition", "segment"]).to_pylist():
        for batch in decode_segment(local_path(segment["segment"]) or "", on_damage=on_damage):
            codes = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
            topic = pa.DictionaryArray.from_arrays(codes, pa.array([segment["topic"]]))
            partition = pa.repeat(pa.scalar(segment["partition"], pa.int32()), batch.num_rows)
            names = ["topic", "partition", *batch.schema.names]
            yield pa.RecordBatch.from_arrays([topic, partition, *batch.columns], names=names)

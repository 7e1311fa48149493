"""Decodes folders and segments to Arrow, without Spark or a lake: ``decode_folder``, ``read_segment``."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.listing.list_segments import no_segments_error
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.pipelines.plan.listed import list_sources
from kafka_log_lake.udfs import files
from kafka_log_lake.udfs.batches.committed import delivery_of
from kafka_log_lake.udfs.batches.log_start import LogStart
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED, WINDOW_BYTES
from kafka_log_lake.udfs.files import OnDamage, check_path, decode_segment, selected
from kafka_log_lake.udfs.values.schemas.registry import Registry
from kafka_log_lake.udfs.values.typed.records import (
    ADDED,
    NEEDED,
    TypedRecords,
    plain_of_sample,
    registry_of,
    schemas_next_to,
)
from kafka_log_lake.udfs.values.typed.sample import sample_of_segments, segments_by_topic


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
    typed: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Decodes every segment at or below a folder into record batches, in one thread, without Spark.

    Parameters
    ----------
    path: log directory, partition folder, ``.log`` file or glob.
    topics, exclude_topics: regular expressions for the whole name of a topic; None: all topics, none
        excluded.
    topic, partition: those of the segments, where the name of their folder does not tell it; given together.
    columns, on_damage: see ``decode_segment``.
    committed: whether to give only what a READ_COMMITTED consumer gets of each log.
    typed: see ``read_segment``. Each topic has columns of its own, and is read twice, as all of its rows get
        the same ones.

    Returns
    -------
    Iterator of pa.RecordBatch: topic (dictionary<int32, string>), partition (int32) and the columns of
    ``decode_segment``, by folder and offset; with typed topic by topic.

    Raises
    ------
    UserError: the path has no segment, or a folder or file can't be read.
    TypeError: path is not a str or PathLike.
    ValueError: an unknown column or on_damage.
    DamageError: see on_damage.
    """
    check_path(path)
    names = None if columns is None else {*selected(columns).names, *NEEDED}
    named = Settings(
        source=(os.fspath(path),),
        topic=topic,
        partition=partition,
        topics=topics,
        exclude_topics=exclude_topics,
    )
    listing = list_sources(named)
    for name, why in listing.unreadable.items():
        raise UserError(f"{name} can't be read: {why}")
    wanted = listing.segments.filter(listing.segments.column("wanted"))
    if not wanted.num_rows:
        raise no_segments_error(named.source, listing)
    chosen = wanted.select(["topic", "partition", "partition_dir", "segment"]).to_pylist()
    starts = listing.log_starts() if committed else None
    if not typed:
        yield from _batches(chosen, columns, starts, on_damage)
        return
    registry = _registry([local_path(segment["segment"]) or "" for segment in chosen])
    uris = segments_by_topic(wanted)
    for name in dict.fromkeys(segment["topic"] for segment in chosen):
        of_topic = [segment for segment in chosen if segment["topic"] == name]
        plain = plain_of_sample(registry, name, sample_of_segments(uris[name]))
        typed_records = TypedRecords(registry, name, plain)
        for batch in _batches(of_topic, NEEDED, starts, "ignore"):
            typed_records.learn(batch.filter(pc.invert(batch.column("is_control"))))
        for batch in _batches(of_topic, names, starts, on_damage):
            made = typed_records.convert(batch)
            yield made if columns is None else made.select(_wanted(made.schema.names, columns))


def _batches(
    segments: list[dict[str, Any]],
    columns: Collection[str] | None,
    starts: Mapping[str, LogStart] | None,
    on_damage: OnDamage,
) -> Iterator[pa.RecordBatch]:
    """Yields the records of segments with topic and partition.

    starts: folder -> where its log begins; None: all records, not the committed ones alone.
    """
    folder, delivery = "", None
    for segment in segments:
        if starts is not None and folder != segment["partition_dir"]:
            folder = segment["partition_dir"]
            delivery = delivery_of(local_path(folder) or "", starts.get(folder))
        file = local_path(segment["segment"]) or ""
        for batch in decode_segment(file, columns=columns, committed=delivery or False, on_damage=on_damage):
            codes = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
            topic = pa.DictionaryArray.from_arrays(codes, pa.array([segment["topic"]]))
            partition = pa.repeat(pa.scalar(segment["partition"], pa.int32()), batch.num_rows)
            names = ["topic", "partition", *batch.schema.names]
            yield pa.RecordBatch.from_arrays([topic, partition, *batch.columns], names=names)


def read_segment(
    path: str | os.PathLike[str],
    *,
    start: int = 0,
    window_bytes: int = WINDOW_BYTES,
    max_batch_uncompressed: int = MAX_BATCH_UNCOMPRESSED,
    columns: Collection[str] | None = None,
    committed: bool = False,
    on_damage: OnDamage = "warn",
    typed: bool = False,
    topic: str | None = None,
) -> pa.Table:
    """Returns all records of one segment file as one table, without Spark.

    Parameters
    ----------
    path, start, window_bytes, max_batch_uncompressed, columns, committed, on_damage: see ``decode_segment``.
    typed: whether key and value are decoded by the schemas in ``_schemas-0`` next to the partition's folder.
        Control records are then left out.
    topic: with typed, the topic of the segment where the name of its folder does not tell it; None: the
        folder's.

    Returns
    -------
    pa.Table with the columns of ``decode_segment``. With typed, key and value have the types of their
    schemas, and there are also is_tombstone, key_schema_id, value_schema_id, key_error and value_error: a
    reason of ``value_errors``, and then the key or value is null; null: no error.

    Raises
    ------
    The errors of ``decode_segment``.
    """
    names = columns if columns is None or not typed else {*selected(columns).names, *NEEDED}
    batches = files.decode_segment(
        path,
        start=start,
        window_bytes=window_bytes,
        max_batch_uncompressed=max_batch_uncompressed,
        columns=names,
        committed=committed,
        on_damage=on_damage,
    )
    rows = pa.Table.from_batches(batches)
    if not typed:
        return rows
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    registry, name = _registry([os.fspath(path)]), topic or folder.rpartition("-")[0] or folder
    sample = sample_of_segments(["file://" + os.path.realpath(path)])
    typed_records = TypedRecords(registry, name, plain_of_sample(registry, name, sample))
    (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    made = pa.Table.from_batches([typed_records.convert(batch)])
    return made if columns is None else made.select(_wanted(made.schema.names, columns))


def _wanted(names: list[str], columns: Collection[str]) -> list[str]:
    return [name for name in names if name in {"topic", "partition", *columns, *ADDED}]


def _registry(segments: list[str]) -> Registry:
    """Reads the schemas next to the folders of segments."""
    folders = {os.path.dirname(os.path.realpath(segment)) for segment in segments}
    return registry_of(schemas_next_to("file://" + folder for folder in folders))

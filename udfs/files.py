"""Reads one segment file as Arrow record batches, in this thread, without Spark and without Java."""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Literal, SupportsIndex

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.batches.committed import COLUMNS as DECISIVE
from kafka_log_lake.udfs.batches.committed import Delivery, delivery_of
from kafka_log_lake.udfs.decoder.decoded import Damage, Range
from kafka_log_lake.udfs.decoder.segment_decoder import MAX_BATCH_UNCOMPRESSED, WINDOW_BYTES, SegmentDecoder
from kafka_log_lake.udfs.errors import JobError
from kafka_log_lake.udfs.format.file_names import segment_base
from kafka_log_lake.udfs.format.schema import HEADER_TYPE, RECORDS
from kafka_log_lake.udfs.kernels.record_columns import NAMES
from kafka_log_lake.udfs.storage.byte_source import FileSource, SourceChanged, SourceUnreadable, path_of_uri
from kafka_log_lake.udfs.storage.regular_file import opened_regular
from kafka_log_lake.udfs.storage.store import canonical_uri

if TYPE_CHECKING:
    from kafka_log_lake.udfs.storage.object_source import ObjectSource

_OURS = ("kafka_log_lake",)
_WAYS = ("warn", "raise", "ignore")
OnDamage = Callable[[Damage], None] | Literal["warn", "raise", "ignore"]

# The columns of ``records`` that a file alone knows, in the types in which the decoder builds them
_TYPES = {c.name: c.arrow_type for c in RECORDS.columns}
_TYPES |= {"headers": HEADER_TYPE, "segment": pa.dictionary(pa.int32(), pa.string())}
SCHEMA = pa.schema([(c.name, _TYPES[c.name]) for c in RECORDS.columns if c.name in (*NAMES, "segment")])


class DamageWarning(UserWarning):
    """Says that a segment has a damaged range, whose records are left out."""


class DamageError(JobError, ValueError):
    """A segment has a damaged range, and ``on_damage`` was "raise": exit code 3.

    damage: the range (``Damage``): position and size in bytes, reason, detail. ``on_damage="warn"`` reads the
    records around it.
    """

    exit_code = 3

    def __init__(self, message: str, damage: Damage) -> None:
        super().__init__(message)
        self.damage = damage


def decode_segment(
    path: str | os.PathLike[str],
    *,
    start: int = 0,
    window_bytes: int = WINDOW_BYTES,
    max_batch_uncompressed: int = MAX_BATCH_UNCOMPRESSED,
    columns: Collection[str] | None = None,
    committed: bool | Delivery = False,
    on_damage: OnDamage = "warn",
) -> Iterator[pa.RecordBatch]:
    """Decodes one segment file into record batches, in this thread, without Spark.

    Parameters
    ----------
    path: a local file, or the URI of one in a store that pyarrow or fsspec opens.
    start: byte at which a batch begins, 0 to the size of the file.
    window_bytes: bytes that are read at a time, 1 or more.
    max_batch_uncompressed: bytes, 1 or more; a batch that decompresses to more is a damaged range.
    columns: names of the columns that are wanted; the others are not built. None: all.
    committed: whether to give only what a READ_COMMITTED consumer gets of the log in the file's folder, from
        its log start on. The other segments of the folder are read too, as the marker may be in a later one,
        and the checkpoint files; a ``Delivery`` in place of True spares that.
    on_damage: "warn" issues a DamageWarning for each damaged range, "raise" raises a DamageError at the
        first, "ignore" says nothing; a callable gets each ``Damage``.

    Returns
    -------
    Iterator of pa.RecordBatch with the columns of ``SCHEMA``: those of the table ``records`` that the file
    alone knows, in the table's order (types, units and nulls: docs/tables.md). The batches follow the order
    of the log; a segment without records gives a single one without rows.

    Raises
    ------
    DamageError: see on_damage; with "warn" too where the whole file is damaged and has no segment's name.
    TypeError: path is not a str or PathLike, or a number is not an int.
    ValueError: another on_damage or column, no column, a start outside of the file, a limit below 1,
        committed=True for a URI of a store, a file without any batch and without a segment's name (unless
        on_damage takes care of it).
    OSError: the file or its store can't be opened (FileNotFoundError, IsADirectoryError, PermissionError).

    Source of the rule
    ------------------
    ``udfs.format.layout`` (record batches), ``udfs.batches.transactions`` and ``log_start`` (committed).
    """
    check_path(path)
    if not callable(on_damage) and on_damage not in _WAYS:
        raise ValueError(f"on_damage must be one of {', '.join(_WAYS)}, or a callable, not {on_damage!r}")
    schema = SCHEMA if columns is None else selected(columns)
    wanted = schema
    if committed:
        delivery = committed if isinstance(committed, Delivery) else _delivery_beside(os.fspath(path))
        schema = selected({*schema.names, *DECISIVE})
    source, name = _open(os.fspath(path))
    limits = (window_bytes, max_batch_uncompressed)
    rows = batches = 0
    try:
        length, segment = source.size(), pa.array([name])
        _check_number("start", start, 0, length)
        _check_number("window_bytes", window_bytes, 1)
        _check_number("max_batch_uncompressed", max_batch_uncompressed, 1)
        decoder = SegmentDecoder(
            source,
            Range(length, start, file_base_offset=segment_base(os.fspath(path))),
            *limits,
            columns=schema.names,
            content_crc=False,
        )
        for group in decoder:
            batches += len(group.batches)
            for damage in group.damages:
                is_whole = batches == 0 and damage.position == 0 and damage.next_position >= length
                _tell(os.fspath(path), damage, is_whole, on_damage)
            if group.records is None:
                continue
            records = _with_segment(group.records, segment, schema.get_field_index("segment"))
            if committed:
                records = delivery.select(records).select(wanted.names)
            if records.num_rows:
                rows += records.num_rows
                yield records
    finally:
        source.close()
    if not batches and length and decoder.totals.tail != "zeros" and on_damage in ("warn", "raise"):
        _refuse_other_file(os.fspath(path), length)
    if not rows:
        yield pa.RecordBatch.from_arrays([pa.array([], each.type) for each in wanted], schema=wanted)


def _open(path: str) -> tuple[FileSource | ObjectSource, str]:
    """Opens a segment by its path or URI; returns it and its canonical URI. Raises an OSError."""
    uri = canonical_uri(path)
    local = path_of_uri(uri)
    if local is not None:
        with opened_regular(local):  # its errors are those of ``open``
            return FileSource(local), "file://" + os.path.realpath(local)
    from kafka_log_lake.udfs.storage.object_source import ObjectSource

    try:
        return ObjectSource(uri), uri
    except SourceChanged as error:
        raise FileNotFoundError(f"{path}: {error}") from error
    except SourceUnreadable as error:
        raise OSError(f"{path}: {error}") from error


def _delivery_beside(path: str) -> Delivery:
    """Returns what a READ_COMMITTED consumer gets of the log in the folder of a local file.

    Raises a ValueError for a URI of a store.
    """
    local = path_of_uri(canonical_uri(path))
    if local is None:
        raise ValueError(f"committed=True needs the folder of a local file: give a Delivery for {path}")
    return delivery_of(os.path.dirname(os.path.abspath(local)))


def check_path(path: object) -> None:
    """Raises a TypeError for a path that is not a str or PathLike."""
    if not isinstance(path, str | os.PathLike):
        hint = ": os.fsdecode() makes a str of it" if isinstance(path, bytes) else ""
        raise TypeError(f"path must be a str or an os.PathLike, not {path!r}{hint}")


def _check_number(name: str, value: object, low: int, high: int | None = None) -> None:
    if not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be an int, not {value!r}")
    number = operator.index(value)
    if number < low or (high is not None and number > high):
        limits = f"{low} or more" if high is None else f"from {low} to {high:,}, the bytes of the file"
        raise ValueError(f"{name} must be {limits}, not {number:,}")


def _refuse_other_file(path: str, length: int) -> None:
    """Raises a ValueError where a file that holds no batch does not even have a segment's name."""
    if segment_base(path) is None:
        raise ValueError(
            f"{path} is not a Kafka log segment: no record batch in its {length:,} bytes; "
            'on_damage="ignore" reads it all the same'
        )


def _outside() -> int:
    """Returns the stacklevel of a warning that shows the first line of code outside this project."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    return level


def _tell(path: str, damage: Damage, is_whole: bool, on_damage: OnDamage) -> None:
    """Passes a damaged range on as ``on_damage`` says: to its callable, as a warning or as a DamageError.

    is_whole: whether the range is all of a file in which no batch was found.
    """
    if callable(on_damage):
        on_damage(damage)
    elif on_damage != "ignore":
        what = f"{damage.reason} at byte {damage.position:,}, {damage.size:,} bytes: {damage.detail}"
        message = f"{path} is not a Kafka log segment ({what})" if is_whole else f"{path}: {what}"
        if on_damage == "raise" or (is_whole and segment_base(path) is None):
            raise DamageError(message, damage)
        warnings.warn(DamageWarning(message), stacklevel=_outside())


def selected(columns: Collection[str]) -> pa.Schema:
    """Returns the schema of the named columns; a ValueError for a name that ``decode_segment`` does not know.

    A ValueError for a name that ``decode_segment`` does not know.
    """
    is_list = isinstance(columns, Collection) and not isinstance(columns, str)
    if not is_list or not columns or any(name not in SCHEMA.names for name in columns):
        raise ValueError(f"columns must name one or more of {', '.join(SCHEMA.names)}, not {columns!r}")
    return pa.schema([each for each in SCHEMA if each.name in columns])


def _with_segment(records: pa.RecordBatch, segment: pa.Array, at: int) -> pa.RecordBatch:
    """Returns the records with the column ``segment`` at a place; as they are if it is -1, not wanted."""
    if at < 0:
        return records
    codes = np.zeros(records.num_rows, dtype=np.int32)
    column = pa.DictionaryArray.from_arrays(codes, segment, safe=False)
    return records.add_column(at, "segment", column)

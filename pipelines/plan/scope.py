"""Finds the segments that can hold nothing that ``--since``, ``--until`` and ``--offsets`` ask for.

By its name, as Kafka finds a segment: it holds the offsets from its own name up to that of the next one. By
the timestamps of its headers, which show that all its records are older than requested. None can be known to
be newer: the lowest timestamp of a batch is not stored.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.headers import is_file_older
from kafka_log_lake.pipelines.plan.ledger import LedgerRow
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.decoder.decoded import NO_BOUNDS, Scope

_THREADS = 8
_CHUNK = 1 << 14
_COLUMNS = ("segment", "file", "file_base_offset", "length", "modified")


def outside_by_name(folders: pa.Array, bases: pa.Array, scope: Scope) -> np.ndarray:
    """Returns bool[n]: which segments hold no offset of the scope.

    folders: string[n], the partition folders. bases: int64[n], the offsets in the names. Both are in the
    order of folders and names.
    """
    low, high = scope.offset
    first, outside = bases.to_numpy(), np.zeros(len(bases), dtype=bool)
    if low is not None:
        followed = pc.equal(folders[1:], folders[:-1]).to_numpy(zero_copy_only=False)
        outside[:-1] = followed & (first[1:] <= low)
    if high is not None:
        outside |= first >= high
    return outside


def outside(
    wanted: pa.Table, places: np.ndarray, listing: Listing, known: pa.Table, scope: Scope
) -> np.ndarray:
    """Returns bool[n]: which wanted segments can hold nothing of the scope, and are left as they are.

    places: int64[n], the row of each segment in the ledger, ``known``; -1 for none. Decoded segments that
    changed since are not among them: the offsets that came to them would look lost.
    """
    is_outside = np.zeros(wanted.num_rows, dtype=bool)
    if scope.offset != NO_BOUNDS:
        names = ("partition_dir", "file_base_offset", "segment")
        folders, bases, segments = (listing.segments.column(name).combine_chunks() for name in names)
        named = segments.filter(pa.array(outside_by_name(folders, bases, scope)))
        is_outside = np.array(pc.is_in(wanted.column("segment"), value_set=named).to_numpy())
    since = scope.timestamp_ms.low
    if since is not None:
        # of a complete segment nothing is missing; landed bytes have no headers here
        complete = np.isin(places, np.flatnonzero(pc.equal(known.column("left_out"), 0).to_numpy()))
        requested = np.flatnonzero(~is_outside & ~complete & wanted.column("landed_at").is_null().to_numpy())
        with ThreadPoolExecutor(_THREADS) as threads:
            for begin in range(0, len(requested), _CHUNK):
                chunk = requested[begin : begin + _CHUNK]
                rows = wanted.select(_COLUMNS).take(pa.array(chunk)).to_pylist()
                was = _rows(known, places[chunk])
                is_outside[chunk] = list(threads.map(partial(_is_older, scope, since), rows, was))
    return is_outside & ~_have_changed(wanted, places, known)


def _have_changed(wanted: pa.Table, places: np.ndarray, known: pa.Table) -> np.ndarray:
    """Returns bool[n]: which segments' files have another length or time than when they were decoded."""
    changed = np.zeros(wanted.num_rows, dtype=bool)
    at = np.flatnonzero(places >= 0)
    now, was = wanted.take(pa.array(at)), known.take(pa.array(places[at]))
    other = [pc.not_equal(now.column(name), was.column(name)) for name in ("length", "modified")]
    decoded = pc.not_equal(was.column("left_out"), ledger.NOTHING_DECODED)
    changed[at] = pc.and_(decoded, pc.or_(*other)).to_numpy()
    return changed


def _rows(known: pa.Table, places: np.ndarray) -> list[LedgerRow | None]:
    rows = ledger.rows(known.take(pa.array(places[places >= 0])))
    return [next(rows) if place >= 0 else None for place in places]


def _is_older(scope: Scope, since: int, row: dict[str, Any], was: LedgerRow | None) -> bool:
    """Says whether all records of a segment are older than ``since``, ms; False where it is not sure."""
    if was is not None and was.is_left_out and (was.length, was.modified) == (row["length"], row["modified"]):
        before = Scope.parse(was.scope)
        if before.hull(scope) == before:
            return True  # as it was found then: the headers need not be read by every run
    file = row["file"] or row["segment"]  # a swap file has indexes of another name: none are found
    return is_file_older(file, row["file_base_offset"], row["length"], since)

"""Checks files for the planning of a job: whether they are gone, and still hold what was decoded of them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.listing import hadoop, stores
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.pipelines.plan.segment_actions import are_untouched
from kafka_log_lake.udfs.storage import fingerprint
from kafka_log_lake.udfs.storage.fingerprint import FileMatch
from kafka_log_lake.udfs.storage.store import is_object_store, is_of_fsspec, worker_opens

_SAME_MOMENT_US = 60_000_000  # clocks of store and driver may differ by this much
_CHECKED_HERE = 4096  # files that threads of this process check
_THREADS = 8


def are_same_objects(seen: pa.Table, was: pa.Table) -> np.ndarray:
    """Returns bool[n]: which segments are objects that were not written again since they were decoded.

    A store says when an object was written, and nobody can set that time, unlike a file's. It may tell whole
    seconds alone: of an object that was decoded right after it was written this is not known. Nor of what
    fsspec opens, where a time may be that of another file, or none.
    seen: rows of the listing. was: those of the ledger, in the same order.
    """
    folders = was.column("partition_dir")
    uris = pc.unique(folders).to_pylist()
    stores = [uri for uri in uris if is_object_store(uri) and not is_of_fsspec(uri)]
    of_stores = pc.is_in(folders, pa.array(stores, pa.string())).to_numpy()
    is_old = pc.less(pc.add(was.column("modified"), _SAME_MOMENT_US), was.column("decoded_at"))
    return of_stores & is_old.to_numpy() & are_untouched(seen, was)


def is_gone(on_demand: SparkOnDemand, uri: str) -> bool:
    """Says whether a file or folder no longer exists; False if that can't be found out."""
    path = local_path(uri)
    if is_object_store(uri):
        return stores.is_gone(uri)
    if path is None:
        return not hadoop.exists(on_demand.spark, uri)
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def check(on_demand: SparkOnDemand, to_check: pa.Table) -> list[FileMatch]:
    """Compares the decoded bytes of files with their fingerprints; returns a FileMatch for each row.

    Many are checked by several processes, or by the workers of a cluster. Of a file that only Spark can open,
    length and time alone are compared: it counts as SAME.
    """
    is_opened = [worker_opens(uri) for uri in to_check.column("segment").to_pylist()]
    rows = to_check.filter(pa.array(is_opened, pa.bool_()))
    marks_of_files: list[str]
    if rows.num_rows <= _CHECKED_HERE:
        with ThreadPoolExecutor(_THREADS) as threads:
            marks_of_files = list(
                threads.map(fingerprint.check_fingerprint, *(column.to_pylist() for column in rows.columns))
            )
    else:
        parts = [rows.slice(begin, _CHECKED_HERE) for begin in range(0, rows.num_rows, _CHECKED_HERE)]
        done = on_demand.run_stage(fingerprint.check_stage, parts)
        place = pc.index_in(rows.column("segment"), value_set=done.column("segment"))
        marks_of_files = done.column("marks").take(place).to_pylist()
    marks = map(FileMatch, marks_of_files)
    return [next(marks) if must_open else FileMatch.SAME for must_open in is_opened]

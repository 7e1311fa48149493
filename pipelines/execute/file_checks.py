"""What the planning of a job asks of files: are they gone, do they still hold what was decoded of them?"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from pipelines.command.on_demand import SparkOnDemand
from pipelines.plan.ledger import LedgerRow
from pipelines.plan.life import Seen, is_touched
from pipelines.source import hadoop, stores
from pipelines.source.uris import local_path
from udfs.source import fingerprint
from udfs.source.fingerprint import CHECKED_DDL, Marks
from udfs.source.store import is_object_store, worker_opens

_SAME_MOMENT_US = 60_000_000  # clocks of store and driver may differ by so much
_CHECKED_HERE = 4096  # if there are more files, the workers check them
_THREADS = 8


def is_same_object(seen: Seen, was: LedgerRow) -> bool:
    """Whether a segment is an object that was not written again since it was decoded.

    A store says when an object was written, and nobody can set that time, unlike a file's. It may tell whole
    seconds alone: of an object that was decoded right after it was written this is not known.
    """
    is_old = was.modified + _SAME_MOMENT_US < was.decoded_at
    return is_object_store(was.segment) and is_old and not is_touched(seen, was)


def is_gone(on_demand: SparkOnDemand, uri: str) -> bool:
    """Whether a file or folder no longer exists. If that can't be found out, it counts as existing."""
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


def check(on_demand: SparkOnDemand, to_check: pa.Table) -> list[Marks]:
    """Whether files still begin with the decoded bytes. The workers check them if there are many.

    Of a file that only Spark can open, length and time alone are compared: it counts as SAME.
    """
    segments = to_check.column("segment").to_pylist()
    opened = pa.array([worker_opens(uri) for uri in segments], pa.bool_())
    rows = to_check.filter(opened)
    if rows.num_rows > _CHECKED_HERE:
        checked = (
            on_demand.spark.createDataFrame(rows).mapInArrow(fingerprint.check_stage(), CHECKED_DDL).collect()
        )
        by_segment = {row.segment: Marks(row.marks) for row in checked}
    else:
        listed = rows.to_pylist()
        with ThreadPoolExecutor(_THREADS) as threads:
            marks = threads.map(_check_one, listed)
            by_segment = {row["segment"]: found for row, found in zip(listed, marks, strict=True)}
    return [by_segment.get(segment, Marks.SAME) for segment in segments]


def _check_one(row: dict[str, object]) -> Marks:
    return fingerprint.check(*row.values())  # type: ignore[arg-type]

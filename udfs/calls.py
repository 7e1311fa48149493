"""Makes calls to worker processes, and answers them: a function and its argument go, its result comes."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafka_log_lake.udfs import reads
from kafka_log_lake.udfs.errors import JobError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import pyarrow as pa

# Makes the stage in the worker: picklable, and what it imports is loaded there
MakeStage = Callable[[], Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]]
_BATCH_ROWS = 1000


class StageFailed(Exception):
    """A call raised an error in its worker. The message is the traceback there."""


def run_stage(make: MakeStage, rows: pa.Table) -> pa.Table:
    """Returns the rows that a stage gives for the rows of one task; no columns if it gives no batch."""
    import pyarrow as pa

    batches = list(make()(iter(rows.to_batches(max_chunksize=_BATCH_ROWS))))
    return pa.Table.from_batches(batches) if batches else pa.table({})


def run_each(function: Callable[[object], object], items: Sequence[object]) -> list[object]:
    """Returns what a function gives for each of some items."""
    return [function(item) for item in items]


def run_rows(
    function: Callable[[object], object], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs a function as a mapInArrow callable: rows (number, pickled item) -> (number, pickled pair of the
    result and what it read).
    """
    import pyarrow as pa

    for batch in batches:
        for number, item in zip(*batch.to_pydict().values(), strict=True):
            before = reads.counted()
            done = function(pickle.loads(item))
            result = pickle.dumps((done, reads.counted().less(before)))
            yield pa.RecordBatch.from_pydict(
                {"number": pa.array([number], pa.int32()), "result": pa.array([result], pa.binary())}
            )


def answer(call: bytes) -> bytes:
    """Returns the pickled result of a call, None, and what it read; or None, its JobError or another's
    traceback, and what it read.
    """
    before = reads.counted()
    failed: object
    try:
        function, item = pickle.loads(call)
        done = function(item)
        return pickle.dumps((done, None, reads.counted().less(before)))
    except JobError as error:
        failed = error
    except Exception:
        failed = traceback.format_exc()
    return pickle.dumps((None, failed, reads.counted().less(before)))


def ask(connection: Connection, call: bytes) -> object:
    """Returns what a worker answers to a pickled pair of a function and what it is called with.

    Raises the error of the call, a StageFailed or a JobError; an EOFError or an OSError if the worker ended.
    """
    connection.send_bytes(call)
    result, error, read = pickle.loads(connection.recv_bytes())
    reads.add(read)
    if error is not None:
        raise error if isinstance(error, JobError) else StageFailed(error)
    return result

"""A process that runs stages without Spark: Arrow rows from standard input, Arrow rows to standard output.

What Spark's Python workers run as mapInArrow callables runs here as it is. Each request is an Arrow stream
whose schema brings the stage; each answer is one, or brings an error. The process ends with its input, so it
never outlives the process that started it. ``pipelines.engine.processes`` is the other end.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import IO

import pyarrow as pa

from kafka_log_lake.udfs.no_pandas import without_pandas

# Makes the stage in the worker: picklable, and what it imports is loaded there
MakeStage = Callable[[], Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]]

_MAKE, _ERROR = b"make", b"error"
_BATCH_ROWS = 1000


class StageFailed(Exception):
    """A stage raised an error in its worker. The message is the traceback there."""


def send_request(pipe: IO[bytes], make: MakeStage, rows: pa.Table) -> None:
    """Writes rows to a worker, with the pickled ``make`` in the metadata of their schema."""
    _send(pipe, rows.replace_schema_metadata({_MAKE: pickle.dumps(make)}))


def receive_answer(pipe: IO[bytes]) -> pa.Table:
    """Reads the rows that the stage gave. Raises StageFailed, or an EOFError if the process has ended."""
    answer = _receive(pipe)
    if answer is None:
        raise EOFError
    metadata = answer.schema.metadata or {}
    if _ERROR in metadata:
        raise StageFailed(metadata[_ERROR].decode(errors="replace"))
    return answer


def _send(pipe: IO[bytes], rows: pa.Table) -> None:
    with pa.ipc.new_stream(pipe, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=_BATCH_ROWS)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> pa.Table | None:
    """Reads the next Arrow stream as a table; None at the end of the pipe."""
    try:
        with pa.ipc.open_stream(pipe) as stream:
            return stream.read_all()
    except (pa.ArrowInvalid, OSError):  # the other end has closed, or was killed in the middle
        return None


def _answer(request: pa.Table) -> pa.Table:
    """Runs the stage of a request on its rows; returns its rows, or the traceback in the metadata."""
    try:
        stage = pickle.loads(request.schema.metadata[_MAKE])()
        batches = list(stage(iter(request.replace_schema_metadata(None).to_batches())))
        return pa.Table.from_batches(batches) if batches else pa.table({})
    except Exception:
        error = traceback.format_exc().encode()
        return pa.table({}).replace_schema_metadata({_ERROR: error})


def main() -> None:
    """Answers requests from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal: one decides
    faulthandler.enable()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    while (request := _receive(requests)) is not None:
        try:
            _send(answers, _answer(request))
        except BrokenPipeError:
            return


if __name__ == "__main__":
    without_pandas()
    main()

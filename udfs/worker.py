"""A process that answers calls without Spark, until its connection ends with the process that started it.

What Spark's Python workers run as mapInArrow callables runs here as it is (``udfs.calls.run_stage``).
``pipelines.engine.pool`` is the other end.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from kafka_log_lake.udfs import now_reading
from kafka_log_lake.udfs.calls import answer
from kafka_log_lake.udfs.no_pandas import without_pandas


def serve(connection: Connection, notes: int) -> None:
    """Answers calls until the connection ends. notes: see ``now_reading.use``."""
    now_reading.use(notes)
    # Ctrl-C reaches every process of a terminal: the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            call = connection.recv_bytes()
            now_reading.note("")
            connection.send_bytes(answer(call))


def main() -> None:
    """Serves the connection whose file descriptor is the first argument; the second is that of the notes."""
    connection, notes = map(int, sys.argv[1:])
    faulthandler.enable()
    os.dup2(2, 1)  # what a library prints is no result of the command
    serve(Connection(connection), notes)


if __name__ == "__main__":
    without_pandas()
    main()

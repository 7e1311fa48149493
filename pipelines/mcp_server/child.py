"""Runs a command for the server, and ends with it: nobody would stop a query of a server that was killed."""

from __future__ import annotations

import os
import signal
import threading

from kafka_log_lake.__main__ import script


def _end_with_the_server() -> None:
    """Waits for the end of standard input, which the server holds open, then ends this process."""
    while os.read(0, 1):  # no lock of a file object, for which the end of Python would wait
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    script()

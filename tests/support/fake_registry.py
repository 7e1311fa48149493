"""A schema registry on loopback that follows Confluent's REST API in what a restore asks of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+)")


class Refused(Exception):
    """An answer that is an error: the HTTP status, the registry's code and its words."""

    def __init__(self, status: int, code: int, words: str) -> None:
        super().__init__(words)
        self.status, self.body = status, {"error_code": code, "message": words}


@dataclass
class FakeRegistry:
    """What it holds. versions: (subject, version) -> the schema, as the API gives it.

    modes, configs: by subject, "" of all. log: method and path of each request that changes something.
    refuses: subjects that it takes no schema of.
    """

    url: str = ""
    versions: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)

    def get(self, path: str, query: dict[str, list[str]]) -> Any:
        if path == "/schemas":
            offset, limit = (int(query.get(name, [default])[0]) for name, default in _PAGES)
            return sorted(self.versions.values(), key=lambda one: (one["subject"], one["version"]))[
                offset : offset + limit
            ]
        if path.startswith("/mode/") and unquote(path[6:]) in self.modes:
            return {"mode": self.modes[unquote(path[6:])]}
        raise Refused(404, 40409, "Subject does not have subject-level mode configured")

    def put(self, path: str, query: dict[str, list[str]], body: Any) -> Any:
        _, kind, *named = path.split("/")
        subject = unquote(named[0]) if named else ""
        if kind == "mode":
            has_any = any(
                not one.get("deleted") and name == subject for (name, _), one in self.versions.items()
            )
            if body["mode"] == "IMPORT" and has_any and query.get("force") != ["true"]:
                raise Refused(422, 42205, f"Cannot import since found existing subjects: {subject}")
            self.modes[subject] = body["mode"]
        else:
            self.configs[subject] = body
        return body

    def post(self, path: str, _: object, body: Any) -> Any:
        subject = unquote(path.split("/")[2])
        if subject in self.refuses:
            raise Refused(422, 42201, "Invalid schema\nof this subject")
        if "id" in body and self.modes.get(subject) != "IMPORT":
            raise Refused(422, 42205, f"Subject {subject} is not in import mode")
        if "id" not in body and self.modes.get(subject) == "IMPORT":
            raise Refused(422, 42205, f"Subject {subject} is in import mode")
        for one in self.versions.values():
            is_same_id = (_context(one["subject"]), one["id"]) == (_context(subject), body.get("id"))
            if is_same_id and one["schema"] != body["schema"]:
                raise Refused(422, 42207, f"Overwrite new schema with id {one['id']} is not permitted.")
        for reference in body.get("references", ()):
            if (reference["subject"], reference["version"]) not in self.versions:
                raise Refused(422, 42201, f"No schema reference found for subject {reference['subject']}")
        number = body.get("version") or 1 + max((v for s, v in self.versions if s == subject), default=0)
        id_ = body.get("id") or 1 + max((one["id"] for one in self.versions.values()), default=0)
        self.versions[subject, number] = {**body, "subject": subject, "version": number, "id": id_}
        return {"id": id_}

    def delete(self, path: str, _: object) -> Any:
        if path.startswith("/mode/"):
            return self.modes.pop(unquote(path[6:]))
        match = _VERSION.fullmatch(path)
        assert match is not None, path
        self.versions[unquote(match[1]), int(match[2])]["deleted"] = True
        return int(match[2])


def _context(subject: str) -> str:
    """Ids are counted in each context: ``:.context:subject``."""
    return subject.split(":")[1] if subject.startswith(":.") else "."


_PAGES = (("offset", "0"), ("limit", "1000"))


class _Handler(BaseHTTPRequestHandler):
    registry: FakeRegistry

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        parts, given = urlsplit(self.path), []
        if length := int(self.headers["Content-Length"] or 0):
            given = [json.loads(self.rfile.read(length))]
        if self.command != "GET":
            self.registry.log.append(f"{self.command} {unquote(parts.path)}")
        try:
            do = getattr(self.registry, self.command.lower())
            status, body = 200, do(parts.path, parse_qs(parts.query), *given)
        except Refused as error:
            status, body = error.status, error.body
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """Serves an empty registry within a ``with`` block."""
    registry = FakeRegistry()
    handler = type("_Registry", (_Handler,), {"registry": registry})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield registry
        server.shutdown()
        thread.join()

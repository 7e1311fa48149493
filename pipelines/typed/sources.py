"""Reads schemas from other sources than ``_schemas``: files, folders, a running registry; and formats."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib import parse, request
from urllib.error import HTTPError

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.options import read_yaml
from kafka_log_lake.udfs.storage.regular_file import read_regular
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormats
from kafka_log_lake.udfs.values.schemas.registry import (
    AVRO,
    JSON_SCHEMA,
    PROTOBUF,
    UNKNOWN_ID,
    Registry,
    Schema,
    guid_of,
    schema_of,
)

_TYPES = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON_SCHEMA}
_PAGE = 1000  # as many as Confluent's registry gives at most
_SECONDS = 30  # without a byte
_MOST_SECONDS = 300  # of all that a registry answers
_BLOCK = 1 << 16
_JSON = "application/vnd.schemaregistry.v1+json"
_MOST_BYTES = 256 << 20  # of a file with schemas, and of all that a registry answers


def read_sources(paths: Sequence[str], url: str | None = None, formats: str | None = None) -> list[Registry]:
    """Reads one registry per source. Raises a UserError.

    paths: of ``--schemas``. url: of ``--registry``. formats: of ``--formats``.
    """
    registries = [_read_path(Path(path)) for path in paths]
    if formats is not None:
        registries.append(Registry(formats=read_formats(formats)))
    return [*registries, read_registry(url)] if url else registries


def read_formats(path: str) -> TopicFormats:
    """Reads what topics hold from a YAML file: topic (regular expression) -> format. Raises a UserError."""
    try:
        return TopicFormats.parsed(read_yaml(path, "--formats"))
    except ValueError as error:
        raise UserError(f"--formats: {path}: {error}") from None


def _read_path(path: Path) -> Registry:
    try:
        files = sorted(p for p in path.rglob("*") if p.suffix in _TYPES) if path.is_dir() else [path]
        if not files:
            raise UserError(f"--schemas: {path} holds no .avsc, .proto or .json file")
        return Registry([registry for file in files for registry in _read_file(file, path)])
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        place = getattr(error, "filename", None) or path
        raise UserError(f"--schemas: cannot read {place}: {reason}") from None


def _read_file(file: Path, root: Path) -> Iterator[Schema]:
    """Yields the schemas of a file: a registry's REST answer, or one schema that the file's name names.

    Names: ``<subject>.avsc``; ``<subject>@<id>.avsc``; ``<id>.avsc``. A topic's name means its values. .proto
    files import each other by their paths below the folder.
    """
    text = read_regular(file, _MOST_BYTES).decode()
    if file.suffix == ".json" or file == root:
        try:
            held = json.loads(text)
        except ValueError:
            held = None
        if isinstance(held, list) or (isinstance(held, dict) and {"id", "schema"} <= held.keys()):
            yield from _export(held if isinstance(held, list) else [held], str(file))
            return
    is_json = file.suffix == ".json"
    if file.suffix not in _TYPES or (is_json and (file == root or not isinstance(held, dict | bool))):
        raise _no_export(str(file), "no list, and no schema")
    named = re.fullmatch(r"(?:(.*)@)?(\d+)", file.stem)
    subject = file.stem if named is None else (named[1] or file.stem)
    yield Schema(
        subject=subject,
        version=1,
        id=UNKNOWN_ID if named is None else int(named[2]),
        guid=guid_of(text),
        type=_TYPES[file.suffix],
        text=text,
    )


def _export(listed: list[Any], place: str) -> list[Schema]:
    try:
        return [
            schema_of(version, (str(version["subject"]), int(version["version"])), -1) for version in listed
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_export(place, error) from None


def _no_export(place: str, why: object) -> UserError:
    return UserError(
        f"--schemas: {place} is neither a schema nor a registry's answer to GET /schemas?deleted=true: {why}"
    )


def read_registry(url: str) -> Registry:
    """Reads all schemas of a running registry, page by page. Raises a UserError where it does not answer."""
    return Registry(RegistryServer(url).schemas())


class _SameOrigin(request.HTTPRedirectHandler):
    """Follows a redirect to the same server alone: the request carries the user's name and password."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if _origin(newurl) != _origin(req.full_url):
            fp.close()
            place = parse.urlsplit(newurl)
            raise OSError(
                f"it redirects to another server, {place.scheme}://{place.netloc.rpartition('@')[2]}: "
                "name that one if it is the registry"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Returns scheme, host and port; the scheme's own port where none is named."""
    parts = parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


class RefusedRequest(OSError):
    """A registry's answer that is an error of HTTP, with what it says about it."""

    def __init__(self, status: int, text: str, body: bytes) -> None:
        super().__init__(text)
        self.status, self._body = status, body

    def held(self) -> Any:
        """Returns the JSON of the answer; {} for another text."""
        try:
            return json.loads(self._body)
        except (ValueError, RecursionError):
            return {}


class RegistryServer:
    """A running schema registry. All its answers together may take _MOST_SECONDS and have _MOST_BYTES."""

    def __init__(self, url: str) -> None:
        shown = re.sub(r"//[^/@]*@", "//", url)
        not_a_url = UserError(f"--registry: {shown!r} is not a URL such as http://registry:8081")
        try:
            parts = parse.urlsplit(url)
            _ = parts.port
        except ValueError:  # of a port or an address
            raise not_a_url from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise not_a_url
        place = parts.netloc.rpartition("@")[2]
        self._shown = f"{parts.scheme}://{place}{parts.path}"
        self._base = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
        self._headers: dict[str, str] = {}
        if parts.username is not None:
            secret = f"{parse.unquote(parts.username)}:{parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
        self._open = request.build_opener(_SameOrigin).open
        self._left, self._end = _MOST_BYTES, time.monotonic() + _MOST_SECONDS

    def schemas(self) -> list[Schema]:
        """Reads all schemas. Raises a UserError."""
        known: dict[tuple[str, int], Any] = {}
        while True:
            page = self._page(f"/schemas?deleted=true&subjectPrefix=:*:&offset={len(known)}&limit={_PAGE}")
            try:
                new = {(str(schema.get("subject")), int(schema.get("version", 0))): schema for schema in page}
            except (TypeError, ValueError) as error:
                raise self._error(f"does not answer with schemas: {error}") from None
            if not new.keys() - known.keys():  # a registry without pages answers all again
                break
            known |= new
        try:
            return _export(list(known.values()), self._shown)
        except UserError as error:
            raise UserError(str(error).replace("--schemas: ", "--registry: ", 1)) from None

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Asks for one thing. Returns the status and the JSON of the answer, also of a refusal.

        body: sent as JSON; None: nothing is sent. Raises a UserError where there is no answer.
        """
        self._left, self._end = _MOST_BYTES, time.monotonic() + _MOST_SECONDS
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": _JSON, "Accept": f"{_JSON}, application/json"}
        try:
            asked = request.Request(self._base + path, data, headers, method=method)
            return 200, json.loads(self._answer(asked) or b"null")
        except RefusedRequest as refused:
            return refused.status, refused.held()
        except (OSError, ValueError, RecursionError, HTTPException) as error:
            raise self._error(f"does not answer: {' '.join(str(error).split())}") from None

    def _error(self, words: str) -> UserError:
        return UserError(f"--registry: {self._shown} {words}")

    def _page(self, path: str) -> list[dict[str, Any]]:
        try:
            held = json.loads(self._answer(request.Request(self._base + path, headers=self._headers)))
        except (OSError, ValueError, RecursionError, HTTPException) as error:
            raise self._error(f"does not answer: {' '.join(str(error).split())}") from None
        if not isinstance(held, list) or not all(isinstance(item, dict) for item in held):
            raise self._error("does not answer with a list of schemas")
        return held

    def _answer(self, asked: request.Request) -> bytes:
        """Returns the body of an answer. Raises an OSError once it is too large, or takes too long.

        A thread reads it: no timeout of a socket ends headers of which a byte comes now and then.
        """
        parts: list[bytes] = []
        failed: list[Exception] = []

        def read() -> None:
            try:
                with self._open(asked, timeout=_SECONDS) as answer:
                    while (part := answer.read1(_BLOCK)) and self._left >= 0:
                        parts.append(part)
                        self._left -= len(part)
            except Exception as raised:  # what it is, the caller says
                error = raised
                if isinstance(error, HTTPError):
                    with error, suppress(OSError, HTTPException):
                        parts.append(error.read(_BLOCK))
                    error = RefusedRequest(error.code, str(error), b"".join(parts))
                failed.append(error)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(max(0.0, self._end - time.monotonic()))
        if failed:
            raise failed[0]
        if thread.is_alive():
            self._left = -1  # it ends with the next bytes
            raise OSError(f"it took more than {_MOST_SECONDS} seconds")
        if self._left < 0:
            raise OSError(f"its schemas have more than {_MOST_BYTES >> 20} MiB")
        return b"".join(parts)

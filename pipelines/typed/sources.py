"""Schemas from elsewhere than ``_schemas``: files, folders, and a registry that runs."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib import parse, request

from pipelines.command.errors import UserError
from udfs.source.regular_file import read_regular
from udfs.values.registry import AVRO, JSON_SCHEMA, PROTOBUF, UNKNOWN_ID, Registry, Schema, guid_of, schema_of

_TYPES = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON_SCHEMA}
_PAGE = 1000  # as many as Confluent's registry gives at most
_SECONDS = 30
_MOST_BYTES = 256 << 20  # of a file with schemas, and of all that a registry answers


def read_sources(paths: Sequence[str], url: str | None = None) -> list[Registry]:
    """A registry a source. paths: ``--schemas``. url: ``--registry``. Raises a UserError."""
    found = [_read_path(Path(path)) for path in paths]
    return [*found, read_registry(url)] if url else found


def _read_path(path: Path) -> Registry:
    try:
        files = sorted(p for p in path.rglob("*") if p.suffix in _TYPES) if path.is_dir() else [path]
        if not files:
            raise UserError(f"--schemas: {path} holds no .avsc, .proto or .json file")
        return Registry([one for file in files for one in _read_file(file, path)])
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        place = getattr(error, "filename", None) or path
        raise UserError(f"--schemas: cannot read {place}: {reason}") from None


def _read_file(file: Path, root: Path) -> Iterator[Schema]:
    """The schemas of a file: an answer of a registry's REST API, or one schema that the file's name names.

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
        return [schema_of(one, (str(one["subject"]), int(one["version"])), -1) for one in listed]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_export(place, error) from None


def _no_export(place: str, why: object) -> UserError:
    return UserError(
        f"--schemas: {place} is neither a schema nor a registry's answer to GET /schemas?deleted=true: {why}"
    )


def read_registry(url: str) -> Registry:
    """All schemas of a registry that runs, page by page. Raises a UserError where it does not answer."""
    found: dict[tuple[str, int], Any] = {}
    while True:
        query = f"deleted=true&subjectPrefix=:*:&offset={len(found)}&limit={_PAGE}"
        page = _get(url, f"/schemas?{query}")
        new = {(str(one.get("subject")), int(one.get("version", 0))): one for one in page}
        if not new.keys() - found.keys():  # a registry without pages answers all again
            break
        found |= new
    try:
        return Registry(_export(list(found.values()), url))
    except UserError as error:
        raise UserError(str(error).replace("--schemas: ", "--registry: ", 1)) from None


def _get(url: str, path: str) -> list[dict[str, Any]]:
    parts = parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"--registry: {url!r} is not a URL such as http://registry:8081")
    place = parts.netloc.rpartition("@")[2]
    page = request.Request(f"{parts.scheme}://{place}{parts.path.rstrip('/')}{path}")
    if parts.username is not None:
        secret = f"{parse.unquote(parts.username)}:{parse.unquote(parts.password or '')}"
        page.add_header("Authorization", "Basic " + base64.b64encode(secret.encode()).decode())
    shown = f"{parts.scheme}://{place}{parts.path}"
    try:
        with request.urlopen(page, timeout=_SECONDS) as answer:
            held = json.loads(answer.read())
    except (OSError, ValueError) as error:
        raise UserError(f"--registry: {shown} does not answer: {' '.join(str(error).split())}") from None
    if not isinstance(held, list) or not all(isinstance(one, dict) for one in held):
        raise UserError(f"--registry: {shown} does not answer with a list of schemas")
    return held

"""Resolves ``--source`` values into local folders, local files and URIs of other file systems.

The first step of a run; ``pipelines.listing.listing`` lists the resolved :class:`Sources`. A path that exists
is taken literally, so a folder called ``a[1]`` needs no escape.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.listing.naming import DELETED_SUFFIX
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.storage import store
from kafka_log_lake.udfs.storage.foreign import name_kind

GLOB_CHARACTERS = "{}[]*?\\"
_NO_GLOB_NEEDED = str.maketrans({c: "\\" + c for c in GLOB_CHARACTERS + ","})
# Where Databricks mounts its own file systems for Python; Spark's JVM opens them by dbfs:/
VOLUMES, DBFS = "/Volumes", "/dbfs"
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)=(.+)", re.DOTALL)


@dataclass
class Sources:
    """The resolved sources, each once.

    folders, files: absolute local paths with all links resolved.
    remote: canonical URIs of other file systems.
    """

    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    remote: list[str] = field(default_factory=list)


class Source(NamedTuple):
    """A value of ``--source``: a place, and the name of the broker whose disk it is; None without one."""

    name: str | None
    path: str


def parse_source(text: str) -> Source:
    """Parses NAME=PATH, or a path, which may hold an equals sign where it exists."""
    match = _NAMED.fullmatch(text)
    if match is None or os.path.lexists(text):
        return Source(None, text)
    return Source(match[1], match[2])


def is_named(sources: Iterable[str]) -> bool:
    """Says whether any of the values of ``--source`` has a name."""
    return any(parse_source(text).name is not None for text in sources)


def glob_flags() -> int:
    """Returns the flags with which ``wcmatch.glob`` reads patterns."""
    from wcmatch import glob

    return glob.BRACE | glob.DOTGLOB | glob.NODOTDIR


def escape(path: str) -> str:
    """Returns a glob that matches only this path."""
    return path.translate(_NO_GLOB_NEEDED)


def resolve(sources: Iterable[str], default_scheme: str = "file") -> Sources:
    """Resolves sources. Raises a UserError for one that is empty, does not exist or matches nothing.

    default_scheme: the URI scheme of a path without one.
    """
    resolved = Sources()
    for source in sources:
        if not source:
            raise UserError("--source is empty: name a log directory, partition folder, .log file or glob")
        path = local_path(source, default_scheme)
        if path is None:
            _refuse_password(source)
            resolved.remote.append(store.canonical_uri(source))
        else:
            for place in _expanded(path):
                _add_local(place, resolved)
    for names in (resolved.folders, resolved.files, resolved.remote):
        names[:] = dict.fromkeys(names)
    return resolved


def _refuse_password(uri: str) -> None:
    """Raises a UserError for a URI with a password, which the tables would hold in each row's ``segment``."""
    scheme, _, rest = uri.partition("://")
    user, at, place = rest.split("/")[0].rpartition("@")
    if at and ":" in user:
        raise UserError(
            f"--source {scheme}://...@{place}: the tables would keep this password in every row: give it by "
            "the variables or files that the store's own library reads"
        )


def local_path(source: str, default_scheme: str = "file") -> str | None:
    """Returns the absolute local path of a source; None if it is on another file system.

    default_scheme: the scheme of a path without one.
    """
    scheme, colon, rest = source.partition(":")
    if colon and scheme.lower() == "file" and rest.startswith("/"):
        return "/" + rest.lstrip("/")
    if colon and scheme.lower() == "dbfs" and rest.startswith("/"):
        return mounted("/" + rest.lstrip("/"))
    if colon and rest.startswith("//"):
        return None
    return os.path.abspath(source) if default_scheme == "file" else None


def mounted(path: str) -> str:
    """Returns where Databricks mounts a path of a ``dbfs:`` URI: Volumes have their own mount."""
    return path if path.startswith(f"{VOLUMES}/") else DBFS + path


def missing_mount(path: str) -> str:
    """Returns what to use instead of a path below a mount of Databricks that is not here; "" elsewhere."""
    if path.startswith(f"{DBFS}/") and not os.path.isdir(DBFS):
        return (
            f"this computer has no mount {DBFS}, nor has Databricks' serverless compute: copy the files into "
            f"a Volume, and name {VOLUMES}/<catalog>/<schema>/<volume>/..."
        )
    if path.startswith(f"{VOLUMES}/") and not os.path.isdir(VOLUMES):
        return (
            f"{VOLUMES} is mounted on Databricks' compute alone: run the command there, or name the Volume's "
            "folder in its bucket, such as s3://..."
        )
    return ""


def canonical(path: str) -> str:
    """Returns the URI of an absolute local path, without percent-encoding."""
    return "file://" + path


def _expanded(path: str) -> list[str]:
    """Returns the path in a list if it exists, else the paths that it matches as a glob.

    A UserError for none.
    Files that are neither segments nor folders are left out.
    """
    if os.path.lexists(path):
        return [path]
    if problem := missing_mount(path):
        raise UserError(f"no such path: {path}: {problem}")
    if not any(c in path for c in GLOB_CHARACTERS):
        rule = "; the NAME of NAME=PATH has letters, digits, '.', '_' and '-' alone" if "=" in path else ""
        if os.path.lexists(mounted(path)):
            rule = f"; on DBFS there is dbfs:{path}"
        raise UserError(f"no such path: {path}{rule}")
    from wcmatch import glob  # few sources are patterns

    try:
        matches = glob.glob(path, flags=glob_flags())
    except Exception as error:
        raise UserError(
            f"no such path, and as a glob it expands to too many patterns: {path}: {error}"
        ) from error
    if not matches:
        raise UserError(f"no such path, and as a glob it matches nothing: {path}")
    suffixes = (SEGMENT_SUFFIX, DELETED_SUFFIX) if path.endswith(".deleted") else SEGMENT_SUFFIX
    return sorted(m for m in matches if os.path.isdir(m) or m.endswith(suffixes))


def _add_local(path: str, resolved: Sources) -> None:
    try:
        root = os.path.realpath(path, strict=True)
    except OSError as error:
        problem = "is a broken link" if os.path.islink(path) else f"can't be opened: {error.strerror}"
        raise UserError(f"{path} {problem}") from None
    if os.path.isfile(root):
        if not root.endswith((SEGMENT_SUFFIX, DELETED_SUFFIX)):
            kind = name_kind(*os.path.split(root)) or "the name of a segment is 20 digits and .log"
            raise UserError(f"{path} is not a segment: {kind}")
        resolved.files.append(root)
        return
    if not os.path.isdir(root):
        raise UserError(f"{path} is neither a folder nor a file")
    if not os.access(root, os.R_OK | os.X_OK):
        raise UserError(f"{path} can't be read: permission denied")
    resolved.folders.append(root)

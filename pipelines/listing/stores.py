"""Lists object stores with pyarrow: a thousand objects a request, without Spark and without Java.

So are the stores that fsspec opens; where a listing has names alone, as that of a web server, each file is
asked for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import takewhile

import pyarrow as pa
from pyarrow import fs
from wcmatch import glob

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.listing.uris import GLOB_CHARACTERS, glob_flags
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.storage.byte_source import reason_of
from kafka_log_lake.udfs.storage.store import open_store

FILES_SCHEMA = pa.schema([("path", pa.string()), ("length", pa.int64()), ("modified", pa.int64())])


def list_files(uri: str, suffixes: tuple[str, ...] = (SEGMENT_SUFFIX,)) -> tuple[pa.Table, set[str]]:
    """Lists every object at or below a canonical URI or glob whose name ends in one of the suffixes.

    Returns a table of FILES_SCHEMA (modified: microseconds since 1970 UTC), and the URIs of objects that the
    URI itself names: for those, the table holds all objects of their folder. Raises a UserError if the URI
    can't be listed.
    """
    try:
        system, path = open_store(uri)
        prefix = uri.rstrip("/").removesuffix(path.rstrip("/"))
        if not uri.rstrip("/").endswith(path.rstrip("/")):
            raise ValueError(f"name it {uri.partition('://')[0]}://{path}")
        files, named = _files(system, path.rstrip("/"))
        logs = [f for f in files if f.type == fs.FileType.File and f.path.endswith(suffixes)]
        if any(f.size is None or f.mtime_ns is None for f in logs):
            asked = system.get_file_info([f.path for f in logs])
            logs = [f for f in asked if f.type == fs.FileType.File]
    except FileNotFoundError:
        raise UserError(f"no such path: {uri}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{uri} can't be opened: {reason_of(error)}") from error
    table = files_table((prefix + f.path, f.size, f.mtime_ns // 1000) for f in logs)
    return table, {prefix + path for path in named}


def files_table(files: Iterable[tuple[str, int, int]]) -> pa.Table:
    """Builds a table of FILES_SCHEMA from path, bytes and modification time (microseconds) of each file."""
    columns = list(zip(*files, strict=True)) or [()] * len(FILES_SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, FILES_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=FILES_SCHEMA)


def _files(system: fs.FileSystem, path: str) -> tuple[list[fs.FileInfo], set[str]]:
    """Returns the objects at or below a path, and the paths of those that it names.

    Raises FileNotFoundError.
    """
    kind = system.get_file_info(path).type
    if kind == fs.FileType.File:
        return _named(system, [path]), {path}
    if kind == fs.FileType.Directory:
        return system.get_file_info(fs.FileSelector(path, recursive=True)), set()
    if not any(character in path for character in GLOB_CHARACTERS):
        raise FileNotFoundError(path)
    plain = takewhile(lambda part: not any(c in part for c in GLOB_CHARACTERS), path.split("/"))
    begin = "/".join(plain)
    infos = system.get_file_info(fs.FileSelector(begin, recursive=True))
    named = {f.path for f in infos if glob.globmatch(f.path, path, flags=glob_flags())}
    files = {f.path for f in infos if f.type == fs.FileType.File}
    if not named:
        raise FileNotFoundError(path)

    @cache
    def is_below(folder: str) -> bool:
        return folder in named or ("/" in folder and is_below(folder.rpartition("/")[0]))

    below = [f for f in infos if is_below(f.path.rpartition("/")[0])]
    alone = {p for p in named & files if p.endswith(SEGMENT_SUFFIX) and not is_below(p.rpartition("/")[0])}
    if not alone:
        return below, set()
    wanted = {f.path for f in below} | alone
    return [*below, *_named(system, sorted(alone))], wanted


def _named(system: fs.FileSystem, paths: list[str]) -> list[object]:
    """Returns all objects of the folders in which these paths lie."""
    folders = {path.rpartition("/")[0] for path in paths}
    return [f for folder in sorted(folders) for f in system.get_file_info(fs.FileSelector(folder))]


def is_gone(uri: str) -> bool:
    """Says whether no object and no folder has a canonical URI; False if that can't be found out."""
    try:
        system, path = open_store(uri)
        return bool(system.get_file_info(path).type == fs.FileType.NotFound)
    except (OSError, ValueError):
        return False

"""What the user named as sources, made into glob patterns that Spark's listing takes.

First station of a run: ``--source`` values in, :class:`Found` out; ``pipelines.source.listing`` reads it. A
recursive listing by Spark drops folders that begin with ``_`` (``__consumer_offsets-0``) and reads folders
with ``=`` as table partitions; one glob for each depth does neither. Names that exist as they stand are taken
literally, so a folder called ``a[1]`` needs no escape.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from pipelines.command.errors import UserError, one_line

SEGMENT_SUFFIX = ".log"
GLOB_CHARACTERS = "{}[]*?\\"
_NO_GLOB_NEEDED = str.maketrans({c: "\\" + c for c in GLOB_CHARACTERS + ","})


@dataclass
class Found:
    """The sources, resolved.

    patterns: globs (or escaped paths) of every ``.log`` file below a folder that was named.
    files: single files that were named, as Spark spells their path (``file:/a/b``, ``s3a://...``).
    links: whether a symbolic link lies below a local folder; then the listing must look at each path.
    """

    patterns: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    links: bool = False


def escape(path: str) -> str:
    """A path as a Hadoop glob that matches it alone."""
    return path.translate(_NO_GLOB_NEEDED)


def resolve(spark: SparkSession, sources: Iterable[str], follow_symlinks: bool) -> Found:
    """Where to look for segments; a UserError where a source leads nowhere."""
    found = Found()
    for source in sources:
        if not source:
            raise UserError("--source is empty: name a log directory, partition folder, .log file or glob")
        local = local_path(spark, source)
        if local is None:
            _add_remote(spark, source, found)
        else:
            _add_local(spark, local, follow_symlinks, found)
    found.patterns = list(dict.fromkeys(found.patterns))
    found.files = list(dict.fromkeys(found.files))
    return found


def local_path(spark: SparkSession, source: str) -> str | None:
    """The absolute local path that a source names, or None where it is another file system's."""
    scheme, colon, rest = source.partition(":")
    if colon and scheme.lower() == "file" and rest.startswith("/"):
        return "/" + rest.lstrip("/")
    if colon and rest.startswith("//"):
        return None
    hadoop = _hadoop(spark)
    default = hadoop.fs.FileSystem.getDefaultUri(_configuration(spark)).getScheme()
    return os.path.abspath(source) if default == "file" else None


def _add_local(spark: SparkSession, path: str, follow_symlinks: bool, found: Found) -> None:
    if os.path.lexists(path):
        _add_local_root(os.path.realpath(path), path, follow_symlinks, found)
        return
    if not any(c in path for c in GLOB_CHARACTERS):
        raise UserError(f"no such path: {path}")
    try:
        matches = _glob(spark, "file:" + path)
    except Exception as error:
        raise UserError(f"no such path, and no glob either: {path}: {one_line(error)}") from error
    if not matches:
        raise UserError(f"no such path, and as a glob it matches nothing: {path}")
    for match in matches:
        name = match.getPath().toUri().getPath()
        if match.isDirectory() or name.endswith(SEGMENT_SUFFIX):
            _add_local_root(os.path.realpath(name), name, follow_symlinks, found)


def _add_local_root(root: str, named: str, follow_symlinks: bool, found: Found) -> None:
    """One existing local folder or file; ``root`` is free of links."""
    if os.path.isfile(root):
        if not root.endswith(SEGMENT_SUFFIX):
            raise UserError(f"{named} is no segment: segment files are named by 20 digits and .log")
        found.files.append("file:" + root)
        return
    if not os.path.isdir(root):
        what = "a link that leads nowhere" if os.path.islink(root) else "neither a folder nor a file"
        raise UserError(f"{named} is {what}")
    if not os.access(root, os.R_OK | os.X_OK):
        raise UserError(f"{named} can't be read: permission denied")
    depths: set[int] = set()
    unspeakable = False
    for depth, entries in _walk(root, follow_symlinks):
        if any(e.name.endswith(SEGMENT_SUFFIX) for e in entries):
            depths.add(depth)
        found.links |= any(e.is_symlink() for e in entries)
        unspeakable |= any(":" in e.name for e in entries)
    if unspeakable:  # Hadoop's globs stop at a colon in any name beside ours, so name each file
        found.patterns += ["file:" + escape(path) for path in _files(root, follow_symlinks)]
    else:
        level = "file:" + escape(root).rstrip("/") + "/*"
        found.patterns += [level + "/*" * depth + SEGMENT_SUFFIX for depth in sorted(depths)]


def _walk(root: str, follow_symlinks: bool) -> Iterator[tuple[int, list[os.DirEntry[str]]]]:
    """(depth, entries) of every readable folder at or below root, none twice; root has depth 0."""
    seen: set[str] = set()
    todo = [(0, root)]
    while todo:
        depth, folder = todo.pop()
        if follow_symlinks:
            real = os.path.realpath(folder)
            if real in seen:
                continue
            seen.add(real)
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except OSError:
            continue  # gone or closed to us since; Spark's own listing says so where it matters
        yield depth, entries
        todo += [(depth + 1, e.path) for e in entries if e.is_dir(follow_symlinks=follow_symlinks)]


def _files(root: str, follow_symlinks: bool) -> Iterator[str]:
    for _, entries in _walk(root, follow_symlinks):
        for entry in entries:
            is_segment = entry.name.endswith(SEGMENT_SUFFIX) and entry.is_file(
                follow_symlinks=follow_symlinks
            )
            if is_segment and ":" not in entry.path:
                yield entry.path


def _add_remote(spark: SparkSession, source: str, found: Found) -> None:
    """A URI of another file system: depth by depth, for as long as there is anything deeper."""
    try:
        statuses = _glob(spark, escape(source)) or _glob(spark, source)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{source} can't be opened: {one_line(error)}") from error
    if not statuses:
        raise UserError(f"no such path: {source}")
    for status in statuses:
        root = status.getPath().toString()
        if not status.isDirectory():
            if root.endswith(SEGMENT_SUFFIX):
                found.files.append(root)
            continue
        level = escape(root).rstrip("/")
        while _glob(spark, level + "/*"):
            if _glob(spark, level + "/*" + SEGMENT_SUFFIX):
                found.patterns.append(level + "/*" + SEGMENT_SUFFIX)
            level += "/*"


def _glob(spark: SparkSession, pattern: str) -> list[Any]:
    """Hadoop's FileStatus objects of what a glob matches."""
    path = _hadoop(spark).fs.Path(pattern)
    return list(path.getFileSystem(_configuration(spark)).globStatus(path) or [])


def exists(spark: SparkSession, uri: str) -> bool:
    """Whether a file is there; ``uri`` in canonical form."""
    path = _hadoop(spark).fs.Path(uri)
    return bool(path.getFileSystem(_configuration(spark)).exists(path))


def size(spark: SparkSession, uri: str) -> int | None:
    """Bytes of a file, None where it is gone; ``uri`` in canonical form."""
    path = _hadoop(spark).fs.Path(uri)
    system = path.getFileSystem(_configuration(spark))
    return int(system.getFileStatus(path).getLen()) if system.exists(path) else None


def _hadoop(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop


def _configuration(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()

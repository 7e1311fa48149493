"""Lists local folders: each with its segments, and with what the log cleaner left where that is requested."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kafka_log_lake.pipelines.listing.checkpoints import CHECKPOINT_FILES
from kafka_log_lake.pipelines.listing.identity import META, QUORUM_STATE
from kafka_log_lake.pipelines.listing.naming import (
    BROKEN_LINK,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEFT_BEHIND,
    LINK,
    SPECIAL,
    UNREADABLE,
    UNREADABLE_FOLDER,
    File,
    Folder,
    is_log,
    left_behind,
    parse_folder,
    parse_topic_id,
)
from kafka_log_lake.pipelines.listing.other_files import other_files
from kafka_log_lake.pipelines.listing.uris import canonical
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.storage.regular_file import MOST_SMALL_BYTES, RefusedFile, read_regular, what_it_is

if TYPE_CHECKING:
    from kafka_log_lake.pipelines.listing.listing import Listing

_METADATA = "partition.metadata"


def is_read_beside(name: str) -> bool:
    """Says whether a file of this name is read next to segments, or above their folders."""
    from kafka_log_lake.udfs.indexes.files import broker_file  # only odd files are asked about

    return name in (_METADATA, META, QUORUM_STATE) or broker_file(name) is not None


def local_folders(
    roots: Iterable[str],
    files: Iterable[str],
    follow_symlinks: bool,
    suffixes: tuple[str, ...],
    listing: Listing,
) -> Iterator[Folder]:
    """Yields every folder with segments at or below the roots, and the folders of files that sources name.

    suffixes: how the names of the files to list end: of segments, and of what was left behind and is
    selected. What can't be read, and what else was left, is counted in ``listing``. The checkpoint files of
    a log directory are read before the segments below it are listed.
    """
    seen: set[str] = set()
    links: list[str] = []
    listing.checkpoints.follows = listing.witnesses.follows = follow_symlinks
    for root in roots:
        yield from _walk(root, seen, links, suffixes, listing)
    while follow_symlinks and links:
        links.sort(key=lambda path: (len(path), path), reverse=True)
        link = links.pop()
        try:
            real = os.path.realpath(link, strict=True)
        except OSError:  # also one that leads to itself
            if is_log(os.path.basename(link)):
                listing.skipped[BROKEN_LINK] += 1
            continue
        if os.path.isdir(real):
            if real not in seen:
                yield from _walk(link, seen, links, suffixes, listing)
        elif link.endswith(SEGMENT_SUFFIX) and os.path.dirname(real) not in seen and real not in seen:
            seen.add(real)
            yield from _named_file(link, suffixes, listing)
        elif is_read_beside(os.path.basename(link)):
            _refuse(link, os.stat(real).st_mode, listing)
    for link in links:  # that were not followed
        if is_log(os.path.basename(link)):
            listing.skipped[LINK] += 1
        elif is_read_beside(os.path.basename(link)):
            _refuse(link, stat.S_IFLNK, listing)
    for path in files:
        yield from _named_file(path, suffixes, listing)
    for path, why in listing.checkpoints.refused.items():
        _note_refused(path, why, listing)


def _walk(
    root: str, seen: set[str], links: list[str], suffixes: tuple[str, ...], listing: Listing
) -> Iterator[Folder]:
    """Yields folders with segments at or below ``root`` that are not in ``seen``. Adds links to ``links``."""
    not_requested, follows = tuple(set(LEFT_BEHIND) - set(suffixes)), listing.witnesses.follows
    listing.checkpoints.read(os.path.dirname(root))
    todo = [(root, os.path.realpath(root))]
    while todo:
        path, real = todo.pop()
        if real in seen:
            continue
        seen.add(real)
        try:
            with os.scandir(path) as listed:
                entries = list(listed)
        except OSError as error:
            listing.skipped[UNREADABLE_FOLDER] += 1
            listing.unreadable[canonical(path)] = error.strerror or str(error)
            continue
        if checkpoints := CHECKPOINT_FILES.intersection(entry.name for entry in entries):
            listing.checkpoints.read(path, checkpoints)
        listing.witnesses.read(path, entries)
        logs = []
        for entry in entries:
            if entry.is_symlink():
                links.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                todo.append((entry.path, os.path.join(real, entry.name)))
            elif entry.name.endswith(suffixes):
                is_wanted = not entry.name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX))
                logs += _stat(entry.path, entry.name, is_wanted, listing)
            elif not entry.is_file(follow_symlinks=False) and is_read_beside(entry.name):
                _refuse(entry.path, entry.stat(follow_symlinks=False).st_mode, listing)
        listing.skipped.update(other_files(path, [entry.name for entry in entries]))
        left = [entry.name for entry in entries if entry.name.endswith(not_requested)]
        if left and not isinstance(parse_folder(canonical(path)), str):
            listing.skipped.update(filter(None, map(left_behind, left)))
        if logs:
            topic_id = topic_id_of(path, entries, partial(_note_refused, listing=listing), follows)
            yield Folder(canonical(path), logs, topic_id, is_named=path == root)


def _stat(path: str, name: str, wanted: bool, listing: Listing) -> list[File]:
    """Returns a list of the file.

    [] if it is gone, can't be read or is no regular file, as ``listing`` then says.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        listing.partial.add(canonical(os.path.dirname(path)))
        if wanted:
            listing.skipped[UNREADABLE] += 1
            listing.unreadable[canonical(os.path.dirname(path))] = error.strerror or str(error)
        return []
    if not stat.S_ISREG(status.st_mode):
        if wanted:
            listing.skipped[SPECIAL] += 1
        return []
    return [File(name, status.st_size, status.st_mtime_ns // 1000, wanted)]


def _refuse(path: str, mode: int, listing: Listing) -> None:
    """Notes a file that would be read if it were a regular one. mode: its ``st_mode``."""
    kind = what_it_is(mode)
    if kind is not None:
        _note_refused(path, f"it is {kind}", listing)


def _note_refused(path: str, why: str, listing: Listing) -> None:
    if canonical(path) not in listing.unreadable:
        listing.skipped[UNREADABLE] += 1
        listing.unreadable[canonical(path)] = why


def topic_id_of(
    folder: str, entries: Iterable[os.DirEntry[str]], refused: Callable[[str, str], None], follow: bool
) -> str | None:
    """Returns the topic id in a folder's ``partition.metadata``; None without one.

    refused: is told of a file that is too large, or no regular one, and why. follow: links are read too.
    """
    if not any(entry.name == _METADATA for entry in entries):
        return None
    path = os.path.join(folder, _METADATA)
    try:
        return parse_topic_id(read_regular(path, MOST_SMALL_BYTES, follow).decode(errors="replace"))
    except RefusedFile as error:
        refused(path, str(error.strerror))
    except OSError:
        pass
    return None


def _named_file(path: str, suffixes: tuple[str, ...], listing: Listing) -> Iterator[Folder]:
    """Yields the folder of one file.

    Its other files are not wanted: they show whether the file has a successor.
    """
    folder, name = os.path.split(path)
    follows = listing.witnesses.follows
    listing.checkpoints.read(os.path.dirname(folder))
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
    except OSError:  # this user may not list the folder, but perhaps read the file
        listing.partial.add(canonical(folder))
        entries = []
    listing.witnesses.read(folder, entries)
    logs = _stat(path, name, True, listing)
    for entry in entries:
        if entry.name != name and entry.name.endswith(suffixes) and entry.is_file(follow_symlinks=False):
            logs += _stat(entry.path, entry.name, False, listing)
    for entry in entries:
        is_odd = not (entry.is_file(follow_symlinks=follows) or entry.is_dir())
        if is_odd and is_read_beside(entry.name):
            with suppress(OSError):  # it went away
                _refuse(entry.path, entry.stat(follow_symlinks=follows).st_mode, listing)
    topic_id = topic_id_of(folder, entries, partial(_note_refused, listing=listing), follows)
    yield Folder(canonical(folder), logs, topic_id, is_named=True, is_whole=False)

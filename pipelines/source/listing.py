"""Lists the segments of the sources: names, lengths and times. Nothing here reads a segment's bytes.

This process lists local folders and object stores, Spark other file systems; the rules for names are the
same. A million files take some 150 MB, as Arrow columns.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import regex

from pipelines.command.errors import UserError
from pipelines.command.terminal import first_names
from pipelines.command.values import REGEX_FLAGS
from pipelines.source.naming import (
    LEFT_BEHIND,
    NO_PARTITION,
    NULL_TO_SPARK,
    NULL_TOPIC,
    SEGMENT_SUFFIX,
    UNREADABLE,
    UNREADABLE_FOLDER,
    PartitionFolder,
    counts_folders,
    left_behind,
    parse_file,
    parse_folder,
    parse_topic_id,
)
from pipelines.source.uris import canonical, resolve
from udfs.source.store import is_object_store

if TYPE_CHECKING:
    from pipelines.command.on_demand import SparkOnDemand

LISTING_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("partition_dir", pa.string()),
        ("segment", pa.string()),
        ("file_base_offset", pa.int64()),
        ("length", pa.int64()),
        ("modified", pa.int64()),
        ("has_successor", pa.bool_()),
        ("log_start_offset", pa.int64()),
        ("topic_id", pa.string()),
        ("landed_at", pa.int64()),
        ("wanted", pa.bool_()),
    ]
)
_ROWS = 1 << 16
_METADATA = "partition.metadata"
_LEFT_BEHIND = tuple(LEFT_BEHIND)


class File(NamedTuple):
    """A ``.log`` file.

    modified: microseconds since 1970 UTC. wanted: False if no source names the file, and it was listed only
    because another file of its folder was named.
    """

    name: str
    length: int
    modified: int
    wanted: bool


class Folder(NamedTuple):
    """A folder with its ``.log`` files. uri: canonical, no trailing slash. topic_id: None if unknown."""

    uri: str
    files: list[File]
    topic_id: str | None


@dataclass
class Listing:
    """The segments of the sources, and what was skipped.

    segments: LISTING_SCHEMA, by folder and base offset. It holds all segments of each partition folder;
    ``wanted`` is False for those that no source names. modified, landed_at: microseconds since 1970 UTC;
    landed_at is null unless the bytes come from ``raw_segments``.
    skipped: reason -> number of folders, or of files (``naming.counts_folders``).
    unreadable: URI of a folder or file that could not be read -> why.
    partial: URIs of folders of which not every file could be listed.
    unasked: topics with segments that the filters exclude.
    """

    segments: pa.Table = field(default_factory=LISTING_SCHEMA.empty_table)
    skipped: Counter[str] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)
    unasked: set[str] = field(default_factory=set)


class TopicFilter:
    """``--topics`` and ``--exclude-topics``: regular expressions for the whole name. True: take the topic."""

    def __init__(self, topics: str | None = None, exclude_topics: str | None = None) -> None:
        self._wanted = topics and compiled(topics, "--topics")
        self._excluded = exclude_topics and compiled(exclude_topics, "--exclude-topics")

    def __call__(self, topic: str) -> bool:
        if self._wanted and not self._wanted.fullmatch(topic):
            return False
        return not (self._excluded and self._excluded.fullmatch(topic))


def compiled(expression: str, option: str) -> regex.Pattern[str]:
    """A compiled regular expression of the package ``regex``. Raises a UserError if it does not compile."""
    try:
        return regex.compile(expression, REGEX_FLAGS)
    except regex.error as error:
        raise UserError(f"{option} {expression!r} is not a regular expression: {error}") from None


def list_segments(
    sources: str | Sequence[str],
    *,
    on_demand: SparkOnDemand | None = None,
    follow_symlinks: bool = False,
    topics: str | None = None,
    exclude_topics: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    null_topic: bool = True,
) -> Listing:
    """The segments of all sources, each once. Raises a UserError if a source can't be opened or holds none.

    on_demand: its Spark lists file systems that only it opens; None where none are among the sources.
    topic, partition: of the segments, whatever their folder is called; then all have to be in one folder.
    null_topic: whether a topic with the name that Spark's writer reads as null may be decoded.
    """
    sources = [sources] if isinstance(sources, str) else list(sources)
    topic_filter = TopicFilter(topics, exclude_topics)
    resolved = resolve(sources, _default_scheme(on_demand))
    listing = Listing()
    rows = _Rows()
    local = _local_folders(resolved.folders, resolved.files, follow_symlinks, listing)
    folders = list(_merged([*local, *_remote_folders(on_demand, resolved.remote)]))
    if topic is not None:
        _check_one_folder(folders)
    for folder in folders:
        place = parse_folder(folder.uri if topic is None else f"{topic}-{partition}")
        _add_folder(folder, place, topic_filter, null_topic, listing, rows)
    listing.segments = rows.table().sort_by(
        [("partition_dir", "ascending"), ("file_base_offset", "ascending")]
    )
    if not listing.segments.num_rows and not listing.skipped and not listing.unasked:
        raise no_segments_error(sources)
    return listing


def no_segments_error(sources: Iterable[str], listing: Listing | None = None) -> UserError:
    """The error if the sources hold no segment. listing: what was skipped and left out of them."""
    text = f"no segments (<topic>-<partition>/<20 digits>.log) in {', '.join(sources)}"
    listing = listing or Listing()
    skipped = [f"{n} x {reason}" for reason, n in sorted(listing.skipped.items())]
    if listing.unasked:
        topics = first_names(sorted(listing.unasked))
        skipped.append(f"topics that do not match --topics, or match --exclude-topics: {topics}")
    if skipped:
        text += f"; skipped: {', '.join(skipped)}"
    if NO_PARTITION in listing.skipped:
        text += "; say what a folder of another name holds: --topic NAME --partition NUMBER"
    return UserError(text)


def _check_one_folder(folders: Iterable[Folder]) -> None:
    """Raises a UserError if the segments that sources name are in several folders."""
    found = sorted(f.uri for f in folders if any(one.wanted for one in f.files))
    if len(found) > 1:
        raise UserError(
            f"--topic and --partition are for the segments of one folder, and here are {len(found)}: "
            f"{first_names(found, 3)}"
        )


class _Rows:
    """Rows of LISTING_SCHEMA, converted to Arrow in batches: Python objects take ten times the memory."""

    def __init__(self) -> None:
        self._pending: list[tuple[object, ...]] = []
        self._batches: list[pa.RecordBatch] = []

    def add(self, *values: object) -> None:
        self._pending.append(values)
        if len(self._pending) == _ROWS:
            self._flush()

    def _flush(self) -> None:
        columns = zip(*self._pending, strict=True) if self._pending else [[]] * len(LISTING_SCHEMA)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, LISTING_SCHEMA, strict=True)]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=LISTING_SCHEMA))
        self._pending = []

    def table(self) -> pa.Table:
        self._flush()
        return pa.Table.from_batches(self._batches, LISTING_SCHEMA)


def _add_folder(
    folder: Folder,
    place: PartitionFolder | str,
    topic_filter: TopicFilter,
    null_topic: bool,
    listing: Listing,
    rows: _Rows,
) -> None:
    """Adds the segments of a folder to ``rows``, or counts in ``listing`` why they are skipped."""
    wanted = sum(file.wanted for file in folder.files)
    if not isinstance(place, str) and place.topic == NULL_TOPIC and not null_topic:
        place = NULL_TO_SPARK
    if isinstance(place, str):
        listing.skipped[place] += 1 if counts_folders(place) else wanted
        return
    segments: list[tuple[int, File]] = []
    for file in folder.files:
        offset = parse_file(file.name)
        if isinstance(offset, int):
            segments.append((offset, file))
        elif file.wanted:
            listing.skipped[offset] += 1
    if not topic_filter(place.topic):
        if any(file.wanted for _, file in segments):
            listing.unasked.add(place.topic)
        return
    log_start = min((offset for offset, _ in segments), default=0)
    last = max((offset for offset, file in segments if file.length), default=-1)
    for offset, file in segments:
        rows.add(
            *place,
            folder.uri,
            f"{folder.uri}/{file.name}",
            offset,
            file.length,
            file.modified,
            last > offset,
            log_start,
            folder.topic_id,
            None,
            file.wanted,
        )


def _merged(folders: Iterable[Folder]) -> Iterator[Folder]:
    """Each folder once, even if several sources contain it. A file is wanted if any source wants it."""
    by_uri: dict[str, Folder] = {}
    for folder in folders:
        other = by_uri.get(folder.uri)
        if other is not None:
            files = {file.name: file for file in other.files}
            for file in folder.files:
                if file.wanted or file.name not in files:
                    files[file.name] = file
            folder = Folder(folder.uri, list(files.values()), folder.topic_id)
        by_uri[folder.uri] = folder
    return iter(by_uri.values())


# Local folders


def _local_folders(
    roots: Iterable[str], files: Iterable[str], follow_symlinks: bool, listing: Listing
) -> Iterator[Folder]:
    """Every folder with ``.log`` files at or below the roots, and the folders of files that sources name."""
    seen: set[str] = set()
    links: list[str] = []
    for root in roots:
        yield from _walk(root, seen, links, listing)
    while follow_symlinks and links:
        links.sort(key=lambda path: (len(path), path), reverse=True)
        link = links.pop()
        try:
            real = os.path.realpath(link, strict=True)
        except OSError:
            continue  # a broken link, or one that leads to itself
        if os.path.isdir(real):
            if real not in seen:
                yield from _walk(link, seen, links, listing)
        elif link.endswith(SEGMENT_SUFFIX) and os.path.dirname(real) not in seen and real not in seen:
            seen.add(real)
            yield from _named_file(link, listing)
    for path in files:
        yield from _named_file(path, listing)


def _walk(root: str, seen: set[str], links: list[str], listing: Listing) -> Iterator[Folder]:
    """Folders with ``.log`` files at or below ``root`` that are not in ``seen``. Adds links to ``links``."""
    todo = [root]
    while todo:
        path = todo.pop()
        real = os.path.realpath(path)
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
        logs = []
        for entry in entries:
            if entry.is_symlink():
                links.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                todo.append(entry.path)
            elif entry.name.endswith(SEGMENT_SUFFIX) and entry.is_file(follow_symlinks=False):
                logs += _stat(entry.path, entry.name, True, listing)
        left = [entry.name for entry in entries if entry.name.endswith(_LEFT_BEHIND)]
        if left and not isinstance(parse_folder(canonical(path)), str):
            listing.skipped.update(filter(None, map(left_behind, left)))
        if logs:
            yield Folder(canonical(path), logs, _topic_id(path, entries))


def _stat(path: str, name: str, wanted: bool, listing: Listing) -> list[File]:
    """The file in a list; [] if it is gone, or if it cannot be read, which ``listing`` then says."""
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
    return [File(name, status.st_size, status.st_mtime_ns // 1000, wanted)]


def _topic_id(folder: str, entries: Iterable[os.DirEntry[str]]) -> str | None:
    if not any(entry.name == _METADATA for entry in entries):
        return None
    try:
        with open(os.path.join(folder, _METADATA), encoding="utf-8", errors="replace") as file:
            return parse_topic_id(file.read(4096))
    except OSError:
        return None


def _named_file(path: str, listing: Listing) -> Iterator[Folder]:
    """The folder of one file. Its other files are not wanted: they show whether the file has a successor."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
    except OSError:  # this user may not list the folder, but perhaps read the file
        listing.partial.add(canonical(folder))
        entries = []
    logs = _stat(path, name, True, listing)
    for entry in entries:
        if (
            entry.name != name
            and entry.name.endswith(SEGMENT_SUFFIX)
            and entry.is_file(follow_symlinks=False)
        ):
            logs += _stat(entry.path, entry.name, False, listing)
    yield Folder(canonical(folder), logs, _topic_id(folder, entries))


# Other file systems


def _default_scheme(on_demand: SparkOnDemand | None) -> str:
    """The URI scheme of a path without one."""
    if on_demand is None:
        return "file"
    from pipelines.source.hadoop import job_scheme

    return job_scheme(on_demand)


def _remote_folders(on_demand: SparkOnDemand | None, uris: Iterable[str]) -> Iterator[Folder]:
    for uri in uris:
        if is_object_store(uri):
            from pipelines.source import stores  # pyarrow's file systems take 0.1 s to import

            files, named = stores.list_files(uri)
        elif on_demand is None:
            raise UserError(f"{uri} can't be listed without Spark: name a local folder or an object store")
        else:
            from pipelines.source import hadoop  # imports Spark

            files, named = hadoop.list_files(on_demand.spark, uri)
        by_folder: dict[str, list[File]] = {}
        for batch in files.to_batches(_ROWS):
            for row in batch.to_pylist():
                folder, _, name = row["path"].rpartition("/")
                wanted = not named or row["path"] in named
                by_folder.setdefault(folder, []).append(File(name, row["length"], row["modified"], wanted))
        for folder, logs in by_folder.items():
            yield Folder(folder, logs, None)

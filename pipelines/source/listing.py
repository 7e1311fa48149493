"""Lists the segments of the sources: names, lengths and times. Nothing here reads a segment's bytes.

This process lists local folders and object stores, Spark other file systems; the rules for names are the
same. A million files take some 150 MB, as Arrow columns.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from pipelines.command.errors import UserError
from pipelines.command.terminal import first_names
from pipelines.command.values import compiled
from pipelines.source.checkpoints import Checkpoints
from pipelines.source.local import local_folders
from pipelines.source.naming import (
    CLEANED_SUFFIX,
    NO_PARTITION,
    NULL_TO_SPARK,
    NULL_TOPIC,
    SEGMENT_SUFFIX,
    SWAP_SUFFIX,
    File,
    Folder,
    PartitionFolder,
    counts_folders,
    parse_file,
    parse_folder,
)
from pipelines.source.swaps import Completed, ReadEnd, complete_swaps, segments_alone
from pipelines.source.uris import resolve
from pipelines.source.witnesses import WitnessFiles
from udfs.compute import pc
from udfs.format.schema import SEGMENTS
from udfs.log_start import log_start_from
from udfs.rules.account import NO_WITNESSES, Witnesses
from udfs.source.byte_source import local_path
from udfs.source.store import is_object_store

if TYPE_CHECKING:
    import regex

    from pipelines.command.on_demand import SparkOnDemand
    from udfs.rules.log_start import LogStart

LISTING_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("partition_dir", pa.string()),
        ("segment", pa.string()),
        ("file", pa.string()),
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
_ROWS = 1 << 14
_ALONE, _WITH_SWAPS = (SEGMENT_SUFFIX,), (SEGMENT_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX)


@dataclass(frozen=True)
class ListedLog:
    """A log whose segments were all listed and are all wanted, and what witnesses say of it.

    last_segment: URI of the segment with the highest base offset. last_length: its bytes when it was listed.
    """

    witnesses: Witnesses
    last_segment: str
    last_length: int


@dataclass
class Listing:
    """The segments of the sources, and what was skipped.

    segments: LISTING_SCHEMA, by folder and base offset. It holds all segments of each partition folder;
    ``wanted`` is False for those that no source names. modified, landed_at: microseconds since 1970 UTC;
    landed_at is null unless the bytes come from ``raw_segments``. file: the swap file that holds a segment's
    bytes, or the list of its pieces, as a URI; null where the segment does.
    replaced: URIs of segments that swap files take the place of.
    skipped: reason -> number of folders, or of files (``naming.counts_folders``).
    unreadable: URI of a folder or file that could not be read -> why.
    partial: URIs of folders of which not every file could be listed.
    not_requested: topics with segments that the filters exclude.
    checkpoints, witnesses: what the broker noted of the logs, above their folders and in them; of local
    folders alone.
    """

    segments: pa.Table = field(default_factory=LISTING_SCHEMA.empty_table)
    skipped: Counter[str] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)
    not_requested: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    witnesses: WitnessFiles = field(default_factory=WitnessFiles)

    @property
    def has_wanted(self) -> bool:
        """Whether a source names any segment."""
        return bool(self.segments.column("wanted").to_numpy().any())

    @property
    def swap_files(self) -> int:
        """Wanted segments whose bytes are in swap files."""
        files = self.segments.filter(self.segments.column("wanted")).column("file")
        return pc.sum(pc.ends_with(files, SWAP_SUFFIX)).as_py() or 0

    def noted_logs(self) -> dict[str, ListedLog]:
        """The logs that can be compared with what the broker noted of them, by their folder."""
        if not (self.checkpoints.found or self.witnesses.found):
            return {}
        logs = self.segments.group_by("partition_dir", use_threads=False).aggregate(
            [(name, "last") for name in ("topic", "partition", "segment", "length", "topic_id")]
            + [("wanted", "all"), ("file_base_offset", "min")]
        )
        noted = {}
        for row in logs.filter(logs.column("wanted_all")).to_pylist():
            folder = row["partition_dir"]
            place = row["topic_last"], row["partition_last"]
            witnesses = self.witnesses.of(
                folder, *place, row["file_base_offset_min"], self.checkpoints, row["topic_id_last"]
            )
            if witnesses != NO_WITNESSES and folder not in self.partial:
                noted[folder] = ListedLog(witnesses, row["segment_last"], row["length_last"])
        return noted

    def log_starts(self) -> dict[str, LogStart]:
        """Returns by folder where the logs of local folders begin for consumers."""
        first = self.segments.group_by("partition_dir", use_threads=False).aggregate(
            [(name, "first") for name in ("topic", "partition", "segment")]
        )
        found = {}
        for row in first.to_pylist():
            folder = row["partition_dir"]
            path = local_path(row["segment_first"])
            if path is not None and folder not in self.partial:
                noted = self.checkpoints.noted_start(folder, row["topic_first"], row["partition_first"])
                found[folder] = log_start_from(path, noted)
        return found

    def note(self, folder: str, done: Completed) -> None:
        """Notes what swap files did to the segments of a folder, by its URI."""
        self.replaced |= {f"{folder}/{name}" for name in done.replaced}
        self.skipped.update(+done.skipped)
        self.unreadable |= done.unreadable


class TopicFilter:
    """``--topics`` and ``--exclude-topics``: regular expressions for the whole name. True: take the topic."""

    def __init__(self, topics: str | None = None, exclude_topics: str | None = None) -> None:
        self._wanted = topics and _compiled(topics, "--topics")
        self._excluded = exclude_topics and _compiled(exclude_topics, "--exclude-topics")

    def __call__(self, topic: str) -> bool:
        if self._wanted and not self._wanted.fullmatch(topic):
            return False
        return not (self._excluded and self._excluded.fullmatch(topic))


def _compiled(expression: str, option: str) -> regex.Pattern[str] | re.Pattern[str]:
    try:
        return compiled(expression)
    except ValueError as error:
        raise UserError(f"{option} {error}") from None


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
    read_end: ReadEnd | None = None,
    may_be_empty: bool = False,
) -> Listing:
    """The segments of all sources, each once. Raises a UserError if a source can't be opened or holds none.

    on_demand: its Spark lists file systems that only it opens; None where none are among the sources.
    topic, partition: of the segments, whatever their folder is called; then all have to be in one folder.
    null_topic: whether a topic with the name that Spark's writer reads as null may be decoded.
    read_end: finds where a swap file ends; then these replace the segments whose place they take. None:
    they are skipped. may_be_empty: sources without a segment give a listing without one.
    """
    sources = [sources] if isinstance(sources, str) else list(sources)
    topic_filter = TopicFilter(topics, exclude_topics)
    scheme = "file"
    if on_demand is not None:
        from pipelines.source.hadoop import job_scheme  # imports Spark

        scheme = job_scheme(on_demand)
    resolved = resolve(sources, scheme)
    listing = Listing()
    rows = Rows()
    suffixes = _ALONE if read_end is None else _WITH_SWAPS
    folders: Iterable[Folder] = local_folders(
        resolved.folders, resolved.files, follow_symlinks, suffixes, listing
    )
    if resolved.files or resolved.remote or follow_symlinks or topic is not None:
        folders = _merged([*folders, *_remote_folders(on_demand, resolved.remote, suffixes)])
        if topic is not None:
            _check_one_folder(folders)
    # else a walk meets each folder once: a million files need not be Python objects all at once
    for folder in folders:
        place = parse_folder(folder.uri if topic is None else f"{folder.uri}/{topic}-{partition}")
        _add_folder(folder, place, topic_filter, null_topic, read_end, listing, rows)
    listing.segments = rows.sorted_table()
    is_empty = not (listing.segments.num_rows or listing.skipped or listing.not_requested)
    if is_empty and not may_be_empty:
        raise no_segments_error(sources)
    return listing


def no_segments_error(sources: Collection[str], listing: Listing | None = None) -> UserError:
    """The error if the sources hold no segment. listing: what was skipped and left out of them."""
    text = f"no segments (<topic>-<partition>/<20 digits>.log) in {', '.join(sources)}"
    listing = listing or Listing()
    skipped = [f"{n} x {reason}" for reason, n in sorted(listing.skipped.items())]
    if listing.not_requested:
        topics = first_names(sorted(listing.not_requested))
        skipped.append(f"topics that do not match --topics, or match --exclude-topics: {topics}")
    if skipped:
        text += f"; skipped: {', '.join(skipped)}"
    if NO_PARTITION in listing.skipped:
        text += "; for a folder with another name pass --topic NAME --partition NUMBER"
    if any(os.path.isdir(os.path.join(source, SEGMENTS.name, "_delta_log")) for source in sources):
        text += "; it is a lake, which find --lake and query --lake read"
    return UserError(text)


def _check_one_folder(folders: Iterable[Folder]) -> None:
    """Raises a UserError if the segments that sources name are in several folders."""
    found = sorted(f.uri for f in folders if any(one.wanted for one in f.files))
    if len(found) > 1:
        raise UserError(
            f"--topic and --partition are for the segments of one folder, and here are {len(found)}: "
            f"{first_names(found, 3)}"
        )


_ORDER = ("partition_dir", "file_base_offset")
_by_folder_and_base_offset = itemgetter(*(LISTING_SCHEMA.get_field_index(name) for name in _ORDER))


class Rows:
    """Rows of LISTING_SCHEMA, converted to Arrow in batches: Python objects take ten times the memory."""

    def __init__(self) -> None:
        self._pending: list[tuple[object, ...]] = []
        self._batches: list[pa.RecordBatch] = []

    def add(
        self,
        place: PartitionFolder,
        uri: str,
        topic_id: str | None,
        segments: Sequence[tuple[int, File]],
        holders: Mapping[str, str],
    ) -> None:
        """Adds the segments of a partition folder, each with its base offset.

        uri: of the folder. holders: name of a segment -> URI of the file that holds its bytes (``file``).
        """
        log_start = min((offset for offset, _ in segments), default=0)
        last = max((offset for offset, file in segments if file.length), default=-1)
        for offset, file in segments:
            own = f"{uri}/{file.name}", holders.get(file.name), offset, file.length, file.modified
            self._pending.append((*place, uri, *own, last > offset, log_start, topic_id, None, file.wanted))
            if len(self._pending) == _ROWS:
                self._flush()

    def _flush(self) -> None:
        columns = zip(*self._pending, strict=True) if self._pending else [[]] * len(LISTING_SCHEMA)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, LISTING_SCHEMA, strict=True)]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=LISTING_SCHEMA))
        self._pending = []

    def sorted_table(self) -> pa.Table:
        """All rows by folder and base offset; a column is sorted at a time, as two tables take memory."""
        if not self._batches:  # a few rows do not need Arrow's functions, which take time to load
            self._pending.sort(key=_by_folder_and_base_offset)
            self._flush()
            return pa.Table.from_batches(self._batches, LISTING_SCHEMA)
        self._flush()
        table = pa.Table.from_batches(self._batches, LISTING_SCHEMA)
        order = pc.sort_indices(table, [(name, "ascending") for name in _ORDER])
        columns = table.columns
        del table, self._batches
        for at in range(len(columns)):
            columns[at] = columns[at].take(order)
        return pa.Table.from_arrays(columns, schema=LISTING_SCHEMA)


def _add_folder(
    folder: Folder,
    place: PartitionFolder | str,
    topic_filter: TopicFilter,
    null_topic: bool,
    read_end: ReadEnd | None,
    listing: Listing,
    rows: Rows,
) -> None:
    """Adds the segments of a folder to ``rows``, or counts in ``listing`` why they are skipped."""
    done = Completed(segments_alone(folder.files))
    if not isinstance(place, str) and place.topic == NULL_TOPIC and not null_topic:
        place = NULL_TO_SPARK
    if isinstance(place, str):
        listing.skipped[place] += 1 if counts_folders(place) else sum(file.wanted for file in done.files)
        return
    is_requested = topic_filter(place.topic)
    if read_end is not None and is_requested:
        done = complete_swaps(folder, read_end)
        listing.note(folder.uri, done)
    segments: list[tuple[int, File]] = []
    for file in done.files:
        offset = parse_file(file.name)
        if isinstance(offset, int):
            segments.append((offset, file))
        elif file.wanted:
            listing.skipped[offset] += 1
    if not is_requested:
        if any(file.wanted for _, file in segments):
            listing.not_requested.add(place.topic)
        return
    rows.add(place, folder.uri, folder.topic_id, segments, done.swaps)


def _merged(folders: Iterable[Folder]) -> Collection[Folder]:
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
    return by_uri.values()


# Other file systems


def _remote_folders(
    on_demand: SparkOnDemand | None, uris: Iterable[str], suffixes: tuple[str, ...]
) -> Iterator[Folder]:
    """Every folder with files that end so, on file systems other than the local one."""
    for uri in uris:
        if is_object_store(uri):
            from pipelines.source import stores  # pyarrow's file systems take 0.1 s to import

            files, named = stores.list_files(uri, suffixes)
        elif on_demand is None:
            raise UserError(f"{uri} can't be listed without Spark: name a local folder or an object store")
        else:
            from pipelines.source import hadoop  # imports Spark

            files, named = hadoop.list_files(on_demand.spark, uri, suffixes)
        by_folder: dict[str, list[File]] = {}
        for batch in files.to_batches(_ROWS):
            for row in batch.to_pylist():
                folder, _, name = row["path"].rpartition("/")
                wanted = not name.endswith(CLEANED_SUFFIX) and (not named or row["path"] in named)
                by_folder.setdefault(folder, []).append(File(name, row["length"], row["modified"], wanted))
        for folder, logs in by_folder.items():
            yield Folder(folder, logs, None)

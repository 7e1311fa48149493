"""Lists the segments of the sources: names, lengths and times. Nothing here reads a segment."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import first_names
from kafka_log_lake.pipelines.listing.leftovers import deleted_files, passed_files, passed_folder
from kafka_log_lake.pipelines.listing.local import local_folders
from kafka_log_lake.pipelines.listing.metadata_log import snapshots
from kafka_log_lake.pipelines.listing.naming import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    NO_PARTITION,
    NULL_TO_SPARK,
    NULL_TOPIC,
    SWAP_SUFFIX,
    TO_DELETE,
    File,
    Folder,
    PartitionFolder,
    counts_folders,
    parse_file,
    parse_folder,
    parse_left_folder,
)
from kafka_log_lake.pipelines.listing.other_files import renamed_segments, why_skipped
from kafka_log_lake.pipelines.listing.remote import remote_folders
from kafka_log_lake.pipelines.listing.swaps import Completed, ReadEnd, complete_swaps, segments_alone
from kafka_log_lake.pipelines.listing.uris import resolve
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.format.patterns import compiled
from kafka_log_lake.udfs.format.schema import SEGMENTS
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC

if TYPE_CHECKING:
    import regex

    from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.listing.listing import (
    _ORDER,
    LISTING_SCHEMA,
    Listing,
    _by_folder_and_base_offset,
)

_ROWS = 1 << 14


_ALONE = (SEGMENT_SUFFIX, DELETED_SUFFIX)


_WITH_SWAPS = (*_ALONE, SWAP_SUFFIX, CLEANED_SUFFIX)


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
    include_deleted: bool | None = None,
    may_be_empty: bool = False,
) -> Listing:
    """Returns the segments of all sources, each once.

    Raises a UserError if a source can't be opened, or if no source holds a segment (see may_be_empty).

    on_demand: its Spark lists file systems that only it opens; None where none are among the sources.
    topic, partition: of the segments, whatever their folder is called; then all have to be in one folder.
    null_topic: whether a topic with the name that Spark's writer reads as null may be decoded.
    read_end: finds where a swap file ends; then these replace the segments whose place they take. None:
    they are skipped. include_deleted: whether ``.log.deleted`` files and folders ending ``-delete``,
    ``-stray`` and ``-future`` are listed too, each as a log of its own; False: those alone that a source
    names; None: not even these. may_be_empty: sources without a segment give a listing without one.
    """
    sources = [sources] if isinstance(sources, str) else list(sources)
    topic_filter = TopicFilter(topics, exclude_topics)
    scheme = "file"
    if on_demand is not None:
        from kafka_log_lake.pipelines.listing.hadoop import job_scheme  # imports Spark

        scheme = job_scheme(on_demand)
    resolved = resolve(sources, scheme)
    listing = Listing()
    rows = ListingRows()
    suffixes: tuple[str, ...] = _ALONE if read_end is None else _WITH_SWAPS
    folders: Iterable[Folder] = local_folders(
        resolved.folders, resolved.files, follow_symlinks, suffixes, listing
    )
    if resolved.files or resolved.remote or follow_symlinks or topic is not None:
        if include_deleted is None:
            suffixes = tuple(suffix for suffix in suffixes if suffix != DELETED_SUFFIX)
        folders = _merged([*folders, *remote_folders(on_demand, resolved.remote, suffixes)])
        if topic is not None:
            _check_one_folder(folders)
    # else a walk meets each folder once: a million files need not be Python objects all at once
    for folder in folders:
        place = parse_folder(folder.uri if topic is None else f"{folder.uri}/{topic}-{partition}")
        _add_folder(folder, place, topic_filter, null_topic, read_end, include_deleted, listing, rows)
    listing.segments = rows.sorted_table()
    is_empty = not (listing.segments.num_rows or listing.skipped or listing.not_requested)
    if is_empty and not may_be_empty:
        raise no_segments_error(sources)
    return listing


def no_segments_error(sources: Collection[str], listing: Listing | None = None) -> UserError:
    """Returns the error for sources that hold no segment. listing: what was skipped and left out of them."""
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
    if listing.passed_over:
        text += "; --include-deleted reads what a broker left behind"
    if any(map(_snapshots_alone, sources)):
        text += (
            f"; {METADATA_TOPIC}-0 holds snapshots alone, of a controller that never started or has no log: "
            "recover --metadata reads them"
        )
    if any(os.path.isdir(os.path.join(source, SEGMENTS.name, "_delta_log")) for source in sources):
        text += "; it is a lake, which find --lake and query --lake read"
    return UserError(text)


def _snapshots_alone(source: str) -> bool:
    return bool(snapshots(source) or snapshots(os.path.join(source, f"{METADATA_TOPIC}-0")))


def _check_one_folder(folders: Iterable[Folder]) -> None:
    """Raises a UserError if the segments that sources name are in several folders."""
    uris = sorted(f.uri for f in folders if any(file.wanted for file in f.files))
    if len(uris) > 1:
        raise UserError(
            f"--topic and --partition are for the segments of one folder, and here are {len(uris)}: "
            f"{first_names(uris, 3)}"
        )


class ListingRows:
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
        partition_dir: str | None = None,
    ) -> None:
        """Adds the segments of a log, each with its base offset.

        uri: of their folder. holders: name of a segment -> URI of the file that holds its bytes (``file``).
        partition_dir: of the log; None: the folder.
        """
        log_dir = partition_dir or uri
        log_start = min((offset for offset, _ in segments), default=0)
        last = max((offset for offset, file in segments if file.length), default=-1)
        for offset, file in segments:
            of_file = f"{uri}/{file.name}", holders.get(file.name), offset, file.length, file.modified
            more = last > offset, log_start, topic_id, None, file.wanted
            self._pending.append((*place, log_dir, *of_file, *more))
            if len(self._pending) == _ROWS:
                self._flush()

    def _flush(self) -> None:
        columns = zip(*self._pending, strict=True) if self._pending else [[]] * len(LISTING_SCHEMA)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, LISTING_SCHEMA, strict=True)]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=LISTING_SCHEMA))
        self._pending = []

    def sorted_table(self) -> pa.Table:
        """Returns all rows by folder and base offset; sorts a column at a time, as two tables take memory."""
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
    include_deleted: bool | None,
    listing: Listing,
    rows: ListingRows,
) -> None:
    """Adds the segments of a folder to ``rows``, or counts in ``listing`` why they are skipped."""
    done = Completed(segments_alone(folder.files))
    if isinstance(place, str) and (left := parse_left_folder(folder.uri)):
        if include_deleted or (include_deleted is False and folder.is_named):
            place = left[0]
        elif topic_filter(left[0].topic):
            listing.passed_over += passed_folder(folder, left[0], place)
    if not isinstance(place, str) and place.topic == NULL_TOPIC and not null_topic:
        place = NULL_TO_SPARK
    if isinstance(place, str):
        reasons = Counter(why_skipped(folder.uri, file.name, place) for file in done.files if file.wanted)
        if counts_folders(place) and reasons[place]:
            reasons[place] = 1
        listing.skipped.update(reasons or Counter({place: int(counts_folders(place))}))
        return
    is_requested = topic_filter(place.topic)
    if read_end is not None and is_requested:
        done = complete_swaps(folder, read_end)
        listing.note(folder.uri, done)
    segments: list[tuple[int, File]] = []
    unnamed: list[tuple[str, File]] = []
    for file in done.files:
        offset = parse_file(file.name)
        if isinstance(offset, int):
            segments.append((offset, file))
        elif file.wanted:
            unnamed.append((offset, file))
    renamed = renamed_segments(folder, segments) if unnamed and is_requested else []
    segments = sorted([*segments, *renamed], key=itemgetter(0)) if renamed else segments
    skipped = [(why, left.name) for why, left in unnamed if not any(left is file for _, file in renamed)]
    listing.skipped.update(why_skipped(folder.uri, name, why) for why, name in skipped)
    if not is_requested:
        if any(file.wanted for _, file in segments):
            listing.not_requested.add(place.topic)
        return
    rows.add(place, folder.uri, folder.topic_id, segments, done.swaps)
    deleted, others = deleted_files(folder, include_deleted)
    for offset, file in deleted:
        file_uri = f"{folder.uri}/{file.name}"
        rows.add(place, folder.uri, folder.topic_id, [(offset, file)], {}, partition_dir=file_uri)
    listing.skipped.update(+Counter({TO_DELETE: len(others)}))
    listing.passed_over += passed_files(folder, place, others)


def _merged(folders: Iterable[Folder]) -> Collection[Folder]:
    """Returns each folder once, even if several sources have it. A file is wanted if any source wants it."""
    by_uri: dict[str, Folder] = {}
    for folder in folders:
        other = by_uri.get(folder.uri)
        if other is not None:
            files = {file.name: file for file in other.files}
            for file in folder.files:
                if file.wanted or file.name not in files:
                    files[file.name] = file
            is_named, is_whole = folder.is_named or other.is_named, folder.is_whole or other.is_whole
            folder = folder._replace(files=list(files.values()), is_named=is_named, is_whole=is_whole)
        by_uri[folder.uri] = folder
    return by_uri.values()

"""Makes one log of a broker's disk and its tier: which segment, local or remote, has which offsets.

Local and remote segments are joined by leader epoch and offset, as KIP-405 resolves them. A remote segment
gets the name that its file has on the disk, ``<topic>-<partition>/<20 digits>.log``, and ``file`` says where
its bytes are: so nothing changes for a lake when a broker moves a segment to the tier. What the disk has,
sound, is read there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kafka_log_lake.pipelines.listing.list_segments import ListingRows
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.naming import File, PartitionFolder, left_state
from kafka_log_lake.pipelines.listing.uris import canonical
from kafka_log_lake.pipelines.tier.candidates import (
    DISK,
    MISSING,
    NO_END,
    UNREADABLE,
    Candidate,
    Epochs,
    Interval,
    Part,
    history_of,
    holes_of,
    parts_of,
    true_intervals,
)
from kafka_log_lake.pipelines.tier.index import OfLog, RemoteIndex
from kafka_log_lake.udfs.batches.clocks import UNKNOWN
from kafka_log_lake.udfs.batches.log_start import BY_SEGMENTS, FirstEpoch, LogStart, log_start
from kafka_log_lake.udfs.format.file_names import file_name
from kafka_log_lake.udfs.storage.byte_source import with_range

_THREADS = 16  # that look at first batches: a store takes some 20 ms a request


@dataclass
class JoinedLog:
    """One log of disk and tier.

    rows: of its local segments in the listing. parts: where each of its offsets is read, by offset.
    candidates: all segments of it, also those that nothing is read of.
    """

    place: PartitionFolder
    partition_dir: str
    topic_id: str | None
    rows: list[dict[str, Any]]
    start: LogStart
    parts: list[Part]
    candidates: list[Candidate]


def with_tier(
    listing: Listing, index: RemoteIndex, takes: Callable[[str], bool], adds_logs: bool
) -> tuple[Listing, list[JoinedLog]]:
    """Returns the listing with the segments of the tier among those of the disk, and the logs that it
    changed.

    takes: whether a topic is requested. adds_logs: whether logs that the tier alone has are listed too.
    """
    starts = listing.log_starts()
    folders: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in listing.segments.to_pylist():
        folders[row["partition_dir"]].append(row)
    rows, logs, here = ListingRows(), list[JoinedLog](), set[PartitionFolder]()
    for folder, segments in folders.items():
        place = PartitionFolder(segments[0]["topic"], segments[0]["partition"])
        here.add(place)
        topic_id = next((row["topic_id"] for row in segments if row["topic_id"]), None)
        is_whole = left_state(folder) is None and all(row["wanted"] for row in segments)
        remote = index.of(place, topic_id) if is_whole and folder not in listing.partial else OfLog()
        if remote.named or remote.others:
            epochs = listing.witnesses.in_folder(folder).epochs or ()
            logs.append(
                JoinedLog(
                    place, folder, topic_id, segments, *_joined(segments, remote, epochs, starts.get(folder))
                )
            )
        else:
            _add(
                rows,
                place,
                folder,
                topic_id,
                [(row["file_base_offset"], _file_of(row), row["file"]) for row in segments],
            )
    for place in sorted(index.logs.keys() - here) if adds_logs else ():
        if takes(place.topic):
            logs += _remote_alone(listing, index, place)
    for log in logs:
        _add(rows, log.place, log.partition_dir, log.topic_id, [named for _, named in _segments(log)])
        starts[log.partition_dir] = log.start
    return replace(listing, segments=rows.sorted_table(), starts=starts), logs


def _remote_alone(listing: Listing, index: RemoteIndex, place: PartitionFolder) -> Iterator[JoinedLog]:
    """Yields the log of a partition that has no folder with segments on the disks."""
    remote = index.of(place, None)
    log_dirs = sorted(listing.witnesses.log_dirs)
    root = canonical(log_dirs[0]) if log_dirs else index.tier.roots[0].rstrip("/")
    folder = f"{root}/{place.topic}-{place.partition}"
    topic_id = next((name for name, of in index.logs[place].items() if of is remote), None)
    noted = listing.checkpoints.noted_start(folder, *place)
    epochs = listing.witnesses.in_folder(folder).epochs or ()
    start = None
    if noted is not None and noted.offset is not None:
        start = log_start(noted.offset, noted, FirstEpoch(*epochs[0]) if epochs else None)
    joined = JoinedLog(place, folder, topic_id, [], *_joined([], remote, epochs, start))
    if joined.parts:
        yield joined


def _joined(
    rows: Sequence[dict[str, Any]], remote: OfLog, epochs: Epochs, start: LogStart | None
) -> tuple[LogStart, list[Part], list[Candidate]]:
    """Returns where a log begins, where each of its offsets is read, and all segments of it.

    rows: of its local segments, by base offset. epochs: of its ``leader-epoch-checkpoint``.
    """
    with ThreadPoolExecutor(_THREADS) as threads:
        list(
            threads.map(
                Candidate.check_first, (candidate for candidate in remote.named if candidate.problem is None)
            )
        )
    history = epochs or history_of(remote.named or remote.others)
    first_known = None if start is None or start.witness == BY_SEGMENTS else start.offset
    named = [candidate for candidate in remote.named if _set_intervals(candidate, history, first_known)]
    reached = max((candidate.intervals[-1].last for candidate in named), default=-1)
    disk = _of_disk(rows, reached)
    parts, others = parts_of([*disk, *named]), list[Candidate]()
    begin = first_known if first_known is not None else min((part.first for part in parts), default=0)
    if remote.others and (not remote.named or not parts or holes_of(parts, begin) or _is_unread(parts)):
        others = [candidate for candidate in remote.others if _set_intervals(candidate, history, first_known)]
        if not remote.named:
            disk = _of_disk(rows, max((candidate.intervals[-1].last for candidate in others), default=-1))
        parts = parts_of([*disk, *named, *others])
    if first_known is None or start is None:
        start = LogStart(min((part.first for part in parts), default=0), BY_SEGMENTS, UNKNOWN)
    return start, parts, [*disk, *remote.named, *others]


def _is_unread(parts: Sequence[Part]) -> bool:
    return any(part.of.rank == UNREADABLE for part in parts)


def _set_intervals(candidate: Candidate, history: Epochs, start: int | None) -> bool:
    """Sets the true offsets of a remote segment, from the log start on. False where it has none."""
    intervals = true_intervals(candidate, history)
    if candidate.is_cut or candidate.last == NO_END:
        intervals = [each for run in candidate.runs() for each in _common(intervals, run)]
    candidate.intervals = [each for each in intervals if start is None or each.last >= start]
    return bool(candidate.intervals)


def _common(intervals: Sequence[Interval], run: Interval) -> Iterator[Interval]:
    for interval in intervals:
        first, last = max(interval.first, run.first), min(interval.last, run.last)
        if first <= last:
            yield Interval(first, last)


def _of_disk(rows: Sequence[dict[str, Any]], reached: int) -> list[Candidate]:
    """Returns the local segments. reached: the last offset of the tier; up to it they are checked to be
    sound.
    """
    candidates = []
    for at, row in enumerate(rows):
        base = row["file_base_offset"]
        limit = rows[at + 1]["file_base_offset"] - 1 if at + 1 < len(rows) else NO_END
        uri = row["file"] or row["segment"]
        candidate = Candidate(DISK, uri, base, row["length"], row["modified"], base, limit, name=uri)
        candidate.intervals = [Interval(base, limit)]
        if base <= reached:
            runs = candidate.runs()
            if runs and limit == NO_END:
                runs[-1] = Interval(runs[-1].first, NO_END)
            candidate.intervals = runs
        candidates.append(candidate)
    return candidates


Named = tuple[int, File, str | None]  # base offset, file, URI of what holds its bytes


def listed_names(log: JoinedLog) -> dict[int, str]:
    """Returns ``id`` of each segment that a log is read of -> the name of the first file that it is listed
    as.
    """
    names: dict[int, str] = {}
    for candidate, (_, file, _) in _segments(log):
        if candidate is not None:
            names.setdefault(id(candidate), file.name)
    return names


def _segments(log: JoinedLog) -> Iterator[tuple[Candidate | None, Named]]:
    """Yields the segments of a joined log: whole files, and ranges of them where others have the rest.

    None before a local file that nothing is read of by its offsets.
    """
    rows = {row["file_base_offset"]: row for row in log.rows}
    seen = set[int]()
    for part in _with_gaps(log.parts):
        candidate = part.of
        if candidate.problem == MISSING:
            continue  # a gap of the log, whose offsets are lost
        begin, end = (0, candidate.length) if candidate.rank == UNREADABLE else _bytes_of(part)
        is_whole = begin == 0 and end == candidate.length
        if candidate.rank == DISK and is_whole:
            row = rows[candidate.base]
            seen.add(candidate.base)
            yield candidate, (candidate.base, _file_of(row), row["file"])
        elif begin < end or is_whole:
            base = candidate.base if begin == 0 and part.first <= candidate.first else part.first
            uri = candidate.uri if is_whole else _cut_uri(candidate.uri, begin, end)
            file = File(
                file_name(base), max(end - begin, int(candidate.rank == UNREADABLE)), candidate.modified, True
            )
            seen.add(candidate.base) if candidate.rank == DISK else None
            yield candidate, (base, file, uri)
    for base, row in rows.items():  # a local file without a sound batch, which nothing replaces
        if base not in seen and not any(part.first <= base <= part.last for part in log.parts):
            yield None, (base, _file_of(row), row["file"])


def _with_gaps(parts: Sequence[Part]) -> Iterator[Part]:
    """Yields the parts; those that follow each other in one segment, with nothing else between, as one."""
    before: Part | None = None
    for part in parts:
        if before is not None and before.of is part.of:
            before = before._replace(last=part.last)
            continue
        if before is not None:
            yield before
        before = part
    if before is not None:
        yield before


def _bytes_of(part: Part) -> tuple[int, int]:
    """Returns where the batches of a part begin and end in its segment."""
    candidate = part.of
    is_first, is_last = part.first <= candidate.intervals[0].first, part.last >= candidate.intervals[-1].last
    is_first &= candidate.rank == DISK or candidate.intervals[0].first <= candidate.first
    is_last &= (
        candidate.rank == DISK or candidate.last == NO_END or candidate.intervals[-1].last >= candidate.last
    )
    if is_first and is_last:
        return 0, candidate.length
    batches = candidate.batches
    inside = np.flatnonzero((batches["base"] >= part.first) & (batches["last"] <= part.last))
    if not len(inside):
        return 0, 0
    begin = 0 if is_first else int(batches["position"][inside[0]])
    return begin, candidate.length if is_last else int(batches["end"][inside[-1]])


def _cut_uri(uri: str, begin: int, end: int) -> str:
    """Returns the URI of a range; a range of a range begins where that one does."""
    whole, mark, _ = uri.partition("#") if "#0-" in uri else (uri, "", "")
    return with_range(whole if mark else uri, begin, end)


def _file_of(row: dict[str, Any]) -> File:
    return File(row["segment"].rpartition("/")[2], row["length"], row["modified"], row["wanted"])


def _add(
    rows: ListingRows, place: PartitionFolder, folder: str, topic_id: str | None, segments: Collection[Named]
) -> None:
    ordered = sorted(segments, key=lambda segment: segment[0])
    holders = {file.name: uri for _, file, uri in ordered if uri is not None}
    home = folder if left_state(folder) != "deleted" else folder.rpartition("/")[0]
    rows.add(place, home, topic_id, [(base, file) for base, file, _ in ordered], holders, folder)

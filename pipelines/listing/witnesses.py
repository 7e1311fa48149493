"""Reads what files next to segments say of their logs, for ``udfs.batches.account``: of local folders alone.

They are read before the lengths of the segments are, as the checkpoint files are: what a broker notes is
never ahead of its log, so a log that grows reaches all that they name.
"""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kafka_log_lake.pipelines.listing.checkpoints import Checkpoint, Checkpoints
from kafka_log_lake.pipelines.listing.naming import (
    LEFT_BEHIND,
    PartitionFolder,
    parse_folder,
    parse_left_folder,
    parse_topic_id,
)
from kafka_log_lake.pipelines.listing.remote_metadata import RemoteMetadata, remote_metadata
from kafka_log_lake.pipelines.listing.uris import canonical
from kafka_log_lake.udfs.batches.account import NO_WITNESSES, Leftover, Witnesses
from kafka_log_lake.udfs.batches.noted_start import first_batch_epoch
from kafka_log_lake.udfs.format.checkpoint_text import LEADER_EPOCH_FILE, epoch_entries
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX, file_name, segment_base, split_name
from kafka_log_lake.udfs.format.layout import MAX_OFFSET
from kafka_log_lake.udfs.indexes.files import OFFSET_INDEX, PRODUCER_SNAPSHOT, TIME_INDEX
from kafka_log_lake.udfs.storage.byte_source import path_of_uri
from kafka_log_lake.udfs.storage.regular_file import MOST_SMALL_BYTES, opened_regular, read_regular

_METADATA = "partition.metadata"
_ENTRY = struct.Struct(">iI")  # of an .index: offset, less the base offset; position in the segment


@dataclass(frozen=True)
class ListedLog:
    """A log whose segments were all listed and are all wanted, and what witnesses say of it.

    last_segment: URI of the segment with the highest base offset. last_length: its bytes when it was listed.
    """

    witnesses: Witnesses
    last_segment: str
    last_length: int


@dataclass
class WitnessFiles:
    """What files next to segments say, of the partition folders that a listing came across.

    log_dirs: the folders above them. walked: local folders of which all files and folders were listed.
    follows: whether a file may be a link.
    """

    walked: set[str] = field(default_factory=set)
    log_dirs: set[str] = field(default_factory=set)
    follows: bool = False
    _by_folder: dict[str, Witnesses] = field(default_factory=dict)
    _left: dict[tuple[str, int], list[Leftover]] = field(default_factory=lambda: defaultdict(list))
    _remote: dict[str, RemoteMetadata | None] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        """Says whether any file says something of a log."""
        return bool(self._by_folder or self._left)

    @property
    def folders(self) -> Collection[str]:
        """Returns the URIs of the folders in which a file says something."""
        return self._by_folder.keys()

    def in_folder(self, partition_dir: str) -> Witnesses:
        """Returns what the files in a folder say, by its URI; NO_WITNESSES if they say nothing."""
        return self._by_folder.get(partition_dir, NO_WITNESSES)

    def read(self, folder: str, entries: Sequence[os.DirEntry[str]]) -> None:
        """Reads the files of a local folder, before its segments' lengths. entries: all that is in it."""
        self.walked.add(folder)
        names = [entry.name for entry in entries]
        if left := parse_left_folder(folder):
            self._add_left(left[0], left[1], folder, entries)
        if LEADER_EPOCH_FILE not in names and not any(name[:1].isdigit() for name in names):
            return
        self.log_dirs.add(os.path.dirname(folder))
        witnesses = _witnesses(folder, names, self.follows)
        if witnesses != NO_WITNESSES:
            self._by_folder[canonical(folder)] = witnesses

    def _add_left(
        self, place: tuple[str, int], kind: str, folder: str, entries: Iterable[os.DirEntry[str]]
    ) -> None:
        logs = [(base, entry) for entry in entries if (base := segment_base(entry.name)) is not None]
        if not logs:
            return
        try:
            length = sum(entry.stat(follow_symlinks=False).st_size for _, entry in logs)
        except OSError:
            length = 0
        try:
            topic_id = parse_topic_id(
                read_regular(os.path.join(folder, _METADATA), MOST_SMALL_BYTES, self.follows).decode(
                    errors="replace"
                )
            )
        except OSError:
            topic_id = None
        self._left[place].append(Leftover(folder, kind, min(base for base, _ in logs), length, topic_id))

    def of(
        self,
        partition_dir: str,
        topic: str,
        partition: int,
        start: int,
        checkpoints: Checkpoints,
        topic_id: str | None = None,
    ) -> Witnesses:
        """Returns what is known of the log in a folder, by its URI.

        start: base offset of its first segment. The metadata of remote storage are read where the log begins
        below it. checkpoints: those of the listing.
        """
        noted = checkpoints.of(partition_dir, topic, partition) or Checkpoint()
        witnesses = with_checkpoint(self.in_folder(partition_dir), noted)
        left = [log for log in self._left.get((topic, partition), ()) if log.topic_id in (None, topic_id)]
        if left:
            witnesses = replace(witnesses, aside=(*witnesses.aside, *left))
        if (witnesses.first_epoch_start or 0) > start and (folder := path_of_uri(partition_dir)):
            witnesses = replace(
                witnesses, first_batch_epoch=first_batch_epoch(f"{folder}/{file_name(start)}")
            )
        noted_start = witnesses.start_of(start)
        if noted_start is not None and noted_start < start:
            witnesses = self._with_remote(witnesses, topic_id, partition)
        return witnesses

    def remote(self) -> list[RemoteMetadata]:
        """Returns the metadata of remote storage in all log directories; reads them once."""
        for log_dir in sorted(self.log_dirs - self._remote.keys()):
            self._remote[log_dir] = remote_metadata(log_dir)
        return [metadata for metadata in self._remote.values() if metadata is not None]

    def _with_remote(self, witnesses: Witnesses, topic_id: str | None, partition: int) -> Witnesses:
        known = self.remote()
        if not known:
            return witnesses
        ranges = {range_ for each in known for range_ in each.ranges.get((topic_id, partition), ())}
        return replace(
            witnesses,
            remote=tuple(sorted(ranges)),
            has_all_remote=all(metadata.is_whole for metadata in known)
            and any((topic_id, partition) in metadata.logs for metadata in known),
            # a log of which they name nothing may have moved nothing yet
            is_tiered=True if ranges else witnesses.is_tiered,
        )


def has_grown(segment: str, length: int) -> bool:
    """Says whether a local segment, by its URI, has more bytes now than when it was listed.

    length: its bytes then.
    """
    path = path_of_uri(segment)
    try:
        return path is not None and os.stat(path).st_size > length
    except OSError:
        return False


def logs_without_segments(
    files: WitnessFiles, checkpoints: Checkpoints, listed: Collection[str], roots: Iterable[str]
) -> Iterator[tuple[PartitionFolder, Witnesses]]:
    """Yields the logs at or below local folders that files name, and of which no segment is listed.

    listed: URIs of the folders with segments. roots: the local folders.
    """
    noted = {
        canonical(f"{log_dir}/{topic}-{partition}"): checkpoint
        for log_dir, (topic, partition), checkpoint in checkpoints.logs()
    }
    beginnings = tuple(canonical(root.rstrip("/")) + "/" for root in roots)
    for uri in sorted({*noted, *files.folders} - {*listed}):
        place = parse_folder(uri)
        if not isinstance(place, str) and f"{uri}/".startswith(beginnings):
            yield place, with_checkpoint(files.in_folder(uri), noted.get(uri, Checkpoint()))


def with_checkpoint(witnesses: Witnesses, noted: Checkpoint) -> Witnesses:
    """Returns the witnesses with what the checkpoint files above the folder say."""
    if noted == Checkpoint():
        return witnesses
    return replace(
        witnesses,
        log_start=noted.log_start_offset,
        recovery_point=noted.recovery_point,
        high_watermark=noted.high_watermark,
        cleaned_before=noted.cleaned_before,
    )


def _witnesses(folder: str, names: Sequence[str], follow: bool) -> Witnesses:
    """Reads what the names and the small files in a partition folder say."""
    logs, indexes, snapshots, aside = set[int](), set[int](), list[int](), list[Leftover]()
    for name in names:
        parts = split_name(name)
        if parts is None or parts.offset > MAX_OFFSET:
            continue
        base, suffix = parts
        if suffix == SEGMENT_SUFFIX:
            logs.add(base)
        elif suffix == PRODUCER_SNAPSHOT:
            snapshots.append(base)
        elif suffix in (OFFSET_INDEX, TIME_INDEX):
            indexes.add(base)
        elif suffix in LEFT_BEHIND:
            kind = suffix.rpartition(".")[2]
            aside.append(Leftover(os.path.join(folder, name), kind, base, _length(folder, name)))
    swaps = {left.base for left in aside if left.kind == "swap"}
    epochs, problems = (
        _epochs(os.path.join(folder, LEADER_EPOCH_FILE), follow) if LEADER_EPOCH_FILE in names else (None, ())
    )
    last = max(logs, default=None)
    index = None if last not in indexes else os.path.join(folder, file_name(last, OFFSET_INDEX))
    return Witnesses(
        epochs,
        snapshots=tuple(sorted(snapshots)),
        orphans=tuple(sorted(indexes - logs - swaps)),
        indexed=None if index is None or last is None else _indexed(index, last, follow),
        aside=tuple(sorted(aside)),
        problems=problems,
    )


def _epochs(path: str, follow: bool) -> tuple[tuple[tuple[int, int], ...] | None, tuple[str, ...]]:
    """Returns the entries of a ``leader-epoch-checkpoint``, and what is wrong with it."""
    try:
        data = read_regular(path, MOST_SMALL_BYTES, follow)
    except OSError as error:
        return None, (f"{path} can't be read: {error.strerror or error}",)
    entries = epoch_entries(data)
    if entries.problem is not None:
        return None, (f"{path}: {entries.problem}: what it says is not used",)
    return tuple((int(epoch), int(start)) for epoch, start in entries.rows), ()


def _length(folder: str, name: str) -> int:
    try:
        return os.lstat(os.path.join(folder, name)).st_size
    except OSError:
        return 0


def _indexed(path: str, base: int, follow: bool) -> int | None:
    """Returns the offset after the last entry of an ``.index``; None without entries or if they do not rise.

    Zeros follow the last entry of an active segment; no entry is of position 0.
    """
    try:
        with opened_regular(path, follow) as file:
            low, high = (
                0,
                os.fstat(file).st_size // _ENTRY.size,
            )  # entries below low are used, from high on not
            while low < high:
                middle = (low + high) // 2
                used = _ENTRY.unpack(os.pread(file, _ENTRY.size, middle * _ENTRY.size))[1] > 0
                low, high = (middle + 1, high) if used else (low, middle)
            first = max(0, low - 2)
            entries = [*_ENTRY.iter_unpack(os.pread(file, (low - first) * _ENTRY.size, first * _ENTRY.size))]
    except (OSError, struct.error):
        return None
    (offset, position), *before = entries[::-1] or [(-1, 0)]
    rises = offset >= 0 and all(entry[0] < offset and entry[1] < position for entry in before)
    return base + offset + 1 if rises else None

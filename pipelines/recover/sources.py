"""Finds the disks of a cluster's brokers (``--source NAME=PATH``), and the copies of partitions on them."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.listing.checkpoints import read_offsets
from kafka_log_lake.pipelines.listing.identity import Identity, read_identity
from kafka_log_lake.pipelines.listing.local import topic_id_of
from kafka_log_lake.pipelines.listing.metadata_log import snapshots
from kafka_log_lake.pipelines.listing.naming import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SWAP_SUFFIX,
    File,
    Folder,
    PartitionFolder,
    offset_left,
    parse_file,
    parse_folder,
    parse_left_folder,
)
from kafka_log_lake.pipelines.listing.swaps import complete_swaps
from kafka_log_lake.pipelines.listing.uris import (
    GLOB_CHARACTERS,
    Source,
    canonical,
    local_path,
    parse_source,
    resolve,
)
from kafka_log_lake.pipelines.plan.headers import end_of_batches
from kafka_log_lake.pipelines.recover.entries import DELETED, Copy, SegmentFile
from kafka_log_lake.pipelines.recover.mirrors import mirrored, original
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.format.recovery_tables import HEALED_LOG
from kafka_log_lake.udfs.indexes.checkpoint_files import (
    LEADER_EPOCH_FILE,
    MOST_BYTES,
    OFFSET_FILES,
    leader_epochs,
)
from kafka_log_lake.udfs.indexes.files import (
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    broker_file,
)
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC, snapshot_id
from kafka_log_lake.udfs.indexes.producer_snapshot import ENTRY as PRODUCER
from kafka_log_lake.udfs.indexes.producer_snapshot import Snapshot, read_producer_snapshot
from kafka_log_lake.udfs.storage.regular_file import RefusedFile, read_regular, what_it_is
from kafka_log_lake.udfs.storage.store import canonical_uri

LIVE, FUTURE, DELETE, STRAY = "live", "future", "delete", "stray"
_OWN = {LEADER_EPOCH_FILE, "partition.metadata"}  # next to the segments of a partition
TopicTest = Callable[[str], bool]


@dataclass
class Inventory:
    """All copies of all partitions in the sources, and what was found around them.

    is_meant: whether a topic is asked for; ``__cluster_metadata`` is read all the same.
    include_deleted: whether ``.log.deleted`` files are copies; passed_over: those that are not.
    copies: by topic and partition. log_dirs: the folders with partitions, each with its source's name and
    identity. skipped: why folders were left out. warnings: of files that can't be read. offsets: the entries
    of each checkpoint file, by its path.
    """

    is_meant: TopicTest
    include_deleted: bool = False
    copies: dict[PartitionFolder, list[Copy]] = field(default_factory=lambda: defaultdict(list))
    log_dirs: dict[str, tuple[str, Identity]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    passed_over: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)

    @property
    def cluster_id(self) -> str | None:
        """Returns the cluster id of the log directories, which all have the same; None where none has one."""
        return next(
            (identity.cluster_id for _, identity in self.log_dirs.values() if identity.cluster_id), None
        )


def find_copies(
    sources: Sequence[str], is_meant: TopicTest, include_deleted: bool = False, tier: Sequence[str] = ()
) -> Inventory:
    """Finds every copy of every partition in the sources.

    include_deleted: whether each ``.log.deleted`` file is a copy by itself, else they are passed over. tier:
    tiered storage that belongs to them.

    Raises a UserError for a source that can't be opened, for sources of two clusters, and for none.
    """
    inventory = Inventory(is_meant, include_deleted)
    seen: set[str] = set()
    for source in map(parse_source, sources):
        if source.name == HEALED_LOG:
            raise UserError(f"no source can be named {HEALED_LOG}: it is the name of the merged log")
        is_remote = local_path(source.path) is None
        if any(c in source.path for c in GLOB_CHARACTERS) and not os.path.lexists(source.path):
            raise UserError(f"no such path: {source.path}: name a disk, not a pattern")
        disk = mirrored(canonical_uri(source.path)) if is_remote else source.path
        resolved = resolve([disk])
        if resolved.files:
            raise UserError(f"{source.path} is a file: name a disk, or a partition folder")
        folders = [folder for root in resolved.folders for folder in _partition_folders(root, inventory)]
        if not folders:
            inventory.warnings.append(f"no partition folder (<topic>-<partition>) in {source.path}")
        for folder in dict.fromkeys(folders):
            if folder not in seen:
                seen.add(folder)
                _add(folder, source, inventory)
    _check_clusters(inventory)
    if tier:
        from kafka_log_lake.pipelines.recover.tier_copies import tier_copies  # for the few that have one

        for place, copy in tier_copies(tier, sorted(inventory.log_dirs)):
            if is_meant(place.topic):
                inventory.copies[place].append(copy)
    if not inventory.copies and not inventory.log_dirs:
        raise UserError(f"no partition folders (<topic>-<partition>) in {', '.join(sources)}")
    _number(inventory)
    inventory.warnings = [original(text) for text in inventory.warnings]
    for place, copies in inventory.copies.items():
        if place.topic != METADATA_TOPIC:
            for copy in copies:
                copy.folder = original(copy.folder)
                copy.files = [file._replace(uri=original(file.uri)) for file in copy.files]
    return inventory


def _partition_folders(root: str, inventory: Inventory) -> Iterator[str]:
    """Yields partition folders at or below ``root``, known by name and by a file. Links are not followed."""
    todo = [root]
    while todo:
        path = todo.pop()
        try:
            with os.scandir(path) as listed:
                entries = list(listed)
        except OSError as error:
            inventory.warnings.append(f"{path} can't be read: {error.strerror}")
            continue
        todo += sorted((entry.path for entry in entries if entry.is_dir(follow_symlinks=False)), reverse=True)
        is_place = not isinstance(parse_folder(canonical(path)), str) or parse_left_folder(path)
        if is_place and any(_marks_a_log(entry.name) for entry in entries):
            yield path


def _marks_a_log(name: str) -> bool:
    """Returns whether a folder with a file of this name holds a log, of which a snapshot may be all."""
    return name in _OWN or name.endswith(SEGMENT_SUFFIX) or snapshot_id(name) is not None


def _add(folder: str, source: Source, inventory: Inventory) -> None:
    log_dir = os.path.dirname(folder)
    if log_dir not in inventory.log_dirs:
        identity = read_identity(log_dir, inventory.warnings)
        default_name = (
            f"broker-{identity.node_id}" if identity.node_id is not None else os.path.basename(log_dir)
        )
        inventory.log_dirs[log_dir] = (source.name or default_name, identity)
    name, identity = inventory.log_dirs[log_dir]
    left = parse_left_folder(folder)
    place = left[0] if left else parse_folder(canonical(folder))
    assert not isinstance(place, str)
    if not inventory.is_meant(place.topic) and place.topic != METADATA_TOPIC:
        inventory.skipped["topic not chosen"] += 1
        return
    state = left[1] if left else LIVE
    copy, deleted = _read_copy(
        folder, f"{name}/{os.path.basename(folder)}" if left else name, state, inventory
    )
    copy.broker_id, copy.directory_id = identity.node_id, identity.directory_id
    _add_deleted(copy, deleted, f"{name}/{os.path.basename(folder)}", inventory.copies[place], inventory)
    if copy.files or copy.epochs or copy.topic_id or snapshots(folder):
        inventory.copies[place].append(copy)
    else:
        inventory.skipped["folder without a segment"] += 1
    _add_offsets(copy, place, log_dir, inventory)


def _add_deleted(
    of: Copy, files: Sequence[SegmentFile], name: str, copies: list[Copy], inventory: Inventory
) -> None:
    """Adds each ``.log.deleted`` file of a folder as a copy: other files may have its offsets too."""
    if not inventory.include_deleted or METADATA_TOPIC in name:
        inventory.passed_over += [local_path(file.uri) or file.uri for file in files]
        return
    for file in files:
        copy = Copy(0, f"{name}/{file.uri.rpartition('/')[2]}", of.broker_id, of.folder, DELETED, of.topic_id)
        copy.files.append(file)
        copies.append(copy)


def _read_copy(folder: str, name: str, state: str, inventory: Inventory) -> tuple[Copy, list[SegmentFile]]:
    """Returns the copy in a folder, and the ``.log.deleted`` files there that are not empty."""
    deleted: list[SegmentFile] = []
    copy = Copy(0, name, None, canonical(folder), state, None)
    files, indexes = [], set()
    try:
        with os.scandir(folder) as listed:
            entries = list(listed)
        for entry in entries:
            known = broker_file(entry.name)
            if known is not None and known.kind in (OFFSET_INDEX, TIME_INDEX):
                indexes.add(known.base)
            if known is not None and known.kind == PRODUCER_SNAPSHOT:
                _read_snapshot(entry.path, known.base, copy)
            if not (entry.is_file() or entry.is_dir()) and _is_read(entry.name):
                _refuse(entry, copy, inventory)
            if entry.name.endswith((SEGMENT_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX)) and entry.is_file():
                status = entry.stat()
                files.append(File(entry.name, status.st_size, status.st_mtime_ns // 1000, True))
            left = offset_left(entry.name, DELETED_SUFFIX)
            if left is not None and entry.is_file():
                status = entry.stat()
                if status.st_size:
                    uri = f"{copy.folder}/{entry.name}"
                    deleted.append(SegmentFile(uri, left, status.st_size, status.st_mtime_ns // 1000))
    except OSError as error:
        inventory.warnings.append(f"{folder} can't be read: {error.strerror}")
        return copy, []
    done = complete_swaps(Folder(copy.folder, files, None), end_of_batches)
    inventory.warnings += [f"{uri} can't be read: {why}" for uri, why in done.unreadable.items()]
    for file in done.files:
        base = parse_file(file.name)
        if isinstance(base, int):
            uri = done.swaps.get(file.name, f"{copy.folder}/{file.name}")
            copy.files.append(SegmentFile(uri, base, file.length, file.modified))
    copy.files.sort(key=lambda file: file.base)
    copy.orphans = sorted(indexes - {file.base for file in copy.files})

    def refused(path: str, why: str) -> None:
        warning = f"{path}: not read: {why}"
        if warning not in inventory.warnings:
            inventory.warnings.append(warning)

    copy.topic_id = topic_id_of(folder, entries, refused, follow=True)
    copy.epochs = _epochs(copy, folder)
    return copy, sorted(deleted)


def _is_read(name: str) -> bool:
    """Returns whether a file of this name in a partition's folder would be read."""
    is_log = name.endswith((SEGMENT_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX))
    return is_log or name in _OWN or broker_file(name) is not None


def _refuse(entry: os.DirEntry[str], copy: Copy, inventory: Inventory) -> None:
    """Adds a warning for an entry that is neither a regular file nor a folder."""
    try:
        kind = what_it_is(entry.stat().st_mode)
    except OSError:
        kind = "a link that leads nowhere"
    copy.unreadable.append(f"{entry.path}: not read: it is {kind}")
    inventory.warnings.append(copy.unreadable[-1])


def _read_snapshot(path: str, base: int, copy: Copy) -> None:
    try:
        snapshot = read_producer_snapshot(read_regular(path, MOST_BYTES))
    except OSError as error:
        snapshot = Snapshot(np.zeros(0, dtype=PRODUCER), str(error.strerror))
    if snapshot.problem is None:
        copy.snapshots[base] = snapshot.entries
    else:
        copy.unbelieved.append(f"{os.path.basename(path)}: {snapshot.problem}")


def _epochs(copy: Copy, folder: str) -> list[tuple[int, int]] | None:
    """Reads ``leader-epoch-checkpoint``: (epoch, start offset). None without a file that can be read."""
    try:
        data = read_regular(os.path.join(folder, LEADER_EPOCH_FILE), MOST_BYTES)
    except RefusedFile as error:
        copy.unbelieved.append(f"{LEADER_EPOCH_FILE}: not read: {error.strerror}")
        return None
    except OSError:
        return None
    rows = leader_epochs(data).to_pylist()
    if not data.strip(b"\0\r\n\t ") or any(row["leader_epoch"] is None for row in rows):
        why = next((row["error"] for row in rows if row["error"]), "it is empty")
        copy.unbelieved.append(f"{LEADER_EPOCH_FILE}: {why}")
        return None
    wrong = [f"{LEADER_EPOCH_FILE}: {row['error']}" for row in rows if row["error"]]
    copy.unbelieved += wrong
    copy.has_whole_epochs = not wrong
    return [(row["leader_epoch"], row["start_offset"]) for row in rows if row["error"] is None]


def _add_offsets(copy: Copy, place: PartitionFolder, log_dir: str, inventory: Inventory) -> None:
    """Sets what the checkpoint files of a log directory say of a copy, if it is live."""
    if copy.state != LIVE:
        return
    for name, field_ in OFFSET_FILES.items():
        offset = _offsets(os.path.join(log_dir, name), inventory).get(place)
        setattr(copy, "log_start" if field_ == "log_start_offset" else field_, offset)


def _offsets(path: str, inventory: Inventory) -> dict[tuple[str, int], int]:
    """Returns the entries of a checkpoint file, read once; {} where it is missing or can't be read."""
    if path not in inventory.offsets:
        inventory.offsets[path] = {}
        try:
            inventory.offsets[path] = read_offsets(path)
        except RefusedFile as error:
            inventory.warnings.append(f"{path}: not read: {error.strerror}")
        except ValueError as error:
            inventory.warnings.append(f"{path}: {error}: what it says is not used")
        except OSError:
            pass
    return inventory.offsets[path]


def _check_clusters(inventory: Inventory) -> None:
    """Raises a UserError where log directories belong to different clusters."""
    by_cluster: dict[str, str] = {}
    for log_dir, (name, identity) in inventory.log_dirs.items():
        if identity.cluster_id:
            by_cluster.setdefault(identity.cluster_id, f"{name} ({log_dir}) is of {identity.cluster_id}")
    if len(by_cluster) > 1:
        raise UserError(
            f"the sources are of {len(by_cluster)} clusters, which one lake can't hold: "
            f"{'; '.join(by_cluster.values())}: recover each cluster by itself"
        )


def _number(inventory: Inventory) -> None:
    """Numbers the copies of each partition, and makes their names different from each other."""
    for copies in inventory.copies.values():
        copies.sort(key=lambda copy: (copy.state != LIVE, copy.name, copy.folder))
        names = Counter(copy.name for copy in copies)
        for number, copy in enumerate(copies):
            copy.number = number
            if names[copy.name] > 1:
                copy.name = f"{copy.name}:{os.path.dirname(local_path(copy.folder) or '')}"

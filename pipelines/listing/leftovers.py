"""Lists what a broker left: ``.log.deleted`` files, and folders that end in -delete, -stray or -future.

A broker renames a segment that retention, the log cleaner or a truncation removed, and deletes the file a
minute later (``file.delete.delay.ms``). After an unclean election it may hold the only copy of acknowledged
records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names
from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.pipelines.listing.naming import (
    DELETED_SUFFIX,
    TO_DELETE,
    File,
    Folder,
    PartitionFolder,
    counts_folders,
    offset_left,
    parse_file,
)


class PassedOver(NamedTuple):
    """A ``.log.deleted`` file, or a folder ending ``-delete``, ``-stray`` or ``-future``, that was not read.

    reason: of ``naming``. first_offset: the lowest that it may hold, by the names of its files.
    """

    uri: str
    topic: str
    partition: int
    reason: str
    first_offset: int
    bytes: int


def passed_folder(folder: Folder, place: PartitionFolder, reason: str) -> list[PassedOver]:
    """Returns the folder as one that is passed over, in a list; [] if no segment is in it."""
    sized = [
        (offset, file.length)
        for file in folder.files
        if isinstance(offset := parse_file(file.name.removesuffix(".deleted")), int)
    ]
    if not sized:
        return []
    first, size = min(offset for offset, _ in sized), sum(length for _, length in sized)
    return [PassedOver(folder.uri, *place, reason, first, size)]


def deleted_files(folder: Folder, include_deleted: bool | None) -> tuple[list[tuple[int, File]], list[File]]:
    """Returns the ``.log.deleted`` files of a folder: those to read, with base offsets, and the others.

    include_deleted: see ``list_segments``. Files next to one that a source names are neither.
    """
    taken: list[tuple[int, File]] = []
    others: list[File] = []
    for file in folder.files:
        offset = offset_left(file.name, DELETED_SUFFIX)
        if offset is None or not (folder.is_whole or file.wanted):
            continue
        if include_deleted or (include_deleted is False and file.wanted):
            taken.append((offset, file._replace(wanted=True)))
        else:
            others.append(file)
    return taken, others


def passed_files(folder: Folder, place: PartitionFolder, files: Iterable[File]) -> list[PassedOver]:
    """Returns ``.log.deleted`` files as passed over."""
    return [
        PassedOver(f"{folder.uri}/{file.name}", *place, TO_DELETE, base, file.length)
        for file in files
        if (base := offset_left(file.name, DELETED_SUFFIX)) is not None
    ]


def passed_over_texts(passed: Iterable[PassedOver]) -> list[str]:
    """Describes in words what was passed over and has bytes: reason, size and logs, one text a reason."""
    by_reason: dict[str, list[PassedOver]] = defaultdict(list)
    for file in passed:
        if file.bytes:
            by_reason[file.reason].append(file)
    texts = []
    for reason, some in sorted(by_reason.items()):
        size = size_text(sum(file.bytes for file in some))
        names = first_names(sorted({f"{file.topic}-{file.partition}" for file in some}), 3)
        kind = counted_noun(len(some), f"{DELETED_SUFFIX} file")
        if counts_folders(reason):
            kind = f"{counted_noun(len(some), 'folder')} ending {reason.rpartition(' ')[2]}"
        texts.append(f"{kind} ({size}) of {names}")
    return texts

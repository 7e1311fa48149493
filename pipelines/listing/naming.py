"""Parses the names of folders and files: which files are segments, and of which topic-partition.

Pure functions over names, and what a listing gives of a folder, for local folders, object stores and landed
bytes alike. The rules are those of Kafka's ``UnifiedLog`` and ``LogFileUtils``:
``<topic>-<partition>/<20 digits>.log``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container
from typing import NamedTuple

from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.values import is_utf8
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX, split_name
from kafka_log_lake.udfs.format.hive import MAX_NAME_BYTES, NULL, longest_name
from kafka_log_lake.udfs.format.layout import MAX_OFFSET

# Reasons to skip a folder or a file. A broker leaves folders of the first three kinds behind.
DELETED, STRAY, FUTURE = "folder -delete", "folder -stray", "folder -future"
NO_PARTITION = "folder is not a partition"
PARTITION_TOO_BIG = "partition number above 2147483647"
TOPIC_TOO_LONG = "topic name too long for a folder of the lake"
NOT_TEXT = "path that is not UTF-8"
NO_SEGMENT = "file is not a segment"
SWAP = "file .log.swap: it takes the place of segments when the broker starts"
SWAP_UNFINISHED = "file .log.swap of an unfinished set, which the broker removes when it starts"
SWAP_NOT_WHOLE = "file .log.swap that is damaged, and the segments that it was made of are there"
REPLACED = "file .log that a file .log.swap takes the place of"
CLEANED = "file .log.cleaned: a result of the log cleaner that was not finished"
TO_DELETE = "file .log.deleted: a segment that the broker is about to delete"
# Kafka's suffixes of files that are next to segments for a time (``LogFileUtils``), and why each is skipped
SWAP_SUFFIX, CLEANED_SUFFIX, DELETED_SUFFIX = ".log.swap", ".cleaned", ".log.deleted"
LEFT_BEHIND = {SWAP_SUFFIX: SWAP, ".log.cleaned": CLEANED, DELETED_SUFFIX: TO_DELETE}
OFFSET_TOO_BIG = "base offset above 9223372036854775807"
LINK = "link that is not followed (--follow-symlinks)"
BROKEN_LINK = "link that leads nowhere"
SPECIAL = "special file (pipe, socket, device) with the name of a segment"
UNREADABLE = "file can't be read"
UNREADABLE_FOLDER = "folder can't be read"

# A legal topic name, which Spark's writer reads as null in the path of a data file
NULL_TOPIC = NULL
NULL_TO_SPARK = "topic name that Spark writes as null (decode it with --sink arrow)"
NO_TABLE_HOLDS = (NOT_TEXT, TOPIC_TOO_LONG, PARTITION_TOO_BIG, OFFSET_TOO_BIG, NULL_TO_SPARK)
# What may be segments, and nobody looked into: reason -> what is counted
NOT_LOOKED_AT = {
    **dict.fromkeys(NO_TABLE_HOLDS, "file"),
    **dict.fromkeys((LINK, BROKEN_LINK), "symbolic link"),
    SPECIAL: "special file",
}

PARTITION_FOLDER = re.compile(r"(?s)(.+)-([0-9]+)")
LEFT_FOLDER = re.compile(r"(?s)(.*)\.[0-9a-fA-F]+-(delete|stray|future)")
_MAX_PARTITION = 2**31 - 1


class PartitionFolder(NamedTuple):
    """A folder that holds the log of one topic-partition."""

    topic: str
    partition: int


class File(NamedTuple):
    """A file of a partition folder: a segment, or one that the log cleaner left next to segments.

    modified: microseconds since 1970 UTC. wanted: False if no source names the file, and it was listed only
    because another file of its folder was named; for a ``.log.deleted`` file whether it is named itself.
    """

    name: str
    length: int
    modified: int
    wanted: bool


class Folder(NamedTuple):
    """A folder with its ``.log`` files, and those of the log cleaner where they are requested.

    uri: canonical, no trailing slash. topic_id: None if unknown. is_named: whether a source is the folder
    itself, or a file in it. is_whole: whether a source has all of its files, not those alone that it names.
    """

    uri: str
    files: list[File]
    topic_id: str | None
    is_named: bool = False
    is_whole: bool = True


def parse_folder(path: str) -> PartitionFolder | str:
    """Returns the topic-partition in the name of a folder, or the reason to skip the folder."""
    name = path.rpartition("/")[2]
    left_behind = LEFT_FOLDER.fullmatch(name)
    if left_behind:
        return f"folder -{left_behind.group(2)}"
    match = PARTITION_FOLDER.fullmatch(name)
    if not match:
        return NO_PARTITION
    if not is_utf8(path):
        return NOT_TEXT
    topic, partition = match.group(1), int(match.group(2))
    if partition > _MAX_PARTITION:
        return PARTITION_TOO_BIG
    if longest_name("topic", topic) > MAX_NAME_BYTES:
        return TOPIC_TOO_LONG
    return PartitionFolder(topic, partition)


def parse_left_folder(path: str) -> tuple[PartitionFolder, str] | None:
    """Returns the topic-partition of a folder that a broker left, and "delete", "stray" or "future".

    None for any other folder.
    """
    match = LEFT_FOLDER.fullmatch(path.rpartition("/")[2])
    place = parse_folder(match.group(1)) if match else NO_PARTITION
    return None if match is None or isinstance(place, str) else (place, match.group(2))


def left_state(partition_dir: str) -> str | None:
    """Returns what a broker made of a log: "delete", "stray", "future", "deleted"; None for a live one.

    "deleted" is a ``.log.deleted`` file, in a listing a log of its own. partition_dir: of a listing.
    """
    if partition_dir.endswith(DELETED_SUFFIX):
        return "deleted"
    left = parse_left_folder(partition_dir)
    return left[1] if left else None


def parse_file(name: str) -> int | str:
    """Returns the base offset in the name of a segment, or the reason to skip the file."""
    parts = split_name(name)
    if parts is None or parts.suffix != SEGMENT_SUFFIX:
        return NO_SEGMENT
    return parts.offset if parts.offset <= MAX_OFFSET else OFFSET_TOO_BIG


def is_log(name: str) -> bool:
    """Says whether a name is a segment's or a partition folder's."""
    return isinstance(parse_file(name), int) or not isinstance(parse_folder(name), str)


def left_behind(name: str) -> str | None:
    """Returns the reason why a file next to the segments is skipped; None for any other file."""
    parts = split_name(name)
    return LEFT_BEHIND.get(parts.suffix) if parts else None


def offset_left(name: str, suffix: str) -> int | None:
    """Returns the base offset in the name of a file that was left by a broker.

    None for any other, and above int64.

    suffix: SWAP_SUFFIX, DELETED_SUFFIX, or CLEANED_SUFFIX, which an index has too.
    """
    parts = split_name(name)
    if parts is None or parts.offset > MAX_OFFSET:
        return None
    is_left = parts.suffix.endswith(suffix) if suffix == CLEANED_SUFFIX else parts.suffix == suffix
    return parts.offset if is_left else None


def counts_folders(reason: str) -> bool:
    """Says whether folders are counted for a reason, not files."""
    return reason.startswith("folder")


def parse_topic_id(metadata: str) -> str | None:
    """Returns the topic id in a ``partition.metadata`` file (Kafka's ``PartitionMetadataFile``), or None."""
    match = re.search(r"^topic_id:\s*(\S+)\s*$", metadata, re.MULTILINE)
    return match.group(1) if match else None


def unlooked_texts(skipped: Counter[str]) -> list[str]:
    """Describes in words what may be segments, and was not looked into.

    skipped: of a listing; reason -> number of files.
    """
    numbers: Counter[str] = Counter()
    for reason, noun in NOT_LOOKED_AT.items():
        numbers[noun] += skipped[reason]
    return [
        counted_noun(number, noun) + (" that no table can hold" if noun == "file" else "")
        for noun, number in numbers.items()
        if number
    ]


def is_noted(partition_dir: str, listed: Container[str]) -> bool:
    """Says whether what the checkpoint files note of a partition is about this log.

    They do not know a log that is deleted or stray; and one that moves here only while no live one is here.
    """
    state = left_state(partition_dir)
    return state is None or (state == "future" and partition_dir.rpartition(".")[0] not in listed)

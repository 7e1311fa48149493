"""Names of the files of a log: an offset in 20 digits and a suffix (Kafka's ``LogFileUtils``)."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from kafka_log_lake.udfs.format.layout import MAX_OFFSET

SEGMENT_SUFFIX = ".log"
OFFSET_DIGITS = "[0-9]{20}"
_OBJECT = re.compile(rf"({OFFSET_DIGITS})-[A-Za-z0-9_-]{{22}}(\..+)?", re.DOTALL)  # of tiered storage
_NAME = re.compile(rf"({OFFSET_DIGITS})(\..+)", re.DOTALL)


class FileName(NamedTuple):
    """The parts of a file's name. offset: may be above int64. suffix: from the first dot on."""

    offset: int
    suffix: str


def split_name(name: str) -> FileName | None:
    """Splits the name of a file into its parts; None where it does not begin with 20 digits and a dot."""
    match = _NAME.fullmatch(name)
    return FileName(int(match[1]), match[2]) if match else None


def segment_base(path: str) -> int | None:
    """Returns the base offset in the name of a segment, a path or URI; None for another name."""
    name = split_name(path.rpartition("/")[2])
    is_segment = name is not None and name.suffix == SEGMENT_SUFFIX and name.offset <= MAX_OFFSET
    return name.offset if name is not None and is_segment else None


def file_name(offset: int, suffix: str = SEGMENT_SUFFIX) -> str:
    """Returns the name of a file of a log."""
    return f"{offset:020d}{suffix}"


def without_segment_id(name: str) -> str:
    """Returns the name of an object of tiered storage without the id of its segment; any other as it is."""
    match = _OBJECT.fullmatch(name)
    return f"{match[1]}{match[2] or ''}" if match else name


def stem_of(path: str) -> str:
    """Returns what stands before the first dot of a file's name."""
    return os.path.basename(path).split(".")[0]


def leading_offset(path: str) -> int | None:
    """Returns the number before the first dot of a file's name, as kafka-dump-log takes it; else None.

    An object of tiered storage has a dash and the id of its segment after 20 digits.
    """
    stem = without_segment_id(stem_of(path))
    return int(stem) if stem.isascii() and stem.isdigit() else None

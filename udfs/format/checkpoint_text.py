"""Reads the text of checkpoint files: Kafka's ``CheckpointFile`` with its two formatters.

The first line is the version, 0, the second one the number of entries, and each entry is a line:

    leader-epoch-checkpoint (in a partition's folder)        epoch, start offset
    ...-offset-checkpoint (in the folder above)              topic, partition, offset

Offsets of the latter are the first that is not covered.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kafka_log_lake.udfs.words import counted_noun

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
# Files of a log directory -> the offset of each log that they hold
OFFSET_FILES = {
    "log-start-offset-checkpoint": "log_start_offset",
    "recovery-point-offset-checkpoint": "recovery_point",
    "replication-offset-checkpoint": "high_watermark",
    "cleaner-offset-checkpoint": "cleaned_before",
}
_VERSION = "0"
MOST_BYTES = 1 << 25  # some 300,000 partitions
_EPOCH_LINE = re.compile(r"(-?[0-9]{1,10})\s+(-?[0-9]{1,19})")
_OFFSET_LINE = re.compile(r"(\S+)\s+([0-9]{1,10})\s+(-?[0-9]{1,19})")


class Entries(NamedTuple):
    """The entries of a file as far as they can be read. problem: what is wrong with the file, or None."""

    rows: list[tuple[str, ...]]
    problem: str | None


def offset_entries(data: bytes) -> Entries:
    """Returns (topic, partition, offset) of each entry of a file of OFFSET_FILES, as text."""
    return _entries(data, _OFFSET_LINE, "a topic, a partition and an offset")


def epoch_entries(data: bytes) -> Entries:
    """Returns (epoch, start offset) of each entry of a ``leader-epoch-checkpoint``, as text."""
    return _entries(data, _EPOCH_LINE, "an epoch and a start offset")


def _entries(data: bytes, form: re.Pattern[str], what: str) -> Entries:
    """Returns the entries of a file whose lines have this form. what: an entry in words.

    A file without a second line has no entry yet.
    """
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        return Entries([], f"byte {error.start} is not UTF-8")
    if lines and lines[0] != _VERSION:
        return Entries([], f"its version is {lines[0][:20]!r}, not {_VERSION}")
    if len(lines) < 2:
        return Entries([], None)
    rows: list[tuple[str, ...]] = []
    for number, line in enumerate(lines[2:], 3):
        match = form.fullmatch(line)
        if match is None or not _fit(match.groups()):
            return Entries(rows, f"line {number} is not {what}: {line[:60]!r}")
        rows.append(match.groups())
    if lines[1] != str(len(rows)):
        return Entries(rows, f"it has {counted_noun(len(rows), 'entry')}, and says {lines[1][:20]!r}")
    return Entries(rows, None)


def _fit(row: tuple[str, ...]) -> bool:
    """Tells whether the last two values of an entry are an int32 and an int64."""
    return all(-most <= int(value) < most for value, most in zip(row[-2:], (1 << 31, 1 << 63), strict=True))

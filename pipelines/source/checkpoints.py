"""Reads a broker's checkpoint files: how far each log reached, by what the broker noted beside it.

Three text files in the log directory, above the partition folders (``OffsetCheckpointFile``): a line with
the version, 0, one with the number of entries, then ``topic partition offset`` a line. The broker writes them
anew every few seconds to a minute, and when it stops. Offsets in them are the first that is not covered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from udfs.source.byte_source import local_path

# File -> field of Checkpoint
_FIELDS = {
    "log-start-offset-checkpoint": "log_start_offset",
    "recovery-point-offset-checkpoint": "recovery_point",
    "replication-offset-checkpoint": "high_watermark",
}
CHECKPOINT_FILES = frozenset(_FIELDS)
_VERSION = "0"
_LINE = re.compile(r"(\S+)\s+([0-9]{1,10})\s+([0-9]{1,19})")
_MOST_BYTES = 1 << 28


class Checkpoint(NamedTuple):
    """What the files of a log directory say of one log; None where one says nothing.

    log_start_offset: the lowest offset that consumers may read; noted only where it is above the base offset
    of the first segment (``LogManager.checkpointLogStartOffsetsInDir``). recovery_point: what lies before it
    was flushed to the disk. high_watermark: what lies before it was on all replicas in sync, so that
    consumers could read it.
    """

    log_start_offset: int | None = None
    recovery_point: int | None = None
    high_watermark: int | None = None


@dataclass
class Checkpoints:
    """The checkpoint files of several log directories. warnings: of those that can't be read."""

    warnings: list[str] = field(default_factory=list)
    _by_folder: dict[str, dict[tuple[str, int], Checkpoint]] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        """Whether there is an entry of any log."""
        return any(self._by_folder.values())

    def read(self, log_dir: str, names: Collection[str] = CHECKPOINT_FILES) -> None:
        """Reads files of a local log directory, once. They have to be read before its segments are listed.

        What a broker notes is never ahead of the log, so a log that is listed later reaches it.
        """
        if log_dir in self._by_folder:
            return
        found = self._by_folder[log_dir] = {}
        for name in sorted(CHECKPOINT_FILES.intersection(names)):
            path = os.path.join(log_dir, name)
            try:
                entries = _read(path)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                self.warnings.append(f"{path} can't be read, no log is compared with it: {why}")
                continue
            for log, offset in entries.items():
                found[log] = found.get(log, Checkpoint())._replace(**{_FIELDS[name]: offset})

    def of(self, partition_dir: str, topic: str, partition: int) -> Checkpoint | None:
        """What is known of the log in a folder, by its URI; None for nothing."""
        path = local_path(partition_dir)
        entries = self._by_folder.get(os.path.dirname(path)) if path else None
        return entries.get((topic, partition)) if entries else None


def _read(path: str) -> dict[tuple[str, int], int]:
    """The offset of each topic and partition. Raises an OSError, and a ValueError for another format."""
    with open(path, encoding="utf-8") as file:
        lines = file.read(_MOST_BYTES).splitlines()
    if lines and lines[0] != _VERSION:
        raise ValueError(f"its version is {lines[0][:20]!r}, not {_VERSION}")
    if len(lines) < 2:
        return {}  # a broker makes the file before it has an entry
    found = {}
    for number, line in enumerate(lines[2:], 3):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is not a topic, a partition and an offset: {line[:60]!r}")
        found[match[1], int(match[2])] = int(match[3])
    if lines[1] != str(len(lines) - 2):
        raise ValueError(f"it has {len(lines) - 2} entries, and says {lines[1][:20]!r}")
    return found

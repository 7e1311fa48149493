"""Reads a broker's checkpoint files: how far each log reached, by what the broker noted next to it.

Four files in the log directory, above the partition folders (``udfs.format.checkpoint_text``). The broker
writes them anew every few seconds to a minute, and when it stops. Offsets in them are the first that is not
covered.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_log_lake.udfs.batches.log_start import CheckpointedStart
from kafka_log_lake.udfs.batches.noted_start import LOG_START_FILE
from kafka_log_lake.udfs.format.checkpoint_text import MOST_BYTES, OFFSET_FILES, offset_entries
from kafka_log_lake.udfs.storage.byte_source import path_of_uri
from kafka_log_lake.udfs.storage.regular_file import RefusedFile, read_regular


class Checkpoint(NamedTuple):
    """What the files of a log directory say of one log; None where one says nothing.

    log_start_offset: the lowest offset that consumers may read; noted only where it is above the base offset
    of the first segment (``LogManager.checkpointLogStartOffsetsInDir``). recovery_point: what lies before it
    was flushed to the disk. high_watermark: what lies before it was on all replicas in sync, so that
    consumers could read it. cleaned_before: what lies before it the log cleaner has seen.
    """

    log_start_offset: int | None = None
    recovery_point: int | None = None
    high_watermark: int | None = None
    cleaned_before: int | None = None


# File -> field of Checkpoint
_FIELDS = {name: field for name, field in OFFSET_FILES.items() if field in Checkpoint._fields}
CHECKPOINT_FILES = frozenset(_FIELDS)


@dataclass
class Checkpoints:
    """The checkpoint files of several log directories.

    warnings: of those that can't be read. refused: path -> why, of those that are no regular files, or too
    large. follows: whether a file may be a link.
    """

    warnings: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    follows: bool = False
    _by_folder: dict[str, dict[tuple[str, int], Checkpoint]] = field(default_factory=dict)
    _with_starts: set[str] = field(default_factory=set)  # log directories whose log starts were read

    @property
    def found(self) -> bool:
        """Says whether there is an entry of any log."""
        return any(self._by_folder.values())

    def read(self, log_dir: str, names: Collection[str] = CHECKPOINT_FILES) -> None:
        """Reads files of a local log directory, once. They have to be read before its segments are listed.

        What a broker notes is never ahead of the log, so a log that is listed later reaches it.
        """
        if log_dir in self._by_folder:
            return
        of_log_dir = self._by_folder[log_dir] = {}
        for name in sorted(CHECKPOINT_FILES.intersection(names)):
            path = os.path.join(log_dir, name)
            try:
                entries = read_offsets(path, self.follows)
            except FileNotFoundError:
                continue
            except RefusedFile as error:
                self.refused[path] = str(error.strerror)
                continue
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                self.warnings.append(f"{path} can't be read, no log is compared with it: {why}")
                continue
            if name == LOG_START_FILE:
                self._with_starts.add(log_dir)
            for log, offset in entries.items():
                if offset >= 0:  # Kafka reads negative ones too, which say nothing
                    of_log_dir[log] = of_log_dir.get(log, Checkpoint())._replace(**{_FIELDS[name]: offset})

    def logs(self) -> Iterator[tuple[str, tuple[str, int], Checkpoint]]:
        """Yields every log that a file names: log directory, (topic, partition), and what is noted of it."""
        for log_dir, entries in self._by_folder.items():
            for place, checkpoint in entries.items():
                yield log_dir, place, checkpoint

    def noted_start(self, partition_dir: str, topic: str, partition: int) -> CheckpointedStart | None:
        """Returns what ``log-start-offset-checkpoint`` says of the log in a folder.

        None where it was not read.
        """
        path = path_of_uri(partition_dir)
        log_dir = os.path.dirname(path) if path else None
        if log_dir is None or log_dir not in self._with_starts:
            return None
        checkpoint = self._by_folder[log_dir].get((topic, partition))
        return CheckpointedStart(checkpoint.log_start_offset if checkpoint else None)

    def of(self, partition_dir: str, topic: str, partition: int) -> Checkpoint | None:
        """Returns what is known of the log in a folder, by its URI; None for nothing."""
        path = path_of_uri(partition_dir)
        entries = self._by_folder.get(os.path.dirname(path)) if path else None
        return entries.get((topic, partition)) if entries else None


def read_offsets(path: str, follow: bool = True) -> dict[tuple[str, int], int]:
    """Reads a checkpoint file: the offset of each (topic, partition).

    Raises an OSError, or a ValueError for another format. follow: whether the file may be a link.
    """
    entries = offset_entries(read_regular(path, MOST_BYTES, follow))
    if entries.problem is not None:
        raise ValueError(entries.problem)
    return {(topic, int(partition)): int(offset) for topic, partition, offset in entries.rows}

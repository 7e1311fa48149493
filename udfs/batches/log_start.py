"""Finds the log start offset, where consumers begin, by what a broker noted and which segments are there.

Kafka's ``UnifiedLog.logStartOffset``: retention moves it to the base offset of the first segment that is
left, ``DeleteRecords`` to any offset, within a batch too. What lies below it may still be in the first
segment; no consumer gets it. A broker notes it in two files:

- ``log-start-offset-checkpoint`` of the log directory, once a minute and when it stops: a line where it is
  not the base offset of the first segment (``LogManager.checkpointLogStartOffsetsInDir``). Where segments are
  in remote storage it may lie below that one;
- ``leader-epoch-checkpoint`` of the partition's folder: the first entry is moved to it, in the background
  (``LeaderEpochFileCache.truncateFromStartAsyncFlush``).
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_log_lake.udfs.batches.clocks import CERTAIN, LIKELY, UNKNOWN

BY_CHECKPOINT, BY_EPOCHS, BY_SEGMENTS = "checkpoint", "epochs", "segments"
BY_COPIES = "copies"  # of a healed log: what its copies say together


class LogStart(NamedTuple):
    """The first offset of a log that consumers may read.

    witness: what tells it: checkpoint (``log-start-offset-checkpoint``), epochs (the first entry of
    ``leader-epoch-checkpoint``), segments (the base offset of the first one alone), or copies (of a healed
    log). certainty: certain, likely or unknown.
    """

    offset: int
    witness: str
    certainty: str


class CheckpointedStart(NamedTuple):
    """A log's line in ``log-start-offset-checkpoint``. offset: None where the file has none."""

    offset: int | None


class FirstEpoch(NamedTuple):
    """The first entry of a ``leader-epoch-checkpoint``: an epoch, and the offset where it begins."""

    epoch: int
    offset: int


def log_start(
    first_file: int,
    noted: CheckpointedStart | None = None,
    first: FirstEpoch | None = None,
    first_batch_epoch: int = -1,
) -> LogStart:
    """Returns the log start offset, what tells it, and how certain it is.

    first_file: base offset of the first segment. noted: None without a checkpoint file that can be read.
    first: None without an entry. first_batch_epoch: leader epoch of the first batch of the first segment;
    -1 where it has none, or can't be read: then an entry above first_file may be the first that ever was.
    """
    moved = first is not None and first.offset > first_file and 0 <= first_batch_epoch <= first.epoch
    by_epochs = first is not None and (moved or first.offset <= first_file)
    if noted is not None:
        by_checkpoint = first_file if noted.offset is None else noted.offset
        if first is not None and by_epochs and first.offset > by_checkpoint:
            return LogStart(first.offset, BY_EPOCHS, LIKELY)  # it moved after the checkpoint was written
        if first is not None and noted.offset is None and first.offset < first_file:
            return LogStart(first.offset, BY_EPOCHS, LIKELY)  # retention would have moved the entry
        return LogStart(by_checkpoint, BY_CHECKPOINT, CERTAIN)
    if first is not None and by_epochs:
        return LogStart(first.offset, BY_EPOCHS, LIKELY)
    return LogStart(first_file, BY_SEGMENTS, UNKNOWN)

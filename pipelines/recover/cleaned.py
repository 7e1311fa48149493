"""Says how far the log cleaner ran over a copy: by its checkpoint, and by what only it leaves in a log.

What it leaves is judged by ``udfs.batches.offset_findings``, as ``scan``, ``find`` and ``decode`` do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kafka_log_lake.pipelines.recover.bounds import END, log_end
from kafka_log_lake.pipelines.recover.entries import TAILS, UNPLACED, Copy, rows_where
from kafka_log_lake.pipelines.recover.intervals import Interval, missing
from kafka_log_lake.udfs.batches.offset_findings import is_known_compacted, order
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT, RUN, are_cleaned, runs_of
from kafka_log_lake.udfs.batches.retention import COMPACTED_TOPICS
from kafka_log_lake.udfs.format import layout as f


def is_compacted(topic: str, copies: Sequence[Copy]) -> bool:
    """Returns whether the log cleaner may have run, by the topic, or by a copy's checkpoint or batches."""
    return topic in COMPACTED_TOPICS or any(_is_compacted(topic, copy) for copy in copies)


def _is_compacted(topic: str, copy: Copy) -> bool:
    files = [file.base for file in copy.files]
    if not files:
        return False
    hurts = [hurt for hurt in copy.hurts if hurt.reason not in TAILS]
    places = np.array([(files[hurt.file], hurt.position, hurt.size) for hurt in hurts], dtype=np.int64)
    is_known = is_known_compacted(topic, files[0], copy.cleaned_before)
    return order(_runs(copy, files), places.reshape(-1, 3), files, is_known).is_compacted


def _runs(copy: Copy, files: Sequence[int]) -> np.ndarray:
    """Returns RUN[n] of the sound batches of a copy. files: base offsets in the names of its files."""
    entries = copy.entries
    entries = rows_where(entries, entries["is_sound"] & (entries["base"] != UNPLACED))
    has_horizon = (entries["magic"] == f.MAGIC_V2) & (entries["attributes"] & f.DELETE_HORIZON_MASK != 0)
    is_cleaned = has_horizon | lack_records(entries)
    ends = np.searchsorted(entries["file"], np.arange(len(files)), side="right").tolist()
    parts, begin = [np.zeros(0, dtype=RUN)], 0
    for base, limit, end in zip(files, [*files[1:], NO_LIMIT], ends, strict=True):
        batches, names = entries[begin:end], (base, limit)
        first, last, position, size = (batches[name] for name in ("base", "last", "position", "size"))
        parts.append(runs_of(first, last, position, size, is_cleaned[begin:end], *names))
        begin = end
    return np.concatenate(parts)


def lack_records(batches: np.ndarray) -> np.ndarray:
    """Returns bool[n]: which of ENTRY[n] lack records that the log cleaner removed."""
    records = np.where(batches["magic"] == f.MAGIC_V2, batches["count"], -1)
    return are_cleaned(batches["base"], batches["last"], records)


def without_gaps(copy: Copy, wrong: np.ndarray, is_compacted: bool) -> np.ndarray:
    """Returns bool[n]: batches before which no offset is missing unless there is damage.

    These are all batches of a log that is not compacted. In a compacted log they are those that the log
    cleaner has not reached: its checkpoint says how far it came, and it never cleans the last segment. wrong:
    bool[n], batches whose base offset is not believed.
    """
    if not is_compacted:
        return np.ones(len(copy.entries), dtype=bool)
    in_last: np.ndarray = copy.entries["file"] == len(copy.files) - 1
    cleaned = copy.cleaned_before
    if cleaned is None and copy.high_watermark is not None:  # the disk's checkpoints are there: it never ran
        lacks = in_last & copy.entries["is_sound"] & lack_records(copy.entries)
        cleaned = None if lacks.any() else 0
    if cleaned is None or not copy.files:
        return np.zeros(len(copy.entries), dtype=bool)
    believed = in_last & copy.entries["is_sound"] & ~wrong
    reached = np.where(believed, copy.entries["last"] + 1, copy.files[-1].base)
    before = np.maximum.accumulate(np.concatenate([[copy.files[-1].base], reached]))[:-1]
    result: np.ndarray = in_last & (before >= cleaned)
    return result


def cleaned_until(copy: Copy, true: np.ndarray, known: Sequence[Interval]) -> int:
    """Returns the offset up to which a copy was cleaned, by its checkpoint and at least by its batches."""
    noted = min(copy.cleaned_before or 0, log_end(copy))
    return max([noted, *(places_that_lack(true, known)[-1:, 1] + 1).tolist()])


def gaps_before(copy: Copy, true: np.ndarray) -> int:
    """Returns the offset before which the log cleaner may have removed whole batches of a copy.

    The checkpoint says how far the log cleaner came. Where it has no entry for the log, but other checkpoints
    of the disk do, the log cleaner never ran, unless batches lack records. END where nothing says it.
    """
    ends = (true["last"][lack_records(true)] + 1).tolist()
    if copy.cleaned_before is None and (ends or copy.high_watermark is None):
        return END
    return max([copy.cleaned_before or 0, *ends])


def places_that_lack(batches: np.ndarray, covered: Sequence[Interval]) -> np.ndarray:
    """Returns int64[n, 2]: (first, last) offset of each known place that lacks records, in their order.

    Such a place is a batch that lacks some, or has no batch.
    """
    part = rows_where(batches, lack_records(batches))
    outside = np.array(missing(covered, -1, END), dtype=np.int64).reshape(-1, 2)
    spans = np.concatenate([np.stack([batches["base"], batches["last"]], axis=1), outside])
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    begins, ends = np.maximum.accumulate(spans[:, 1])[:-1] + 1, spans[1:, 0] - 1
    empty = np.stack([begins, ends], axis=1)[begins <= ends]
    lacking = np.concatenate([empty, np.stack([part["base"], part["last"]], axis=1)])
    result: np.ndarray = lacking[np.argsort(lacking[:, 0], kind="stable")]
    return result

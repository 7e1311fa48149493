"""Finds where transactions begin and end, and which of them hold back the last stable offset of their log.

A transaction is the transactional data of one producer in one log up to the producer's next marker, in the
order of the files. Data and marker match by producer id alone, because newer brokers raise the marker's
epoch above the data's; a marker ends the data of the highest epoch before it. Two things show that a
transaction has ended although its marker is not seen:

* a gap: segments that retention deleted before they were decoded, or that are left out: the marker may have
  been there. Segments without a gap between them are a stretch (``pipelines/rules/log_stretches.sql``);
* an epoch: data of a higher producer epoch, or a marker that ends them: the broker has ended the transaction
  of the old epoch (fencing).

The outcome of such a transaction is unknown, but it does not hold back the last stable offset.
"""

from __future__ import annotations

import numpy as np

from kafka_log_lake.udfs.batches.offsets import RUN, misplaced
from kafka_log_lake.udfs.format import layout as f

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
# By the type of the marker
OUTCOMES = {f.CONTROL_COMMIT: COMMITTED, f.CONTROL_ABORT: ABORTED, f.NO_CONTROL: OPEN}
# A sound transactional data batch, consecutive ones of one producer and epoch, or a marker
EVENT = np.dtype(
    [
        ("log", "i4"),
        ("stretch", "i8"),  # it grows within a log
        ("file_base", "i8"),  # base offset in the file's name
        ("file_limit", "i8"),  # the same of the next file; offsets.NO_LIMIT for the last
        ("producer_id", "i8"),
        ("first_offset", "i8"),
        ("last_offset", "i8"),
        ("last_base", "i8"),  # base offset of the last batch
        ("records", "i8"),
        ("batches", "i8"),
        ("damages", "i8"),  # damaged ranges of the log before it
        ("coordinator_epoch", "i4"),  # of a marker
        ("producer_epoch", "i2"),
        ("control_type", "i2"),  # layout.CONTROL_ABORT, CONTROL_COMMIT; NO_CONTROL for data
    ]
)
TRANSACTION = np.dtype(
    [
        ("log", "i4"),
        ("producer_id", "i8"),
        ("producer_epoch", "i2"),  # of the data; of the marker where there is none
        ("has_data", "?"),
        ("first_offset", "i8"),
        ("last_offset", "i8"),
        ("records", "i8"),
        ("begins", "i8"),  # the event that it begins with
        ("control_type", "i2"),  # of its marker; NO_CONTROL where none was seen
        ("marker_offset", "i8"),
        ("coordinator_epoch", "i4"),
        ("is_uncertain", "?"),  # the marker may lie where it can't be seen
        ("is_over", "?"),  # it has ended, seen or not; else it holds the last stable offset
    ]
)


def transactional_batches(batches: np.ndarray) -> np.ndarray:
    """Returns the sound transactional batches among BATCH[n]: data, and the markers that end transactions."""
    is_sound = (batches["fault"] == 0) & (batches["magic"] == f.MAGIC_V2)
    is_transactional = batches["attributes"] & f.TRANSACTIONAL_MASK != 0
    is_data = batches["attributes"] & f.CONTROL_MASK == 0
    is_marker = np.isin(batches["control_type"], (f.CONTROL_ABORT, f.CONTROL_COMMIT))
    return batches[is_sound & is_transactional & (is_data | is_marker)]


def events_of(batches: np.ndarray, dtype: np.dtype = EVENT) -> np.ndarray:
    """Returns EVENT[n] of BATCH[n] of one file, which come from ``transactional_batches``.

    What the file's name tells, the damage before them and the number of their records are not set. dtype:
    may have more fields than EVENT, which are 0.
    """
    events = np.zeros(len(batches), dtype=dtype)
    for name in ("producer_id", "last_offset", "producer_epoch", "control_type"):
        events[name] = batches[name]
    events["first_offset"] = events["last_base"] = batches["base_offset"]
    events["batches"] = 1
    return events


def of_one_log(events: np.ndarray, damages: int = 0) -> np.ndarray:
    """Returns TRANSACTION[m] of one log without gaps. events: EVENT[n] in the order of the files."""
    return transactions(events, np.array([damages]), np.zeros(1, dtype=np.int64))


def transactions(events: np.ndarray, damages: np.ndarray, last_stretches: np.ndarray) -> np.ndarray:
    """Returns TRANSACTION[m], by log, producer id and first event.

    events: EVENT[n], each log's in the order of the files. damages: int64[logs], damaged ranges of each log;
    last_stretches: int64[logs], the last stretch of each.
    """
    if not len(events):
        return np.zeros(0, dtype=TRANSACTION)
    is_data = events["control_type"] == f.NO_CONTROL
    # A section: what one producer wrote in one stretch, up to its next marker
    order = np.lexsort((np.arange(len(events)), events["producer_id"], events["log"]))
    section = np.cumsum(_begins(events[order], is_data[order]))
    epoch = _data_epochs(events["producer_epoch"][order], is_data[order], section)
    by_epoch = np.lexsort((np.arange(len(order)), epoch, section))
    order, section, epoch = order[by_epoch], section[by_epoch], epoch[by_epoch]
    begins = np.flatnonzero(_differs(section) | _differs(epoch))
    ends = np.append(begins[1:], len(order)) - 1
    ordered, data = events[order], is_data[order]
    is_placed = data & ~_misplaced(events)[order]
    has_data = np.logical_or.reduceat(data, begins)
    counts = np.where(np.logical_or.reduceat(is_placed, begins).repeat(ends - begins + 1), is_placed, data)

    result = np.zeros(len(begins), dtype=TRANSACTION)
    first, last = ordered[begins], ordered[ends]
    result["has_data"] = has_data
    result["begins"] = order[begins]
    for name in ("log", "producer_id"):
        result[name] = first[name]
    result["producer_epoch"] = np.where(has_data, epoch[begins], first["producer_epoch"])
    limits = np.iinfo(np.int64)
    lowest = np.minimum.reduceat(np.where(counts, ordered["first_offset"], limits.max), begins)
    highest = np.maximum.reduceat(np.where(counts, ordered["last_offset"], limits.min), begins)
    result["first_offset"], result["last_offset"] = np.where(has_data, (lowest, highest), -1)
    result["records"] = np.add.reduceat(np.where(data, ordered["records"], 0), begins)
    is_ended = last["control_type"] != f.NO_CONTROL
    result["control_type"] = last["control_type"]
    result["marker_offset"] = np.where(is_ended, last["first_offset"], -1)
    result["coordinator_epoch"] = np.where(is_ended, last["coordinator_epoch"], -1)
    is_followed = np.zeros(len(result), dtype=bool)
    is_followed[:-1] = (first["log"][1:] == first["log"][:-1]) & (
        first["producer_id"][1:] == first["producer_id"][:-1]
    )
    is_over = is_ended | is_followed | (last_stretches[first["log"]] > first["stretch"])
    result["is_over"] = is_over
    until = np.where(is_ended, last["damages"], damages[first["log"]])
    result["is_uncertain"] = (until > first["damages"]) | (is_over & ~is_ended)
    return result


def _differs(values: np.ndarray) -> np.ndarray:
    """Returns bool[n]: where a value differs from the one before; true for the first."""
    return np.concatenate([[True], values[1:] != values[:-1]])


def _begins(ordered: np.ndarray, is_data: np.ndarray) -> np.ndarray:
    """Returns bool[n]: where a section begins. ordered: events by log, producer id and position."""
    differs = np.logical_or.reduce([_differs(ordered[name]) for name in ("log", "producer_id", "stretch")])
    differs[1:] |= ~is_data[:-1]
    return differs


def _data_epochs(epochs: np.ndarray, is_data: np.ndarray, section: np.ndarray) -> np.ndarray:
    """Returns int16[n]: a data batch's epoch; for a marker the highest epoch of the data in its section."""
    lowest = np.iinfo(np.int16).min
    begins = np.flatnonzero(_differs(section))
    highest = np.maximum.reduceat(np.where(is_data, epochs, lowest), begins)
    has_data = np.logical_or.reduceat(is_data, begins)
    of_marker = np.where(has_data, highest, epochs[np.append(begins[1:], len(epochs)) - 1])
    sizes = np.diff(np.append(begins, len(epochs)))
    result: np.ndarray = np.where(is_data, epochs, of_marker.repeat(sizes))
    return result


def _misplaced(events: np.ndarray) -> np.ndarray:
    """Returns bool[n]: the events whose base offset is wrong, judged among these events alone."""
    runs = np.zeros(len(events), dtype=RUN)
    for name, of in (("first", "first_offset"), ("last", "last_offset"), ("last_base", "last_base")):
        runs[name] = events[of]
    for name in ("file_base", "file_limit", "batches"):
        runs[name] = events[name]
    runs["last"] = np.maximum(runs["first"], runs["last"])
    return misplaced(runs, events["log"])

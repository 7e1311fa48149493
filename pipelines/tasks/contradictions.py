"""Finds metadata that contradict the log around them: base offset and leader epoch lie outside the checksum.

The rules are ``udfs.batches.offsets.misplaced`` and ``udfs.batches.epochs.wrong_epochs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kafka_log_lake.udfs.batches.epochs import wrong_epochs
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT, misplaced

# Consecutive sound batches of a slice with the same leader epoch
EPOCHS = np.dtype([("position", "i8"), ("batches", "i8"), ("leader_epoch", "i4")])


@dataclass(frozen=True)
class Contradiction:
    """A batch whose metadata contradict the log around it.

    is_offset: whether the base offset does, and not the leader epoch. what: the sentence.
    """

    segment: str
    position: int
    is_offset: bool
    what: str


def epochs_of(batches: np.ndarray) -> np.ndarray:
    """Returns the series of batches of one leader epoch, in sound batches (BATCH[m]) that follow each other.

    EPOCHS[n].
    """
    epoch = batches["leader_epoch"]
    begins = np.ones(len(batches), dtype=bool)
    begins[1:] = epoch[1:] != epoch[:-1]
    at = np.flatnonzero(begins)
    rows = np.zeros(len(at), dtype=EPOCHS)
    rows["position"], rows["leader_epoch"] = batches["position"][at], epoch[at]
    rows["batches"] = np.diff(np.append(at, len(batches)))
    return rows


def contradictions(
    segments: Sequence[tuple[str, int]], runs: np.ndarray, epochs: Sequence[np.ndarray]
) -> list[Contradiction]:
    """Returns the batches of one log whose base offset or leader epoch contradicts the log around them.

    segments: URI, and base offset in the name, in order. runs: RUN of the log. epochs: EPOCHS of each one.
    """
    uris = {base: uri for uri, base in segments}
    runs = runs[runs["batches"] > 0]
    places = [
        Contradiction(
            uris[int(runs["file_base"][at])], int(runs["position"][at]), True, _offsets_text(runs, at)
        )
        for at in np.flatnonzero(misplaced(runs)).tolist()
    ]
    number = np.repeat(np.arange(len(segments)), [len(rows) for rows in epochs])
    rows = np.concatenate(epochs) if epochs else np.zeros(0, dtype=EPOCHS)
    for at in np.flatnonzero(wrong_epochs(rows["leader_epoch"]) & (rows["batches"] == 1)).tolist():
        before, epoch, after = rows["leader_epoch"][at - 1 : at + 2].tolist()
        what = f"leader epoch {epoch} is not between {before} and {after}"
        places.append(Contradiction(segments[number[at]][0], int(rows["position"][at]), False, what))
    return places


def _offsets_text(runs: np.ndarray, at: int) -> str:
    run = runs[at]
    if run["first"] < run["file_base"]:
        return f"base offset {run['first']} is below that of the file's name, {run['file_base']}"
    if at and run["first"] == run["file_base"] == runs["file_base"][at - 1]:
        return f"base offset {run['first']} matches the file name, but another batch is first"
    if run["file_limit"] != NO_LIMIT and run["last"] >= run["file_limit"]:
        return f"offsets {run['first']} to {run['last']} reach into the next file, {run['file_limit']}"
    before = f" after {runs['last'][at - 1]}" if at else " at the start of the log"
    after = f" and before {runs['first'][at + 1]}" if at + 1 < len(runs) else ""
    return f"offsets {run['first']} to {run['last']} are not{before}{after}"

"""Metadata that contradicts the log around it: base offset and leader epoch lie outside Kafka's checksum.

The rule for base offsets is ``udfs.rules.offsets.misplaced``. A leader epoch is named where the epochs of the
batches before and after it rise, and it is not between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from udfs.rules.offsets import NO_LIMIT, RUN, misplaced

# Consecutive sound batches of a slice: each begins where the one before ends, in the same leader epoch
PLACED = np.dtype(
    [("position", "i8"), ("first", "i8"), ("last", "i8"), ("batches", "i8"), ("leader_epoch", "i4")]
)


@dataclass(frozen=True)
class Contradiction:
    """A batch whose metadata contradict the log around it.

    what: the sentence. first, last: the offsets that it claims. is_offset: whether these are wrong, and not
    the leader epoch.
    """

    segment: str
    position: int
    first: int
    last: int
    is_offset: bool
    what: str


def placed(batches: np.ndarray) -> np.ndarray:
    """PLACED[n], of sound batches (BATCH[n]) that follow each other."""
    first, last, epoch = batches["base_offset"], batches["last_offset"], batches["leader_epoch"]
    begins = np.ones(len(batches), dtype=bool)
    begins[1:] = (first[1:] - 1 != last[:-1]) | (epoch[1:] != epoch[:-1])
    at = np.flatnonzero(begins)  # [] of no batch
    rows = np.zeros(len(at), dtype=PLACED)
    ends = np.append(at[1:], len(batches))[: len(at)] - 1
    rows["position"], rows["first"], rows["leader_epoch"] = batches["position"][at], first[at], epoch[at]
    rows["last"], rows["batches"] = last[ends], ends - at + 1
    return rows


def contradictions(files: Sequence[tuple[str, int, np.ndarray]]) -> list[Contradiction]:
    """Those of one log. files: of each segment its URI, the base offset in its name, PLACED[n]; in order."""
    if not sum(len(rows) for _, _, rows in files):
        return []
    number = np.concatenate([np.full(len(rows), at) for at, (_, _, rows) in enumerate(files)])
    rows = np.concatenate([rows for _, _, rows in files])
    bases = np.array([base for _, base, _ in files])
    runs = np.zeros(len(rows), dtype=RUN)
    runs["file_base"], runs["file_limit"] = bases[number], np.append(bases[1:], NO_LIMIT)[number]
    for name in ("first", "last", "batches"):
        runs[name] = rows[name]
    found = []
    is_misplaced = misplaced(runs)
    for at in np.flatnonzero(is_misplaced | _wrong_epochs(rows)).tolist():
        row, is_offset = rows[at], bool(is_misplaced[at])
        what = _offsets_text(runs, at) if is_offset else _epochs_text(rows, at)
        segment = files[number[at]][0]
        place = int(row["position"]), int(row["first"]), int(row["last"])
        found.append(Contradiction(segment, *place, is_offset, what))
    return found


def _wrong_epochs(rows: np.ndarray) -> np.ndarray:
    """bool[n]: single batches whose leader epoch is not between those before and after, which rise."""
    epoch, wrong = rows["leader_epoch"], np.zeros(len(rows), dtype=bool)
    before, own, after = epoch[:-2], epoch[1:-1], epoch[2:]
    wrong[1:-1] = (before >= 0) & (before <= after) & ((own < before) | (own > after))
    return wrong & (rows["batches"] == 1)


def _offsets_text(runs: np.ndarray, at: int) -> str:
    one = runs[at]
    if one["first"] < one["file_base"]:
        return f"base offset {one['first']} is below that of the file's name, {one['file_base']}"
    if one["file_limit"] != NO_LIMIT and one["last"] >= one["file_limit"]:
        return f"offsets {one['first']} to {one['last']} reach into the next segment, {one['file_limit']}"
    before = f"behind {runs['last'][at - 1]}" if at else "in the file"
    after = f", before {runs['first'][at + 1]}" if at + 1 < len(runs) else ""
    return f"offsets {one['first']} to {one['last']} are not {before}{after}"


def _epochs_text(rows: np.ndarray, at: int) -> str:
    before, own, after = rows["leader_epoch"][at - 1 : at + 2].tolist()
    return f"leader epoch {own} is not between {before} and {after}"

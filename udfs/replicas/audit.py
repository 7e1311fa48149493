"""Corrects what no checksum covers: base offsets and leader epochs of batches that are sound otherwise.

A batch contradicts its neighbours in the file, the same batch in other copies, or the broker's
``leader-epoch-checkpoint``. What most of them agree on is believed; where nothing does, the batch counts as
damaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from udfs.replicas.base_offsets import mend_bases
from udfs.replicas.entries import ENTRY, Copy, Hurt
from udfs.replicas.leader_epochs import Witnesses, mend_epochs
from udfs.words import counted_noun

_CONTENT = ("crc", "size", "delta", "count")  # what the bytes under the checksum say of a batch

_ROUNDS = 3  # of epochs: one that was corrected in a copy is a witness for the others


def mend(copies: Sequence[Copy], is_compacted: bool) -> list[str]:
    """Corrects base offsets and epochs in the batches of all copies of a log, in place. What is doubtful."""
    if not copies:
        return []
    for copy in copies:
        copy.entries["hurt_before"] = _hurt_before(copy)
    was_sound = {copy.number: copy.entries["is_sound"].copy() for copy in copies}
    ids = _ids(copies)
    mend_bases(copies, ids, is_compacted)
    guessed: list[str] = []
    for _ in range(_ROUNDS):
        witnesses = Witnesses(copies, ids)
        found = [mend_epochs(copy, ids[copy.number], witnesses, guessed) for copy in copies]
        if not any(found):
            break
    doubts = [
        f"the leader epochs of {counted_noun(len(guessed), 'batch')} were corrected by "
        f"leader-epoch-checkpoint alone or by the batches "
        f"next to them, which may be wrong too, first at {first}"
        for first in guessed[:1]
    ]
    for copy in copies:
        unplaced = copy.entries[was_sound[copy.number] & ~copy.entries["is_sound"]]
        _add_unplaced(copy, unplaced)
        doubts += [
            f"{counted_noun(len(unplaced), 'whole batch')} of {copy.name}: nothing says at which "
            f"offsets or in which leader epoch, the first at byte {first['position']} of its segment"
            for first in unplaced[:1]
        ]
    return doubts


def _add_unplaced(copy: Copy, entries: np.ndarray) -> None:
    """Batches of which nothing says where they belong count as damaged ranges."""
    why = "its base offset or leader epoch is wrong, and nothing corrects it"
    for entry in entries:
        place = int(entry["file"]), int(entry["position"]), int(entry["size"])
        copy.hurts.append(Hurt(*place, "unplaced", why))
    if len(entries):
        copy.entries["hurt_before"] = _hurt_before(copy)


def _ids(copies: Sequence[Copy]) -> dict[int, np.ndarray]:
    """Number of a copy -> int64[n]: numbers of its batches, the same where copies have the same content."""
    columns = [_column(copies, name) for name in _CONTENT]
    order = np.lexsort(columns)
    found = np.zeros(len(order), dtype=np.int64)
    found[order] = _groups(*(column[order] for column in columns))
    ends = np.cumsum([len(copy.entries) for copy in copies])
    parts = np.split(found, ends[:-1])
    return {copy.number: part for copy, part in zip(copies, parts, strict=True)}


def _column(copies: Sequence[Copy], name: str) -> np.ndarray:
    return np.concatenate([copy.entries[name] for copy in copies])


def _groups(*columns: np.ndarray) -> np.ndarray:
    """int64[n]: numbers of groups of equal rows that follow each other, from 0 on."""
    differs = np.zeros(max(len(columns[0]) - 1, 0), dtype=bool)
    for column in columns:
        differs |= column[1:] != column[:-1]
    return np.concatenate([np.zeros(min(len(columns[0]), 1), dtype=np.int64), np.cumsum(differs)])


def _hurt_before(copy: Copy) -> np.ndarray:
    """int32[n]: damaged ranges of the copy before each of its entries."""
    hurts = np.zeros(len(copy.hurts), dtype=ENTRY)
    hurts["file"] = [one.file for one in copy.hurts]
    hurts["position"] = [one.position for one in copy.hurts]
    both = np.concatenate([hurts, copy.entries])
    is_hurt = np.arange(len(both)) < len(hurts)
    order = np.lexsort([~is_hurt, both["position"], both["file"]])
    found = np.zeros(len(both), dtype=np.int32)
    found[order] = np.cumsum(is_hurt[order])
    return found[len(hurts) :] - ~copy.entries["is_sound"]  # a damaged batch is not damage before itself

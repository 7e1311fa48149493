"""Which base offsets of a copy's batches are wrong, and what is right.

Neighbours, the names of segments and other copies of the batch are the witnesses.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from udfs.replicas.chain import heaviest_chain
from udfs.replicas.entries import BASE_OFFSET, MOST_RELATIVE, UNPLACED, Copy
from udfs.rules.offsets import NO_LIMIT, RUN, misplaced

_FEW = 3  # batches that damage may have changed by the same number
_BOUNDS = np.dtype([("epoch", "i4"), ("base", "i8"), ("last", "i8")])


def wrong_bases(copy: Copy, ids: np.ndarray) -> np.ndarray:
    """bool[n]: batches whose base offset contradicts the file's name or their neighbours.

    ids: int64[n], the same number for the same content.
    """
    entries = copy.entries
    sound = np.flatnonzero(entries["is_sound"])
    kept = entries[sound]
    bases = np.array([one.base for one in copy.files] + [NO_LIMIT], dtype=np.int64)
    limits = bases[kept["file"] + 1]
    too_far = kept["last"] - kept["file_base"] > MOST_RELATIVE
    by_itself = (kept["last"] < kept["base"]) | (kept["base"] < 0) | too_far
    by_itself |= _without_room(kept, ids[sound], limits)
    left = kept[~by_itself]
    runs = np.zeros(len(left), dtype=RUN)
    runs["file_base"], runs["file_limit"] = left["file_base"], limits[~by_itself]
    for name, of in (("position", "position"), ("first", "base"), ("last", "last"), ("last_base", "base")):
        runs[name] = left[of]
    runs["batches"] = 1
    wrong = np.zeros(len(entries), dtype=bool)
    wrong[sound[~by_itself]] = misplaced(runs)
    claimed, is_exact = claimed_before(entries, wrong)
    wrong &= ~is_exact | (entries["base"] != claimed)  # not the one that contradicts its neighbours
    wrong[sound[by_itself]] = True
    return wrong


def _without_room(kept: np.ndarray, ids: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """bool[n]: batches that leave no room in their file for those before them, or for those behind them.

    kept: ENTRY[n], sound ones in the order of the files. ids: their contents. limits: base offset in the name
    of the next file. The log cleaner keeps the offsets of a batch, and a damaged one has one at least. Damage
    does not change many batches by the same number: where many that touch each other have no room, the file
    has others that are not its own.
    """
    n = len(kept)
    offsets = np.zeros(n, dtype=np.int64)
    once = np.unique(ids, return_index=True)[1]
    offsets[once] = np.where(kept["magic"][once] == 2, kept["delta"][once] + 1, 0)
    begins, ends = (np.searchsorted(kept["file"], kept["file"], side=side) for side in ("left", "right"))
    hurt = np.append(0, np.diff(kept["hurt_before"]) > 0)[:n] * (begins < np.arange(n))
    behind = np.cumsum(offsets + hurt)
    before = behind - offsets
    lacks = kept["base"] < kept["file_base"] + before - before[begins]
    lacks |= kept["base"] > limits - (behind[ends - 1] - before)
    touches = (kept["file"][1:] == kept["file"][:-1]) & (kept["base"][1:] == kept["last"][:-1] + 1)
    part = np.concatenate([np.zeros(min(n, 1), dtype=np.int64), np.cumsum(~touches)])
    result: np.ndarray = lacks & (np.bincount(part)[part] <= _FEW)
    return result


def without_gaps(copy: Copy, wrong: np.ndarray, is_compacted: bool) -> np.ndarray:
    """bool[n]: batches before which no offset is missing unless it is damaged.

    All of a log that is not compacted. The log cleaner notes how far it came, and leaves the last segment.
    """
    if not is_compacted:
        return np.ones(len(copy.entries), dtype=bool)
    in_last: np.ndarray = copy.entries["file"] == len(copy.files) - 1
    cleaned = copy.cleaned_before
    if cleaned is None and copy.high_watermark is not None:  # the disk's checkpoints are there: it never ran
        lacks = in_last & copy.entries["is_sound"] & (copy.entries["count"] <= copy.entries["delta"])
        cleaned = None if lacks.any() else 0
    if cleaned is None or not copy.files:
        return np.zeros(len(copy.entries), dtype=bool)
    believed = in_last & copy.entries["is_sound"] & ~wrong
    reached = np.where(believed, copy.entries["last"] + 1, copy.files[-1].base)
    before = np.maximum.accumulate(np.concatenate([[copy.files[-1].base], reached]))[:-1]
    result: np.ndarray = in_last & (before >= cleaned)
    return result


def at_gaps(copy: Copy, wrong: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """bool[n]: batches next to a gap without damage, on the side that no further batch agrees with.

    whole: of ``without_gaps``; a segment begins with the offset of its name there.
    """
    entries = copy.entries
    found = np.zeros(len(entries), dtype=bool)
    if not whole.any():
        return found
    kept = entries["is_sound"] & ~wrong & (entries["magic"] == 2)
    same = kept[1:] & kept[:-1] & (entries["hurt_before"][1:] == entries["hurt_before"][:-1])
    # the header of a damaged batch may be right: it can agree, and never contradict
    touches = ~wrong[1:] & ~wrong[:-1] & (entries["base"][1:] == entries["last"][:-1] + 1)
    gap = whole[1:] & same & (entries["base"][1:] > entries["last"][:-1] + 1)
    is_first = kept & (entries["position"] == 0)
    agrees_before = is_first & (entries["base"] == entries["file_base"])
    agrees_before[1:] |= touches
    agrees_behind = np.zeros(len(entries), dtype=bool)
    agrees_behind[:-1] = touches
    found[1:] = gap & ~agrees_behind[1:] & ~agrees_before[1:]
    found[:-1] |= gap & ~agrees_before[:-1] & agrees_behind[1:]
    found |= whole & is_first & (entries["base"] > entries["file_base"]) & ~agrees_behind
    claimed, is_exact = claimed_before(entries, wrong)
    differs = np.where(whole & is_exact, entries["base"] != claimed, entries["base"] < claimed)
    found |= kept & ~agrees_behind & differs
    return found


def claimed_before(entries: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[n], bool[n]): the offset behind a damaged batch before an entry, by its header; is it exact.

    entries: ENTRY[n], neighbours in one copy. -1 without one. The damage is that batch and nothing else, its
    header follows the batch before or the segment's name. Where the count of its records
    contradicts its last offset, it has one offset at least.
    """
    found, is_exact = np.full(len(entries), -1, dtype=np.int64), np.zeros(len(entries), dtype=bool)
    if len(entries) < 2 or entries["is_sound"].all():
        return found, is_exact
    ghost, hurts = entries[:-1], entries["hurt_before"]
    is_ghost = ~ghost["is_sound"] & (ghost["magic"] == 2)
    adjoins = (ghost["file"] == entries["file"][1:]) & (hurts[1:] == hurts[:-1] + 1)
    adjoins &= ghost["position"] + ghost["size"] == entries["position"][1:]
    follows = (ghost["position"] == 0) & (ghost["base"] == ghost["file_base"])
    before = entries["is_sound"] & ~wrong
    follows[1:] |= before[:-2] & (ghost["base"][1:] == entries["last"][:-2] + 1)
    agrees = ghost["count"] == ghost["delta"] + 1
    claim = np.where(agrees, ghost["last"], ghost["base"]) + 1
    is_there = is_ghost & adjoins & follows
    found[1:], is_exact[1:] = np.where(is_there, claim, -1), is_there & agrees
    return found, is_exact


def _touches(copy: Copy, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bool[n], bool[n]): sound batches that touch the one before; that touch the next one."""
    kept = copy.entries["is_sound"] & ~wrong
    touches = kept[1:] & kept[:-1] & (copy.entries["base"][1:] == copy.entries["last"][:-1] + 1)
    before, behind = np.zeros((2, len(kept)), dtype=bool)
    before[1:], behind[:-1] = touches, touches
    return before, behind


def _firm_bounds(copies: Sequence[Copy], wrong: Mapping[int, np.ndarray]) -> np.ndarray:
    """_BOUNDS[n], sorted: batches that touch both neighbours. The log cleaner keeps a batch's offsets."""
    found = []
    for copy in copies:
        firm = copy.entries[np.logical_and(*_touches(copy, wrong[copy.number]))]
        rows = np.zeros(len(firm), dtype=_BOUNDS)
        for name in ("epoch", "base", "last"):
            rows[name] = firm[name]
        found.append(rows)
    return np.unique(np.concatenate(found))


def near_falls(copy: Copy, wrong: np.ndarray) -> np.ndarray:
    """bool[n]: batches around places where offsets fall, in the order of the files."""
    kept = np.flatnonzero(copy.entries["is_sound"] & ~wrong)
    falls = _falls(copy, kept)
    near = np.concatenate([falls + step for step in (-1, 0, 1, 2)])
    found = np.zeros(len(copy.entries), dtype=bool)
    found[kept[near[(near >= 0) & (near < len(kept))]]] = True
    return found


def _falls(copy: Copy, kept: np.ndarray) -> np.ndarray:
    """int64[m]: places in ``kept`` behind which the next batch does not begin behind the last offset."""
    entries = copy.entries
    found: np.ndarray = np.flatnonzero(entries["base"][kept][1:] <= entries["last"][kept][:-1])
    return found


class _Around(NamedTuple):
    """What lies around an entry in its copy.

    before: the last offset before it; behind: the next base offset, None at the end of the copy. touches,
    is_touched: whether nothing can have been between, as no damage is.
    """

    before: int
    behind: int | None
    touches: bool
    is_touched: bool

    def fits(self, base: int, delta: int) -> bool:
        return self.before < base and (self.behind is None or base + delta < self.behind)


def _around(copy: Copy, wrong: np.ndarray, at: int) -> _Around:
    """By the nearest sound batches that are not wrong; a segment's name says where its first one begins.

    What lies between needs room: a batch that is wrong has its offsets, a damaged one an offset at least.
    """
    entries = copy.entries
    own, hurts = entries[at], entries["hurt_before"]
    before, behind, touches, is_touched = int(own["file_base"]) - 1, None, own["position"] == 0, False
    room = 0
    for i in range(at - 1, -1, -1):
        if entries["file"][i] != own["file"]:
            break
        if entries["is_sound"][i] and not wrong[i]:
            before, touches = int(entries["last"][i]), hurts[i] == hurts[at] and i == at - 1
            break
        room += int(entries["delta"][i]) + 1 if entries["is_sound"][i] else 1
    before, room = before + room, 0
    for i in range(at + 1, len(entries)):
        if entries["is_sound"][i] and not wrong[i]:
            behind, is_touched = int(entries["base"][i]) - room, hurts[i] == hurts[at] and i == at + 1
            break
        room += int(entries["delta"][i]) + 1 if entries["is_sound"][i] else 1
    return _Around(before, behind, bool(touches), bool(is_touched))


class Bases:
    """The base offsets of all copies of a log.

    ids: by number of a copy, int64[n], the same number for the same content. wrong: bool[n], batches whose
    base offset is not believed. doubtful: bool[m] by id, batches of which it matters where other copies have
    them. whole: bool[n], of ``without_gaps``. places: of these by id, the base offsets that are not wrong,
    and how many copies have it there.
    """

    def __init__(
        self,
        copies: Sequence[Copy],
        ids: Mapping[int, np.ndarray],
        wrong: Mapping[int, np.ndarray],
        doubtful: np.ndarray,
        whole: Mapping[int, np.ndarray],
        is_compacted: bool,
    ) -> None:
        self._copies, self._ids, self._wrong = copies, ids, wrong
        self._doubtful = doubtful
        self._whole = {number: np.append(one, False) for number, one in whole.items()}
        self._places = self._find_places()
        self._bounds = _firm_bounds(copies, wrong) if is_compacted else np.zeros(0, dtype=_BOUNDS)

    def mend(self, suspects: Mapping[int, np.ndarray]) -> None:
        """Corrects what is wrong; what can't be corrected is not sound.

        suspects: bool[n] by copy, wrong unless another copy has the batch at the same offset.
        """
        for copy in self._copies:
            wrong, ids = self._wrong[copy.number], self._ids[copy.number]
            for at in np.flatnonzero(suspects[copy.number] & ~wrong).tolist():
                wrong[at] = self._places[int(ids[at])][int(copy.entries["base"][at])] < 2
        self._places = self._find_places()
        for copy in self._copies:
            self._flag_by_others(copy)
        for copy in self._copies:
            self._flag_by_bounds(copy)
            self._flag_unordered(copy)
        self._places = self._find_places()
        for copy in self._copies:
            wrong = self._wrong[copy.number]
            left = len(wrong) + 1
            while (count := int(np.count_nonzero(wrong))) < left:
                left = count  # what was corrected is a neighbour of what is still wrong
                for at in np.flatnonzero(wrong).tolist():
                    self._mend_one(copy, at)
            copy.entries["is_sound"][wrong] = False
            copy.entries["base"][wrong] = copy.entries["last"][wrong] = UNPLACED

    def _find_places(self) -> defaultdict[int, Counter[int]]:
        """A batch that one copy has twice says nothing."""
        found: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for copy in self._copies:
            own: dict[int, list[int]] = defaultdict(list)
            ids = self._ids[copy.number]
            kept = copy.entries["is_sound"] & ~self._wrong[copy.number] & self._doubtful[ids]
            for at in np.flatnonzero(kept).tolist():
                own[int(ids[at])].append(int(copy.entries["base"][at]))
            for number, bases in own.items():
                if len(bases) == 1:
                    found[number][bases[0]] += 1
        return found

    def _flag_by_others(self, copy: Copy) -> None:
        """Flags batches that other copies have at another offset, where the neighbours here agree."""
        wrong, ids = self._wrong[copy.number], self._ids[copy.number]
        disputed = np.array(
            [number for number, bases in self._places.items() if len(bases) > 1], dtype=np.int64
        )
        for at in np.flatnonzero(copy.entries["is_sound"] & ~wrong & np.isin(ids, disputed)).tolist():
            around = _around(copy, wrong, at)
            base, delta = int(copy.entries["base"][at]), int(copy.entries["delta"][at])
            if (around.touches and around.before + 1 == base) or (
                around.is_touched and around.behind == base + delta + 1
            ):
                continue
            fitting = [one for one in self._places[int(ids[at])] if one != base and around.fits(one, delta)]
            wrong[at] = len(fitting) == 1

    def _flag_by_bounds(self, copy: Copy) -> None:
        """Flags batches of a compacted log that lie across firm ones of their epoch."""
        entries, wrong = copy.entries, self._wrong[copy.number]
        loose = entries["is_sound"] & ~wrong & ~(np.logical_or(*_touches(copy, wrong)))
        if not loose.any() or not len(self._bounds):
            return
        wanted = np.zeros(len(entries), dtype=_BOUNDS)
        wanted["epoch"], wanted["base"], wanted["last"] = entries["epoch"], entries["last"], NO_LIMIT
        at = np.searchsorted(self._bounds, wanted, side="right") - 1
        near = self._bounds[np.maximum(at, 0)]
        overlaps = (at >= 0) & (near["epoch"] == entries["epoch"]) & (near["last"] >= entries["base"])
        differs = (near["base"] != entries["base"]) | (near["last"] != entries["last"])
        wrong |= loose & overlaps & differs

    def _flag_unordered(self, copy: Copy) -> None:
        """Flags batches so that the offsets of the rest rise: few, and rather not what others confirm."""
        entries, wrong = copy.entries, self._wrong[copy.number]
        kept = np.flatnonzero(entries["is_sound"] & ~wrong)
        falls = _falls(copy, kept)
        if not len(falls):
            return
        cuts = np.unique(np.clip(np.concatenate([falls, falls + 1, falls + 2]), 0, len(kept)))
        parts = [part for part in np.split(kept, cuts) if len(part)]
        weights = [self._weight(copy, part) for part in parts]
        spans = [(int(entries["base"][part[0]]), int(entries["last"][part[-1]])) for part in parts]
        chosen = heaviest_chain(spans, weights)
        for part, is_chosen in zip(parts, chosen, strict=True):
            wrong[part] |= not is_chosen

    def _weight(self, copy: Copy, part: np.ndarray) -> int:
        """Batches of a part; more where another copy has one at the same offset, or a neighbour touches.

        The header of a damaged batch before counts as a neighbour.
        """
        if len(part) > 1:
            return 4 * len(part)
        at = int(part[0])
        base = int(copy.entries["base"][at])
        around = _around(copy, self._wrong[copy.number], at)
        confirmed = self._places[int(self._ids[copy.number][at])][base] - 1
        touching = (around.touches and around.before + 1 == base) + (
            around.is_touched and around.behind == int(copy.entries["last"][at]) + 1
        )
        return 4 + 8 * max(0, confirmed) + touching + (self._claimed(copy, at) == base)

    def _claimed(self, copy: Copy, at: int) -> int | None:
        """The base offset that the header of a damaged batch before leaves to a batch; None without one."""
        if not (self._whole[copy.number][at] and copy.hurts):
            return None
        near = slice(max(0, at - 2), at + 1)  # the damaged batch, and the one before
        claimed, is_exact = claimed_before(copy.entries[near], self._wrong[copy.number][near])
        return int(claimed[-1]) if is_exact[-1] else None

    def _mend_one(self, copy: Copy, at: int) -> None:
        """Gives a batch the base offset that another copy, or the batches around it, say."""
        entries, wrong = copy.entries, self._wrong[copy.number]
        delta = int(entries["delta"][at])
        around = _around(copy, wrong, at)
        others = self._places[int(self._ids[copy.number][at])]
        next_one = around.before + 1
        previous = next_one if around.behind is None else around.behind - delta - 1
        candidates = [base for base, _ in others.most_common()]
        whole = self._whole[copy.number]
        candidates += [next_one] * bool(around.touches and whole[at])
        candidates += [previous] * bool(around.is_touched and whole[at + 1])
        claimed = self._claimed(copy, at)
        candidates += [claimed] if claimed is not None else []
        if around.behind is not None and previous == next_one:
            candidates.append(next_one)
        alike = self._bounds[self._bounds["epoch"] == entries["epoch"][at]]
        alike = [int(one["base"]) for one in alike[alike["last"] - alike["base"] == delta]]
        alike = [one for one in alike if around.fits(one, delta)]
        candidates += alike if len(alike) == 1 else []
        base = next((one for one in candidates if around.fits(one, delta)), None)
        if base is None:
            return
        if base != entries["base"][at]:
            entries["base"][at], entries["last"][at] = base, base + delta
            entries["mended"][at] |= BASE_OFFSET
        wrong[at] = False

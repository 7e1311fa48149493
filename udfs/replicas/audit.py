"""Corrects what no checksum covers: base offsets and leader epochs of batches that are sound otherwise.

A batch contradicts its neighbours in the file, the same batch in other copies, or the broker's
``leader-epoch-checkpoint``. What two of them agree on is believed; where nothing does, the batch counts as
damaged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from udfs.replicas.entries import BASE_OFFSET, LEADER_EPOCH, Copy
from udfs.rules.offsets import NO_LIMIT, RUN, misplaced

_Key = tuple[int, int, int, int]  # what the bytes under the checksum say: checksum, size, delta, count


def mend(copies: Sequence[Copy], is_compacted: bool) -> None:
    """Corrects base offsets and epochs in the batches of all copies of a log, in place."""
    if not copies:
        return
    for copy in copies:
        copy.entries["hurt_before"] = _hurt_before(copy)
    wrong = {copy.number: _wrong_bases(copy) for copy in copies}
    if not any(found.any() for found in wrong.values()) and _agree(copies, is_compacted):
        return
    places = _places(copies, wrong)
    for copy in copies:
        _flag_by_others(copy, wrong[copy.number], places)
    places = _places(copies, wrong)
    for copy in copies:
        _mend_bases(copy, wrong[copy.number], places, is_compacted)
    epochs = _epochs_of_others(copies)
    for copy in copies:
        _mend_epochs(copy, epochs)


def _agree(copies: Sequence[Copy], is_compacted: bool) -> bool:
    """Whether nothing is in doubt: epochs rise as each file says, and all copies have each batch alike.

    Then batches need not be looked at one by one.
    """
    kept = []
    for copy in copies:
        last = copy.entries[-2:]
        if not is_compacted and len(last) == 2 and last["base"][1] != last["last"][0] + 1:
            return False
        sound = copy.sound
        sound = sound[sound["magic"] == 2]
        if (np.diff(sound["epoch"]) < 0).any():
            return False
        if copy.epochs:
            epochs, starts = (np.array(column, dtype=np.int64) for column in zip(*copy.epochs, strict=True))
            at = np.searchsorted(starts, sound["base"], side="right") - 1
            if (epochs[np.maximum(at, 0)] != sound["epoch"])[at >= 0].any():
                return False
        kept.append(sound)
    found = np.concatenate(kept)
    found = found[np.lexsort([found[name] for name in ("count", "delta", "size", "crc")])]
    same = np.ones(max(len(found) - 1, 0), dtype=bool)
    for name in ("count", "delta", "size", "crc"):
        same &= found[name][1:] == found[name][:-1]
    differs = (np.diff(found["base"]) != 0) | (np.diff(found["epoch"]) != 0)
    return not bool((same & differs).any())


def _hurt_before(copy: Copy) -> np.ndarray:
    """int32[n]: damaged ranges of the copy before each of its entries."""
    if not copy.hurts:
        return np.zeros(len(copy.entries), dtype=np.int32)
    hurts = sorted((one.file, one.position) for one in copy.hurts)
    places = zip(copy.entries["file"].tolist(), copy.entries["position"].tolist(), strict=True)
    found = np.array([bisect_right(hurts, place) for place in places], dtype=np.int32)
    return found - ~copy.entries["is_sound"]  # a damaged batch is not damage before itself


def _wrong_bases(copy: Copy) -> np.ndarray:
    """bool[n]: batches whose base offset contradicts the file's name or their neighbours."""
    entries = copy.entries
    wrong = np.zeros(len(entries), dtype=bool)
    sound = np.flatnonzero(entries["is_sound"])
    kept = entries[sound]
    bases = np.array([one.base for one in copy.files] + [NO_LIMIT], dtype=np.int64)
    runs = np.zeros(len(kept), dtype=RUN)
    runs["file_base"], runs["file_limit"] = kept["file_base"], bases[kept["file"] + 1]
    for name, of in (("position", "position"), ("first", "base"), ("last", "last"), ("last_base", "base")):
        runs[name] = kept[of]
    runs["batches"] = 1
    wrong[sound] = misplaced(runs) | (kept["last"] < kept["base"]) | (kept["base"] < 0)
    return wrong


def _key(entry: np.void) -> _Key:
    return int(entry["crc"]), int(entry["size"]), int(entry["delta"]), int(entry["count"])


def _places(copies: Sequence[Copy], wrong: dict[int, np.ndarray]) -> dict[_Key, Counter[int]]:
    """Where copies have each batch: base offsets that are not wrong, and how many copies have it there.

    A batch that one copy has twice says nothing.
    """
    found: dict[_Key, Counter[int]] = defaultdict(Counter)
    for copy in copies:
        own: dict[_Key, list[int]] = defaultdict(list)
        for entry, is_wrong in zip(copy.entries, wrong[copy.number], strict=True):
            if entry["is_sound"] and not is_wrong:
                own[_key(entry)].append(int(entry["base"]))
        for key, bases in own.items():
            if len(bases) == 1:
                found[key][bases[0]] += 1
    return found


def _neighbours(copy: Copy, wrong: np.ndarray, at: int) -> tuple[int, int | None, bool]:
    """(last offset before, base offset behind, whether both touch it) of an entry of the copy.

    The base offset behind is None at the end of the copy.
    """
    entries = copy.entries
    before, behind, touches = int(entries[at]["file_base"]) - 1, None, True
    for i in range(at - 1, -1, -1):
        if entries[i]["is_sound"] and not wrong[i]:
            before = int(entries[i]["last"])
            touches = entries[i]["hurt_before"] == entries[at]["hurt_before"] and i == at - 1
            break
    for i in range(at + 1, len(entries)):
        if entries[i]["is_sound"] and not wrong[i]:
            behind = int(entries[i]["base"])
            touches &= entries[i]["hurt_before"] == entries[at]["hurt_before"] and i == at + 1
            break
    return before, behind, bool(touches)


def _flag_by_others(copy: Copy, wrong: np.ndarray, places: dict[_Key, Counter[int]]) -> None:
    """Flags batches that other copies have at another offset, where the neighbours here agree with them."""
    for at in range(len(copy.entries)):
        entry = copy.entries[at]
        here = places.get(_key(entry)) if entry["is_sound"] and not wrong[at] else None
        if here is None or len(here) < 2:
            continue
        before, behind, _ = _neighbours(copy, wrong, at)
        base, delta = int(entry["base"]), int(entry["delta"])
        if before + 1 == base or behind == base + delta + 1:
            continue
        fitting = [one for one in here if one != base and _fits(one, delta, before, behind)]
        wrong[at] = len(fitting) == 1


def _fits(base: int, delta: int, before: int, behind: int | None) -> bool:
    return before < base and (behind is None or base + delta < behind)


def _mend_bases(copy: Copy, wrong: np.ndarray, places: dict[_Key, Counter[int]], is_compacted: bool) -> None:
    entries = copy.entries
    _flag_after_gap(copy, wrong, places, is_compacted)
    for at in np.flatnonzero(wrong).tolist():
        entry = entries[at]
        before, behind, touches = _neighbours(copy, wrong, at)
        delta = int(entry["delta"])
        others = places.get(_key(entry), Counter())
        fitting = [base for base, _ in others.most_common() if _fits(base, delta, before, behind)]
        next_one = before + 1
        is_exact = behind is not None and behind == next_one + delta + 1
        if fitting:
            base = fitting[0]
        elif is_exact or (touches and not is_compacted and (behind is None or next_one + delta < behind)):
            base = next_one
        else:
            entries["is_sound"][at] = False
            continue
        entries["base"][at], entries["last"][at] = base, base + delta
        entries["mended"][at] |= BASE_OFFSET
        wrong[at] = False


def _flag_after_gap(
    copy: Copy, wrong: np.ndarray, places: dict[_Key, Counter[int]], is_compacted: bool
) -> None:
    """Flags the last batch where it leaves a gap without damage: in a log that is not compacted none is."""
    last = len(copy.entries) - 1
    if is_compacted or last < 1 or wrong[last] or not copy.entries[last]["is_sound"]:
        return
    before, _, touches = _neighbours(copy, wrong, last)
    base = int(copy.entries[last]["base"])
    is_first_of_file = copy.entries[last]["file_base"] == base
    if touches and base > before + 1 and not is_first_of_file:
        wrong[last] = places.get(_key(copy.entries[last]), Counter())[base] < 2


# Leader epochs


def _epochs_of_others(copies: Sequence[Copy]) -> dict[tuple[_Key, int], Counter[int]]:
    """The epochs that copies have for each batch at its offset, and how many have each."""
    found: dict[tuple[_Key, int], Counter[int]] = defaultdict(Counter)
    for copy in copies:
        for entry in copy.entries[copy.entries["is_sound"]]:
            found[_key(entry), int(entry["base"])][int(entry["epoch"])] += 1
    return found


def rising(values: Sequence[int]) -> np.ndarray:
    """bool[n]: a longest part of the values, in their order, that never falls."""
    tails: list[int] = []
    at_tail: list[int] = []
    before = [-1] * len(values)
    for i, value in enumerate(values):
        place = bisect_right(tails, value)
        before[i] = at_tail[place - 1] if place else -1
        tails[place : place + 1] = [value]
        at_tail[place : place + 1] = [i]
    kept = np.zeros(len(values), dtype=bool)
    at = at_tail[-1] if at_tail else -1
    while at >= 0:
        kept[at], at = True, before[at]
    return kept


def epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int | None:
    """The epoch of an offset by (epoch, start offset) in rising order; None before the first."""
    place = bisect_right([start for _, start in epochs], offset)
    return epochs[place - 1][0] if place else None


def _mend_epochs(copy: Copy, others: dict[tuple[_Key, int], Counter[int]]) -> None:
    entries = copy.entries
    placed = np.flatnonzero(entries["is_sound"] & (entries["magic"] == 2))
    placed = placed[np.argsort(entries["base"][placed], kind="stable")]
    epochs = entries["epoch"][placed].tolist()
    kept = rising(epochs)
    noted = copy.epochs or []
    for i, at in enumerate(placed.tolist()):
        entry, epoch = entries[at], epochs[i]
        by_file = epoch_at(noted, int(entry["base"])) if noted else None
        said = others[_key(entry), int(entry["base"])]
        agree = said[epoch] - 1
        against = sum(said.values()) - said[epoch]
        if by_file is None:
            is_doubtful = against > agree
        elif by_file == epoch:
            is_doubtful = against > agree + 1
        else:
            is_doubtful = agree == 0
        kept[i] &= not is_doubtful
    for i in np.flatnonzero(~kept).tolist():
        at = int(placed[i])
        low = next((epochs[j] for j in range(i - 1, -1, -1) if kept[j]), None)
        high = next((epochs[j] for j in range(i + 1, len(placed)) if kept[j]), None)
        chosen = _chosen_epoch(copy, entries[at], low, high, others)
        if chosen == epochs[i]:
            kept[i] = True
            continue
        if chosen is None:
            entries["is_sound"][at] = False
            continue
        entries["epoch"][at], epochs[i], kept[i] = chosen, chosen, True
        entries["mended"][at] |= LEADER_EPOCH


def _chosen_epoch(
    copy: Copy,
    entry: np.void,
    low: int | None,
    high: int | None,
    others: dict[tuple[_Key, int], Counter[int]],
) -> int | None:
    """The epoch of a batch whose own is in doubt; low, high: of the batches around it."""
    if low is not None and low == high:
        return low
    own = int(entry["epoch"])

    def is_between(epoch: int) -> bool:
        return epoch >= 0 and (low is None or epoch >= low) and (high is None or epoch <= high)

    votes: Counter[int] = Counter()
    for epoch, count in others[_key(entry), int(entry["base"])].items():
        votes[epoch] += 2 * (count - (epoch == own)) + (epoch == own)
    noted = epoch_at(copy.epochs, int(entry["base"])) if copy.epochs else None
    if noted is not None:
        votes[noted] += 2
    fitting = [epoch for epoch, _ in votes.most_common() if is_between(epoch)]
    if fitting:
        return fitting[0]
    return low if low is not None else high

"""Corrects base offsets, which no checksum covers; the number of offsets of a batch is covered by one.

The base offset of a batch, less the one in the file's name, less the number of offsets of all batches
between, is the number of offsets that are missing in the file before the batch. It begins with 0, never
falls, stays the same where nothing is cleaned or damaged, and ends with what the name of the next file
leaves. Each stored base offset, here or in another copy of the batch, is a claim on that number. The heaviest
chain of claims that never falls is believed; other batches are placed where it leaves one number for them.

It is no second form of ``udfs.batches.offsets.misplaced``, which answers another question. That one judges
what is stored in one log, and says only which base offsets are wrong beyond doubt: a batch whose neighbours
are wrong too stays as it is. Here the question is which base offset a batch had. It is answered from all
copies, and with headers of damaged batches; so a base offset may be corrected that ``misplaced`` leaves
alone, and one that it rejects may be confirmed by another copy. Where neither finds a wrong one, and in what
is compacted and lost, both give the same (``tests/support/rules_held.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kafka_log_lake.pipelines.recover.chain import Claim, heaviest_chain
from kafka_log_lake.pipelines.recover.cleaned import without_gaps
from kafka_log_lake.pipelines.recover.entries import (
    BASE_OFFSET,
    ENTRY,
    MOST_RELATIVE,
    UNPLACED,
    Copy,
    concatenated,
    rows_where,
)
from kafka_log_lake.udfs.batches.offsets import NO_LIMIT

_CLAIM, _TOUCHING = 4, 1  # the weight of a claim, and that of a neighbour that it touches
_GAP = 6  # against offsets that are missing without damage: more than one claim, less than two
_NAME = 1 << 40  # the name of a file: more than all batches
_MANY = 3  # damage does not move more batches than this by the same number
_NONE = -1

# A sound batch of a copy, in the order of the files; a row for a name is before and after those of each file
_ROW = np.dtype(
    [
        ("at", "i4"),  # its place in the copy's entries; _NONE: a name
        ("id", "i4"),  # the same number for the same content; 0: a name
        ("size", "i8"),  # its offsets
        ("origin", "i8"),  # base offset if none were missing before it in the file
        ("first", "i8"),  # its claim: base offset less origin,
        ("last", "i8"),  # and the same again; more by its size in a file of which is_mixed holds
        ("weight", "i8"),  # of the claim, in all copies; 0: the names of files contradict it
        ("piece", "i4"),  # the same number where no damage is between,
        ("stretch", "i4"),  # and where no offset can be missing
        ("touches_before", "?"),
        ("touches_behind", "?"),
        ("is_mixed", "?"),  # the file holds batches that are not its own: it has no room for all
        ("is_begin", "?"),  # the name of the file that follows
    ]
)
_BOUNDS = np.dtype([("epoch", "i4"), ("base", "i8"), ("last", "i8")])


def mend_bases(copies: Sequence[Copy], ids: Mapping[int, np.ndarray], is_compacted: bool) -> None:
    """Corrects base offsets in all copies of a log, in place; marks those it can't place as not sound.

    ids: by number of a copy, int64[n], the same number for the same content.
    """
    copies = [copy for copy in copies if copy.entries["is_sound"].any()]
    if not copies:
        return
    rows = [_rows(copy, ids[copy.number], is_compacted) for copy in copies]
    bounds = np.zeros(0, dtype=_BOUNDS)
    if is_compacted:
        bounds = np.unique(np.concatenate([_firm(*pair) for pair in zip(copies, rows, strict=True)]))
        for copy, copy_rows in zip(copies, rows, strict=True):
            _drop_across(copy, copy_rows, bounds)
    claims = _Claims(rows)
    for copy, copy_rows in zip(copies, rows, strict=True):
        begins = np.flatnonzero(copy_rows["is_begin"])
        is_odd = np.logical_or.reduceat(claims.contradict(copy_rows), begins)
        for begin, end in zip(begins[is_odd], np.append(begins[1:], len(copy_rows))[is_odd], strict=True):
            file = copy_rows[begin:end]
            _write(copy, file, _with_alike(copy, file, _placed(file, claims), bounds))


def _is_legible(entries: np.ndarray) -> np.ndarray:
    """Returns bool[n]: damaged batches whose header can be read, and which are all of their damaged range."""
    is_legible = ~entries["is_sound"] & (entries["magic"] == 2) & (entries["count"] == entries["delta"] + 1)
    adjoins = entries["position"][:-1] + entries["size"][:-1] == entries["position"][1:]
    is_legible[:-1] &= adjoins & (entries["hurt_before"][1:] == entries["hurt_before"][:-1] + 1)
    is_legible[-1:] = False
    return is_legible


def _with_names(copy: Copy) -> tuple[np.ndarray, np.ndarray]:
    """Returns the batches of known size of a copy, with a row for the begin and the end of each file.

    Returns (ENTRY[n], int64[n]): the rows, and their index in the copy's entries, _NONE for a name. In
    hurt_before the damaged batches among them are not counted.
    """
    at = np.flatnonzero(copy.entries["is_sound"] | _is_legible(copy.entries))
    names = np.zeros((2, len(copy.files)), dtype=ENTRY)
    names["file"] = np.arange(len(copy.files))
    names["file_base"] = [file.base for file in copy.files]
    names["delta"], names["magic"], names["is_sound"] = -1, 2, True
    begin, end = names
    begin["base"], limit = begin["file_base"], np.append(begin["file_base"][1:], NO_LIMIT)
    is_far = limit - begin["base"] > MOST_RELATIVE
    end["base"] = np.where(is_far, begin["base"] + (MOST_RELATIVE + 1), limit)
    names["last"] = names["base"] - 1
    hurts = np.sort(np.array([hurt.file for hurt in copy.hurts], dtype=np.int64))
    for name, side in ((begin, "left"), (end, "right")):
        name["hurt_before"] = np.searchsorted(hurts, name["file"], side=side)
    entries = concatenated([begin, np.take(copy.entries, at), end])
    order = np.argsort(entries["file"], kind="stable")
    places = np.concatenate([np.full(len(begin), _NONE), at, np.full(len(end), _NONE)])[order]
    entries = np.take(entries, order)
    entries["hurt_before"] -= np.cumsum(~entries["is_sound"]) - ~entries["is_sound"]
    return entries, places


def _rows(copy: Copy, ids: np.ndarray, is_compacted: bool) -> np.ndarray:
    """Returns _ROW[n]: the sound batches of a copy between the names of its files."""
    entries, at = _with_names(copy)
    sizes, is_name = entries["delta"] + 1, at == _NONE
    is_begin = np.diff(entries["file"], prepend=-1) != 0
    is_end = np.append(is_begin[1:], True)
    file = np.cumsum(is_begin) - 1
    is_hurt = (np.diff(entries["hurt_before"], prepend=0) > 0) & ~is_begin
    reached = np.cumsum(sizes + (is_hurt & ~is_end)) - sizes  # a tail is no batch
    reached -= reached[is_begin][file]
    names_room = (entries["base"] - entries["file_base"])[is_end][file]
    is_inside = entries["is_sound"] & (entries["base"] >= entries["file_base"])
    offsets = np.where(is_inside, entries["base"] - entries["file_base"], 0)
    is_inside &= offsets <= names_room - sizes
    missing, room = offsets - reached, names_room - reached[is_end][file]
    touches = np.append(False, entries["base"][1:] == entries["last"][:-1] + 1) & ~is_hurt & ~is_begin
    run = np.cumsum(~touches)
    lacks = is_inside & (missing < 0) & (np.bincount(run, ~is_name)[run] > _MANY) & (file == file[-1])
    is_mixed = (np.bincount(file, lacks | (room < 0)) > 0)[file]
    wrong = np.zeros(len(copy.entries), dtype=bool)
    wrong[at[~is_name]] = ~is_inside[~is_name]
    whole = is_end & (not is_compacted) & (file < file[-1])
    whole[~is_name] = without_gaps(copy, wrong, is_compacted)[at[~is_name]]
    # older formats leave gaps where the log cleaner ran; with checkpoints that do not note it, it never ran
    has_no_gap = (entries["magic"] == 2) | (copy.high_watermark is not None)
    whole[1:] &= ~is_hurt[1:] & has_no_gap[1:] & has_no_gap[:-1]

    rows = np.zeros(len(entries), dtype=_ROW)
    rows["at"], rows["size"], rows["is_begin"], rows["is_mixed"] = at, sizes, is_begin, is_mixed
    rows["id"] = np.where(is_name, 0, ids[at] + 1)
    rows["origin"] = entries["file_base"] + np.where(is_mixed, 0, reached)
    rows["first"] = np.where(is_mixed, offsets, missing)
    rows["last"] = rows["first"] + np.where(is_mixed, sizes, 0)
    rows["piece"], rows["stretch"] = np.cumsum(is_hurt | is_begin), np.cumsum(~whole)
    rows["touches_before"], rows["touches_behind"] = touches, np.append(touches[1:], False)
    is_claim = is_inside & (rows["first"] >= 0) & (rows["last"] <= rows["last"][is_end][file])
    touching = rows["touches_before"].astype(np.int64) + rows["touches_behind"]
    rows["weight"] = np.where(is_name, _NAME, np.where(is_claim, _CLAIM + _TOUCHING * touching, 0))
    return rows_where(rows, entries["is_sound"])


def _firm(copy: Copy, rows: np.ndarray) -> np.ndarray:
    """Returns _BOUNDS[n]: batches that touch both neighbours. The log cleaner keeps a batch's offsets."""
    is_firm = (rows["weight"] > 0) & rows["touches_before"] & rows["touches_behind"] & (rows["id"] > 0)
    entries = copy.entries[rows["at"][is_firm]]
    firm = np.zeros(len(entries), dtype=_BOUNDS)
    for name in ("epoch", "base", "last"):
        firm[name] = entries[name]
    return firm


def _drop_across(copy: Copy, rows: np.ndarray, bounds: np.ndarray) -> None:
    """Drops claims of batches that touch no neighbour and overlap firm ones (_BOUNDS[n]) of their epoch."""
    loose = np.flatnonzero(rows["weight"] == _CLAIM)
    batches = copy.entries[rows["at"][loose]]
    wanted = np.zeros(len(batches), dtype=_BOUNDS)
    wanted["epoch"], wanted["base"], wanted["last"] = batches["epoch"], batches["last"], NO_LIMIT
    at = np.searchsorted(bounds, wanted, side="right") - 1
    if len(bounds):
        near = bounds[np.maximum(at, 0)]
        overlaps = (at >= 0) & (near["epoch"] == batches["epoch"]) & (near["last"] >= batches["base"])
        differs = (near["base"] != batches["base"]) | (near["last"] != batches["last"])
        rows["weight"][loose[overlaps & differs]] = 0


class _Claims:
    """The base offsets that are claimed for each content, and their weights summed over all copies.

    It sets the weights in the rows of each copy. Content that a copy has twice says nothing of others.
    """

    def __init__(self, copies: Sequence[np.ndarray]) -> None:
        def column(name: str) -> np.ndarray:
            return np.concatenate([rows[name] for rows in copies])

        ids, bases, weights = column("id"), column("origin") + column("first"), column("weight")
        count = int(ids.max(initial=0)) + 1
        is_twice = np.zeros(count, dtype=bool)
        for rows in copies:
            is_twice |= np.bincount(rows["id"], minlength=count) > 1
        kept = np.flatnonzero((weights > 0) & ~is_twice[ids])
        order = kept[np.lexsort((bases[kept], ids[kept]))]
        is_first = np.diff(ids[order], prepend=-1) != 0
        is_first[1:] |= np.diff(bases[order]) != 0
        group = np.cumsum(is_first) - 1
        self._bases = bases[order][is_first]
        self._weights = np.bincount(group, weights[order]).astype(np.int64)
        self._counts = np.bincount(ids[order][is_first], minlength=count)  # of the claims of an id
        self._ends = np.cumsum(self._counts)
        weights[order] = self._weights[group]
        ends = np.cumsum([len(rows) for rows in copies])
        for rows, end in zip(copies, ends.tolist(), strict=True):
            rows["weight"] = weights[end - len(rows) : end]

    def disputed(self, rows: np.ndarray) -> np.ndarray:
        """Returns bool[n]: batches to whose content another copy gives another base offset."""
        result: np.ndarray = self._counts[rows["id"]] > (rows["weight"] > 0)
        return result

    def contradict(self, rows: np.ndarray) -> np.ndarray:
        """Returns bool[n]: rows without a claim, or whose claim contradicts another one or the row before."""
        step = np.append(0, rows["first"][1:] - rows["last"][:-1])
        is_wrong = (step < 0) | ((step > 0) & (np.diff(rows["stretch"], prepend=0) == 0))
        result: np.ndarray = self.disputed(rows) | (rows["weight"] == 0) | (is_wrong & ~rows["is_begin"])
        return result

    def of(self, row: np.void, room: int) -> list[Claim]:
        """Returns the claims of a batch that fit into its file, its own first."""
        first, last, weight = (int(row[name]) for name in ("first", "last", "weight"))
        fitting = [(first, last, weight)] if weight else []
        end = self._ends[row["id"]]
        claims = slice(end - self._counts[row["id"]], end)
        for base, votes in zip(self._bases[claims].tolist(), self._weights[claims].tolist(), strict=True):
            other = base - int(row["origin"])
            if other != first and 0 <= other <= room - last + first:
                fitting.append((other, other + last - first, votes))
        return fitting


def _placed(rows: np.ndarray, claims: _Claims) -> np.ndarray:
    """Places the rows of a file: int64[n] in terms of _ROW.first; _NONE where that is unknown."""
    disputed = claims.disputed(rows)
    apart = disputed | (rows["weight"] == 0) | (rows["id"] == 0)
    differs = (rows["first"][1:] != rows["last"][:-1]) | (np.diff(rows["stretch"]) != 0)
    begins = np.flatnonzero(np.append(True, differs | apart[1:] | apart[:-1]))
    ends = np.append(begins[1:], len(rows))
    weights = np.add.reduceat(rows["weight"], begins).tolist()
    spans = zip(rows["first"][begins].tolist(), rows["last"][ends - 1].tolist(), weights, strict=True)
    options, room = [[span] for span in spans], int(rows["first"][-1])
    for at in np.flatnonzero((disputed | (rows["weight"] == 0))[begins]).tolist():
        options[at] = claims.of(rows[begins[at]], room)
    chosen = heaviest_chain(options, rows["stretch"][begins].tolist(), _GAP)
    placed = np.full(len(rows), _NONE, dtype=np.int64)
    for begin, end, number, option in zip(begins.tolist(), ends.tolist(), chosen, options, strict=True):
        if number >= 0:
            placed[begin:end] = rows["first"][begin:end] if end > begin + 1 else option[number][0]
    around = _Around(rows, placed)
    for at in np.flatnonzero(disputed & (placed != _NONE)).tolist():
        if around.is_undecided(at, claims.of(rows[at], room)):
            placed[at] = _NONE
    if not rows["is_mixed"][0]:
        around = _Around(rows, placed)
        left = np.where(around.joins_after, around.after, _NONE)
        left = np.where(around.joins_before | (around.before == around.after), around.before, left)
        placed = np.where(placed == _NONE, left, placed)
    return placed


class _Around:
    """The nearest rows before and after each row of a file whose places (int64[n]) are known.

    before, after: offsets that are missing there. joins_before, joins_after: no other offset can be missing
    between.
    """

    def __init__(self, rows: np.ndarray, placed: np.ndarray) -> None:
        n, known, order = len(rows), placed != _NONE, np.arange(len(rows))
        before = np.append(0, np.maximum.accumulate(np.where(known, order, 0))[:-1])
        after = np.append(np.minimum.accumulate(np.where(known, order, n - 1)[::-1])[::-1][1:], n - 1)
        self._rows, self._placed = rows, placed
        self.before, self.after = (placed + rows["last"] - rows["first"])[before], placed[after]
        self.joins_before, self.joins_after = (
            rows["stretch"][at] == rows["stretch"] for at in (before, after)
        )
        self._is_near = [rows["piece"][at] == rows["piece"] for at in (before, after)]

    def is_undecided(self, at: int, options: Sequence[Claim]) -> bool:
        """Returns whether the chosen claim touches nothing, and another that fits weighs as much or more."""
        first, last, weight = next(option for option in options if option[0] == self._placed[at])
        before, after = int(self.before[at]), int(self.after[at])
        touches = (self._is_near[0][at] and first == before) or (self._is_near[1][at] and last == after)
        rivals = [option for option in options if option[0] != first and option[2] >= weight]
        return not touches and any(before <= rival[0] and rival[1] <= after for rival in rivals)


def _with_alike(copy: Copy, rows: np.ndarray, placed: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Places rows also by the one firm batch (_BOUNDS[m]) of the epoch with as many offsets that fits.

    Returns int64[n], as ``_placed`` does.
    """
    around = _Around(rows, placed)
    for at in np.flatnonzero(placed == _NONE).tolist() if len(bounds) else ():
        alike = bounds[bounds["epoch"] == copy.entries["epoch"][rows["at"][at]]]
        places = alike["base"][alike["last"] - alike["base"] + 1 == rows["size"][at]] - rows["origin"][at]
        places = places[(around.before[at] <= places) & (places <= around.after[at])]
        if len(places) == 1:
            placed[at] = places[0]
    return placed


def _write(copy: Copy, rows: np.ndarray, placed: np.ndarray) -> None:
    """Corrects the entries of a file's rows, in place; marks those without a place as not sound."""
    entries, bases = copy.entries, rows["origin"] + placed
    lost = rows["at"][(placed == _NONE) & (rows["id"] > 0)]
    entries["is_sound"][lost] = False
    entries["base"][lost] = entries["last"][lost] = UNPLACED
    moved = (placed != _NONE) & (rows["id"] > 0)
    moved[moved] = bases[moved] != entries["base"][rows["at"][moved]]
    at = rows["at"][moved]
    entries["base"][at], entries["last"][at] = bases[moved], bases[moved] + entries["delta"][at]
    entries["mended"][at] |= BASE_OFFSET

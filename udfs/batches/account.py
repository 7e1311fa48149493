"""Accounts for the offsets of a log: which ones files on the disks name, and which of these are not sound.

A witness is a file, or the name of one, that says that offsets existed: segments, the broker's checkpoints,
producer snapshots, indexes, files and folders that a broker left behind, the metadata of remote storage. The
rules here are over offsets alone; ``pipelines.listing.witnesses`` reads the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from kafka_log_lake.udfs.batches.log_start import BY_SEGMENTS, CheckpointedStart, FirstEpoch, log_start
from kafka_log_lake.udfs.words import counted_noun

# States of offsets that were not read soundly
DAMAGED, ZEROS, MISSING = "damaged", "zeros", "missing"
TORN = "torn"  # in an incomplete last batch alone: still being written, or cut off
REMOTE = "remote"  # in remote storage, by all that is known, and in no segment
ASIDE = "aside"  # in a file or folder that the broker left behind, and that was passed over
NOT_READ = "not read"  # in a file that can't be read, or that was not selected
LOST = frozenset((DAMAGED, ZEROS, MISSING))

# Causes; the first two lines as the view lost_offsets names them
SEGMENT, START, END, WRONG_BASE = "missing_segment", "missing_start", "missing_end", "wrong_base_offset"
MISSING_CAUSES = (SEGMENT, START, END, WRONG_BASE)
DAMAGE = "damage"
TORN_TAIL, ZERO_FILE, ZERO_TAIL, UNREAD = "torn_tail", "zero_file", "zero_tail", "not_read"

EPOCHS = "leader-epoch-checkpoint"
LOG_START, HIGH_WATERMARK = "log-start-offset-checkpoint", "replication-offset-checkpoint"
RECOVERY_POINT = "recovery-point-offset-checkpoint"
REMOTE_METADATA = "__remote_log_metadata"


@dataclass(frozen=True)
class Unseen:
    """A range of offsets of a log that a witness names, and that were not read soundly.

    last: None where nothing tells it. state: as above. cause: of missing ones. is_certain: whether records
    were there, by what a witness says. detail: why they were not read, in words; "" for the words of the
    cause. witness: the file, or the kind of file, that names them; "" for the segments around. empty:
    segments among them without a batch. seek_to: the offset at which a consumer goes on, None without one.
    """

    first: int
    last: int | None
    empty: int = 0
    cause: str = SEGMENT
    is_certain: bool = True
    seek_to: int | None = None
    state: str = MISSING
    detail: str = ""
    witness: str = ""

    @property
    def count(self) -> int:
        """Returns the number of offsets; 0 where the last one is not known."""
        return 0 if self.last is None else self.last - self.first + 1

    @property
    def is_lost(self) -> bool:
        """Returns whether the offsets are lost: damaged, zeros or missing."""
        return self.state in LOST

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, with ``why`` in place of ``detail``."""
        fields = {name: value for name, value in asdict(self).items() if name != "detail"}
        return {**fields, "why": self.why}

    @property
    def last_text(self) -> str:
        """Returns the last offset with thousands separators, or ``the end`` where it is not known."""
        return "the end" if self.last is None else f"{self.last:,}"

    @property
    def why(self) -> str:
        """Returns in words why the offsets were not read."""
        if self.detail:
            return self.detail
        if self.cause == WRONG_BASE:
            return "a batch has a wrong base offset: its records are there, under other offsets"
        return (
            f"{counted_noun(self.empty, 'segment')} without a batch" if self.empty else "no segment has them"
        )


class Leftover(NamedTuple):
    """A file, or a partition folder, that a broker left behind and that was passed over.

    name: path of the file or folder. kind: deleted, swap or cleaned of a file; delete, stray or future of a
    folder. base: lowest base offset in it. length: bytes of its segments. topic_id: of a folder, None if
    unknown.
    """

    name: str
    kind: str
    base: int
    length: int
    topic_id: str | None = None


class RemoteRange(NamedTuple):
    """The offsets of a segment in remote storage whose copy was finished and that was not deleted."""

    first: int
    last: int


@dataclass(frozen=True)
class Witnesses:
    """What the files next to a log's segments, and above its folder, say of it. None: no file says it.

    epochs: (epoch, start offset) of ``leader-epoch-checkpoint``, rising; None without the file, or where it
    can't be read. first_batch_epoch: leader epoch of the first batch on the disk, which is asked for where
    the epochs begin after it; -1 for none. log_start, recovery_point, high_watermark, cleaned_before: of the
    checkpoint files; offsets that are the first not covered. snapshots: offsets in the names of producer
    snapshots. orphans: base offsets of indexes whose ``.log`` is not there. indexed: the offset after the
    last entry of the index of the last segment. aside: what was left behind. is_tiered: whether the topic has
    remote storage; None unknown. remote: of it; None where no metadata of remote storage was read;
    has_all_remote: whether it names the log, and all of it could be read. problems: files that can't be
    read, and why.
    """

    epochs: tuple[tuple[int, int], ...] | None = None
    log_start: int | None = None
    recovery_point: int | None = None
    high_watermark: int | None = None
    cleaned_before: int | None = None
    snapshots: tuple[int, ...] = ()
    orphans: tuple[int, ...] = ()
    indexed: int | None = None
    aside: tuple[Leftover, ...] = ()
    is_tiered: bool | None = None
    remote: tuple[RemoteRange, ...] | None = None
    has_all_remote: bool = True
    problems: tuple[str, ...] = ()
    first_batch_epoch: int = -1

    @property
    def first_epoch_start(self) -> int | None:
        """Returns the start offset of the first epoch, or None; deletions move it to the log start."""
        return self.epochs[0][1] if self.epochs else None

    @property
    def last_epoch_start(self) -> int | None:
        """Returns the start offset of the last epoch, or None; the log reached it when the epoch began."""
        return self.epochs[-1][1] if self.epochs else None

    @property
    def named_end(self) -> int | None:
        """Returns the highest offset that files next to the segments say the log had reached, or None.

        An offset has 64 bits: no broker gives a file the name of a larger one.
        """
        names = (self.last_epoch_start, self.indexed, *self.snapshots, *self.orphans)
        return max((offset for offset in names if offset is not None and offset < 1 << 63), default=None)

    def start_of(self, first_file: int) -> int | None:
        """Returns the log start offset by the checkpoint files; None where none of them says it.

        first_file: base offset of the first segment. The rule is ``udfs.batches.log_start``. That a
        checkpoint file has no line of the log says nothing here: it had none before the first segment went.
        """
        noted = None if self.log_start is None else CheckpointedStart(self.log_start)
        first = FirstEpoch(*self.epochs[0]) if self.epochs else None
        start = log_start(first_file, noted, first, self.first_batch_epoch)
        return None if start.witness == BY_SEGMENTS else start.offset


NO_WITNESSES = Witnesses()


@dataclass(frozen=True)
class Account:
    """The offsets of one log: where it begins and ends, and which offsets between were not read soundly.

    start: the first offset of the log, by its checkpoints, else by its first segment. end: the offset after
    the last one that anything names. unseen: what of these was not read soundly, by offset. unexplained:
    offsets before the first segment of which no file says whether they were deleted or are lost. witnesses:
    what files say.
    """

    start: int
    end: int
    unseen: tuple[Unseen, ...] = ()
    unexplained: tuple[int, int] | None = None
    witnesses: Witnesses = NO_WITNESSES

    @property
    def aside(self) -> tuple[Leftover, ...]:
        """Returns the files and folders that a broker left behind and that were passed over."""
        return self.witnesses.aside

    @property
    def is_sound(self) -> bool:
        """Returns whether no offset is lost. Some may be elsewhere, or not read: ``is_whole``."""
        return not any(unseen.is_lost for unseen in self.unseen)

    @property
    def is_whole(self) -> bool:
        """Returns whether everything that any file names was read soundly."""
        return not (self.unseen or self.aside)

    def among(self, first: int = 0, last: int | None = None) -> list[Unseen]:
        """Returns the ranges not read soundly that overlap ``first`` to ``last`` (None: the end)."""
        return [
            unseen
            for unseen in self.unseen
            if (last is None or unseen.first <= last) and (unseen.last is None or unseen.last >= first)
        ]


def account_of(
    start: int,
    end: int,
    witnesses: Witnesses = NO_WITNESSES,
    within: Iterable[Unseen] = (),
    tail: Unseen | None = None,
) -> Account:
    """Returns the account of a log, from what was read of its segments and what its witnesses say.

    start: base offset in the name of its first segment. end: the offset after its last sound batch, or the
    base offset of its last segment if that is higher. within: what was not read soundly between. tail: what
    the last segment ends in if that is no batch; zeros after batches count where a witness names offsets
    there.
    """
    before, after = before_start(start, witnesses), after_end(end, witnesses)
    if tail is not None and after:
        after[0] = replace(after[0], detail=f"{tail.detail}; {after[0].detail}")
        named = (after[-1].last or end) + 1
        tail = None if tail.last is None or tail.last < named else replace(tail, first=max(named, tail.first))
    if tail is not None and tail.cause == ZERO_TAIL:
        tail = None
    unseen = [*before, *within, *after, *([] if tail is None else [tail])]
    unseen.sort(key=lambda range_: (range_.first, range_.last is None, range_.last or 0))
    ends = [end, *(range_.last + 1 for range_ in unseen if range_.last is not None)]
    noted = witnesses.start_of(start)
    return Account(
        start if noted is None else noted,
        max(ends),
        tuple(unseen),
        (0, start - 1) if noted is None and start > 0 and not before else None,
        witnesses,
    )


def before_start(start: int, witnesses: Witnesses) -> list[Unseen]:
    """Returns the offsets below the base offset ``start`` of the first segment that a witness names.

    Retention and DeleteRecords move the first entry of ``leader-epoch-checkpoint`` to the log start
    (``LeaderEpochFileCache.truncateFromStartAsyncFlush``): where that entry, or the log start that is noted,
    is not below the first segment, what lay before was deleted.
    """
    noted = witnesses.start_of(start)
    orphans = [orphan for orphan in witnesses.orphans if orphan < start]
    if noted is None and not orphans:
        return []
    first = min(orphans) if noted is None else noted
    if first >= start:
        return []
    remote = [(max(r.first, first), min(r.last, start - 1)) for r in witnesses.remote or ()]
    unseen = []
    for low, high, is_remote in _split(first, start - 1, remote):
        if is_remote:
            detail = "in remote storage alone; its objects were not read"
            unseen.append(
                Unseen(low, high, cause=START, state=REMOTE, detail=detail, witness=REMOTE_METADATA)
            )
        else:
            unseen.append(_at_start(low, high, start, witnesses, orphans))
    return unseen


def _at_start(low: int, high: int, start: int, witnesses: Witnesses, orphans: Sequence[int]) -> Unseen:
    """Returns offsets before the first segment, not named by the metadata of remote storage, as a range."""
    epoch_start, noted = witnesses.first_epoch_start, witnesses.log_start
    by_epochs = epoch_start is not None and epoch_start < start
    if by_epochs:
        witness = f"{EPOCHS} begins at {epoch_start:,}"
    elif noted is not None:
        witness = f"the checkpoint's log start offset is {noted:,}"
    else:
        witness = f"an index of offset {min(orphans):,} has no segment"
    # a broker notes a log start that is no higher than the first segment for remote storage alone
    is_tiered = witnesses.is_tiered if witnesses.is_tiered is not None else noted == 0 or None
    if is_tiered and (witnesses.remote is None or not witnesses.has_all_remote) and not orphans:
        lack = (
            f"no {REMOTE_METADATA} is here"
            if witnesses.remote is None
            else f"{REMOTE_METADATA} is damaged, or names nothing of the log here"
        )
        detail = f"{witness}: in remote storage, if anywhere; {lack}"
        return Unseen(low, high, cause=START, is_certain=False, state=REMOTE, detail=detail, witness=witness)
    aside = [
        leftover
        for leftover in witnesses.aside
        if leftover.kind == "deleted" and low <= leftover.base <= high
    ]
    if aside:
        names = counted_noun(len(aside), "file")
        detail = f"{witness}; {names} .log.deleted next to the segments may hold them (--include-deleted)"
        return Unseen(low, high, cause=START, is_certain=False, state=ASIDE, detail=detail, witness=witness)
    if by_epochs or orphans:
        may_be_remote = noted is not None and noted < start and is_tiered is not False
        where = "they are lost, or in remote storage" if may_be_remote else "no retention explains it"
        if is_tiered and witnesses.remote is not None:
            where = f"{REMOTE_METADATA} does not name them either"
        detail = f"offsets {low:,} to {high:,} are gone; {where} ({witness})"
        return Unseen(low, high, cause=START, is_certain=not may_be_remote, detail=detail, witness=witness)
    detail = f"{witness}: the first segment is lost, deleted since, or in remote storage"
    return Unseen(low, high, cause=START, is_certain=False, detail=detail, witness=witness)


def _split(first: int, last: int, covered: Iterable[tuple[int, int]]) -> list[tuple[int, int, bool]]:
    """Splits first to last into (first, last, whether a range of ``covered`` has these offsets)."""
    ranges: list[tuple[int, int, bool]] = []
    at = first
    for low, high in sorted(covered):
        if high < at:
            continue
        if low > at:
            ranges.append((at, low - 1, False))
        begin = ranges.pop()[0] if ranges and ranges[-1][2] and low <= at else max(low, at)
        ranges.append((begin, high, True))
        at = high + 1
    return ranges if at > last else [*ranges, (at, last, False)]


def after_end(end: int, witnesses: Witnesses) -> list[Unseen]:
    """Returns the ranges of offsets from ``end`` on, the end of the log as read, that a witness names."""
    orphans = [orphan for orphan in witnesses.orphans if orphan > end]
    marks: list[tuple[int | None, bool, str]] = [
        (witnesses.high_watermark, True, "the checkpoint's high watermark is"),
        (witnesses.last_epoch_start, True, f"the last entry of {EPOCHS} begins at"),
        (max(witnesses.snapshots, default=None), True, "a producer snapshot is of offset"),
        (witnesses.indexed, True, "the index of the last segment leads up to"),
        (max(orphans, default=None), True, "an index without its segment begins at"),
        (witnesses.recovery_point, False, "the checkpoint's recovery point is"),
    ]
    unseen = []
    for offset, is_certain, words in marks:
        if offset is None or offset <= end:
            continue
        witness = f"{words} {offset:,}"
        file = "the checkpoint file" if "checkpoint" in words else "that file"
        detail = f"{witness}: the end of the log is lost, or {file} was copied later than the segment"
        aside = [
            leftover
            for leftover in witnesses.aside
            if leftover.kind == "deleted" and end <= leftover.base < offset
        ]
        if aside:
            detail += f"; {counted_noun(len(aside), 'file')} .log.deleted may hold them (--include-deleted)"
        unseen.append(
            Unseen(end, offset - 1, cause=END, is_certain=is_certain, detail=detail, witness=witness)
        )
        end = offset
    return unseen

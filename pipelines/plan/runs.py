"""Plans a job: what each listed segment needs, in bounded runs, and the rows that go.

The listing and the ledger are Arrow columns in this process; a Python object is made only of a segment that
has to be decided or decoded. ``pipelines.plan.segment_actions`` holds the rules of one segment, ``obsolete``
those of segments and folders that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.plan import ledger
from kafka_log_lake.pipelines.plan.landed import outlived
from kafka_log_lake.pipelines.plan.ledger import NOTHING_DECODED, LedgerRow, Partition
from kafka_log_lake.pipelines.plan.obsolete import (
    Copies,
    Obsolete,
    gone_segments,
    missing_from,
    overlapping,
    rewritten,
    twice_warnings,
)
from kafka_log_lake.pipelines.plan.scope import outside
from kafka_log_lake.pipelines.plan.segment_actions import (
    Action,
    Seen,
    must_compare,
    next_action,
    stay_if_same,
)
from kafka_log_lake.pipelines.plan.slices import Segment
from kafka_log_lake.udfs.decoder.decoded import ALL, Scope
from kafka_log_lake.udfs.storage.fingerprint import TO_CHECK_SCHEMA, FileMatch

_CHUNK = 1 << 14
_CHECKED = 1 << 17  # segments whose fingerprints are checked together
_ACTIONS = tuple(Action)
_NEW, _UNCHANGED, _GO_ON = (_ACTIONS.index(a) for a in (Action.NEW, Action.UNCHANGED, Action.GO_ON))
# What a ledger row tells of a segment that nothing was decoded of
_OF_SEGMENT = (
    *("topic", "partition", "partition_dir", "segment", "file_base_offset"),
    *("length", "modified", "log_start_offset", "topic_id"),
)

# TO_CHECK_SCHEMA -> FileMatch of each row, in its order
Check = Callable[[pa.Table], list[FileMatch]]


@dataclass(frozen=True)
class Rules:
    """What a plan depends on besides listing and ledger.

    check: compares files with fingerprints. is_gone: whether a file or folder is there no more, by its URI.
    is_requested: whether ``--redecode`` names a segment; None without it. compare_all: ``--verify-content``.
    drops_missing: whether rows of every segment go that the sources do not have, also those that retention
    would have deleted. scope: the records that are requested. are_known_unread: bool[n], whether the listing
    alone says that segments hold the same bytes as before; takes their rows of the listing and of the ledger.
    """

    check: Check
    is_gone: Callable[[str], bool]
    is_requested: Callable[[str], bool] | None = None
    compare_all: bool = False
    one_copy: bool = False
    drops_missing: bool = False
    scope: Scope = ALL
    are_known_unread: Callable[[pa.Table, pa.Table], np.ndarray] = lambda seen, was: np.zeros(
        was.num_rows, dtype=bool
    )


@dataclass
class Plan:
    """What a job has to do.

    segments: the wanted rows of the listing, columns ``action`` (a place in Action) and ``known`` (a row of
    the ledger, -1 for none). left_out: the same, those that hold nothing of ``scope``. moving: where
    rows of gone segments may go, and nothing is left out of what takes their place. unreadable: URI -> why.
    """

    segments: pa.Table
    left_out: pa.Table
    known: pa.Table
    obsolete: Obsolete
    scope: Scope = ALL
    moving: set[Partition] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._todo = ledger.kept(self.segments, self.segments.column("action").to_numpy() != _UNCHANGED)

    @property
    def found(self) -> int:
        """Returns the number of segments that were requested."""
        return int(self.segments.num_rows)

    @property
    def planned(self) -> int:
        """Returns the number of segments to decode."""
        return int(self._todo.num_rows)

    @property
    def unchanged(self) -> int:
        return self.found - self.planned

    @property
    def touched(self) -> int:
        """Returns how many unchanged segments have another modification time than when they were decoded."""
        same = self.segments.filter(pc.equal(self.segments.column("action"), _UNCHANGED))
        same = same.filter(pc.greater_equal(same.column("known"), 0))
        before = self.known.column("modified").take(same.column("known"))
        return pc.sum(pc.not_equal(same.column("modified"), before)).as_py() or 0

    @property
    def new_bytes(self) -> int:
        """Returns the bytes that came since the last run.

        That is the growth of known segments, and all bytes of segments to decode anew.
        """
        grew = self._todo.filter(pc.equal(self._todo.column("action"), _GO_ON))
        others = self._todo.filter(pc.not_equal(self._todo.column("action"), _GO_ON))
        before = self.known.column("length").take(grew.column("known"))
        growth = pc.max_element_wise(pc.subtract(grew.column("length"), before), 0)
        return sum(pc.sum(column).as_py() or 0 for column in (growth, others.column("length")))

    @property
    def has_changes(self) -> bool:
        """Says whether a run changes the lake: there is something to decode, or to note, or rows that go."""
        is_new = pc.less(self.left_out.column("known"), 0)
        return bool(self.planned or pc.any(is_new).as_py() or self.obsolete.rest())

    def known_counts(self, name: str) -> dict[str, int]:
        """Returns by segment a count of its ledger row that is above 0, of segments whose rows stay.

        name: the column of the count.
        """
        stays = pc.is_in(self.segments.column("action"), pa.array([_UNCHANGED, _GO_ON], pa.int8()))
        places = self.segments.filter(stays).column("known")
        rows = self.known.select(["segment", name]).take(places.filter(pc.greater_equal(places, 0)))
        counted = rows.filter(pc.greater(rows.column(name), 0)).to_pydict()
        return dict(zip(counted["segment"], counted[name], strict=True))

    def known_in_part(self) -> tuple[int, int]:
        """Returns how many segments stay decoded in part, and of how many nothing is decoded."""
        every = pa.concat_tables([self.segments, self.left_out])
        stays = every.filter(pc.equal(every.column("action"), _UNCHANGED)).column("known")
        left_out = self.known.column("left_out").take(stays.filter(pc.greater_equal(stays, 0)))
        new = pc.sum(pc.less(self.left_out.column("known"), 0)).as_py() or 0
        undecoded = pc.sum(pc.equal(left_out, NOTHING_DECODED)).as_py() or 0
        return pc.sum(pc.greater(left_out, 0)).as_py() or 0, undecoded + new

    def new_left_out(self, run_id: str, decoded_at: int) -> Iterator[LedgerRow]:
        """Yields ledger rows of segments that are left out, and that the ledger does not know yet."""
        new = self.left_out.filter(pc.less(self.left_out.column("known"), 0))
        for chunk in new.select(_OF_SEGMENT).to_batches(_CHUNK):
            for row in chunk.to_pylist():
                row |= {"run_id": run_id, "decoded_at": decoded_at, "scope": self.scope.condition}
                yield LedgerRow(**row, left_out=NOTHING_DECODED)

    def runs(self, max_files: int, max_bytes: Callable[[], int]) -> Iterator[list[Segment]]:
        """Yields the segments to decode, a bounded run at a time, by folder and base offset.

        At least one a run.
        max_bytes: returns the bytes of the run that comes next.
        """
        run: list[Segment] = []
        size = 0
        for segment in self._planned():
            if run and (len(run) == max_files or size + segment.planned_bytes > max_bytes()):
                yield run
                run, size = [], 0
            run.append(segment)
            size += segment.planned_bytes
        if run:
            yield run

    def _planned(self) -> Iterator[Segment]:
        for begin in range(0, self._todo.num_rows, _CHUNK):
            chunk = self._todo.slice(begin, _CHUNK)
            places = chunk.column("known")
            was = ledger.rows(self.known.take(places.filter(pc.greater_equal(places, 0))))
            for row in chunk.drop_columns(["wanted"]).to_pylist():
                known, action = row.pop("known"), _ACTIONS[row.pop("action")]
                before = next(was) if known >= 0 else None
                requested = ALL if (row["topic"], row["partition"]) in self.moving else self.scope
                yield Segment(**row, action=action, was=before, scope=_scope(before, requested))


def make_plan(listing: Listing, known: pa.Table, rules: Rules) -> Plan:
    """Returns the plan of a job.

    known: the ledger (``ledger.read``), empty for a new lake.
    """
    wanted = ledger.kept(listing.segments, listing.segments.column("wanted").to_numpy())
    copies = Copies(wanted, known, rules.is_gone, rules.one_copy)
    if rules.one_copy:
        wanted = wanted.filter(
            pc.is_in(wanted.column("partition_dir"), pa.array(sorted(copies.kept), pa.string()))
        )
    places = _places(wanted.column("segment"), known.column("segment"))
    _check_partitions(wanted, known, places)
    missing = missing_from(listing, known, places)
    if rules.drops_missing:
        gone = rewritten(listing, known)
    else:
        gone = [g for g in gone_segments(missing, listing, known) if rules.is_gone(g.row.segment)]
    moving = {segment.row.log[:2] for segment in gone} | {row.log[:2] for row in copies.leaving}
    is_outside = outside(wanted, places, listing, known, rules.scope)
    is_outside[_are_of(wanted, moving)] = False
    actions, unreadable = _actions(wanted, known, np.where(is_outside, -1, places), rules, moving)
    landed = np.flatnonzero((actions == _NEW) & wanted.column("landed_at").is_valid().to_numpy())
    if len(landed):
        over = landed[outlived(wanted.take(pa.array(landed)), known)]
        actions[over], is_outside[over] = _UNCHANGED, False
    actions[is_outside] = _UNCHANGED
    segments = wanted.append_column("action", pa.array(actions)).append_column("known", pa.array(places))
    twice = () if rules.drops_missing else overlapping(missing)
    copies.warnings += twice_warnings([pair for pair in twice if rules.is_gone(pair[0].segment)])
    unchanged = places[(actions == _UNCHANGED) & (places >= 0)] if moving else places[:0]
    stay = (row for row in ledger.rows(known.take(pa.array(unchanged))) if row.log[:2] in moving)
    obsolete = Obsolete(gone, copies, stay)
    left_out, segments = ledger.kept(segments, is_outside), ledger.kept(segments, ~is_outside)
    return Plan(segments, left_out, known, obsolete, rules.scope, moving, copies.warnings, unreadable)


def _check_partitions(wanted: pa.Table, known: pa.Table, places: np.ndarray) -> None:
    """Raises a UserError for a segment that the ledger knows as one of another topic or partition.

    Only ``--topic`` and ``--partition`` can name a segment anew: its rows would count for both.
    """
    at = np.flatnonzero(places >= 0)
    columns = ["topic", "partition"]
    now, was = wanted.select(columns).take(pa.array(at)), known.select(columns).take(pa.array(places[at]))
    same = pc.and_(*(pc.equal(now.column(name), was.column(name)) for name in columns))
    for place in places[at[~same.to_numpy()]][:1].tolist():
        row = known.slice(place, 1).to_pylist()[0]
        raise UserError(
            f"{row['segment']} is in this lake as topic {row['topic']}, partition {row['partition']}: "
            "pass these as --topic and --partition, or decode it into another lake"
        )


def _places(names: pa.ChunkedArray, among: pa.ChunkedArray) -> np.ndarray:
    """Returns int64[n]: the place of each name among others, -1 where it has none."""
    places = pc.index_in(names, value_set=among)
    return np.asarray(places.fill_null(-1).to_numpy(), dtype=np.int64)


def _are_of(wanted: pa.Table, partitions: set[Partition]) -> np.ndarray:
    """Returns bool[n]: which segments are of some topic-partitions."""
    if not partitions:
        return np.zeros(wanted.num_rows, dtype=bool)
    columns = (wanted.column(name).to_pylist() for name in ("topic", "partition"))
    return np.array([place in partitions for place in zip(*columns, strict=True)], dtype=bool)


# What each segment needs


def _actions(
    wanted: pa.Table, known: pa.Table, places: np.ndarray, rules: Rules, moving: set[Partition]
) -> tuple[np.ndarray, dict[str, str]]:
    """Returns int8[n], a place in Action for each wanted segment, and the unreadable ones with a reason."""
    actions = np.full(wanted.num_rows, _ACTIONS.index(Action.NEW), dtype=np.int8)
    unreadable: dict[str, str] = {}
    listed = np.full(known.num_rows, -1)
    at = np.flatnonzero(places >= 0)
    listed[places[at]] = at
    for begin in range(0, known.num_rows, _CHECKED):
        chunk = listed[begin : begin + _CHECKED]
        is_listed = chunk >= 0
        if not is_listed.any():
            continue
        chunk = chunk[is_listed]
        was, seen = known.slice(begin, _CHECKED).filter(pa.array(is_listed)), wanted.take(pa.array(chunk))
        actions[chunk], failed = _decide(seen, was, rules, moving)
        unreadable.update(dict.fromkeys(failed, "it can't be opened"))
    return actions, unreadable


def _decide(
    seen: pa.Table, was: pa.Table, rules: Rules, moving: set[Partition]
) -> tuple[np.ndarray, list[str]]:
    """Returns int8[n], a place in Action for each known segment, and the names of those that can't be read.

    seen: rows of the listing. was: those of the ledger, in the same order.
    """
    marks = _marks(seen, was, rules)
    is_requested = np.zeros(was.num_rows, dtype=bool)
    if rules.is_requested is not None:
        is_requested[:] = [rules.is_requested(name) for name in was.column("segment").to_pylist()]
    stays = stay_if_same(seen, was) & ~is_requested & np.array([mark is FileMatch.SAME for mark in marks])
    actions = np.full(was.num_rows, _UNCHANGED, dtype=np.int8)
    rest = np.flatnonzero(~stays)
    seen, was = seen.take(pa.array(rest)), was.take(pa.array(rest))
    columns = seen.select([field.name for field in fields(Seen)])
    files, rows = [Seen(**row) for row in columns.to_pylist()], list(ledger.rows(was))
    marks = [marks[place] for place in rest]
    again = [i for i, match in enumerate(zip(files, rows, marks, strict=True)) if must_compare(*match)]
    if again and not rules.compare_all:
        compared = rules.check(_to_check(seen, was, whole=True).take(pa.array(again, pa.int64())))
        for i, mark in zip(again, compared, strict=True):
            marks[i] = mark
    for place, file, row, mark in zip(rest, files, rows, marks, strict=True):
        requested = ALL if row.log[:2] in moving else rules.scope
        # in part, and records may be requested that were left out when it was decoded
        is_more = row.left_out > 0 and _scope(row, requested) != Scope.parse(row.scope)
        is_wanted = bool(is_requested[place]) or is_more
        actions[place] = _ACTIONS.index(next_action(file, row, mark, is_wanted))
    return actions, [
        row.segment for row, mark in zip(rows, marks, strict=True) if mark is FileMatch.UNREADABLE
    ]


def _scope(was: LedgerRow | None, requested: Scope) -> Scope:
    """Returns the scope to decode a segment in: records that an earlier run requested stay."""
    return requested if was is None or was.is_left_out else Scope.parse(was.scope).hull(requested)


def _marks(seen: pa.Table, was: pa.Table, rules: Rules) -> list[FileMatch]:
    """Returns how the files match their fingerprints, and all their bytes if ``compare_all`` is set."""
    if rules.compare_all:
        return rules.check(_to_check(seen, was, whole=True))
    is_read = ~rules.are_known_unread(seen, was)
    marks = iter(rules.check(_to_check(seen, was, whole=False).filter(pa.array(is_read))))
    return [next(marks) if must_read else FileMatch.SAME for must_read in is_read]


def _to_check(seen: pa.Table, was: pa.Table, whole: bool) -> pa.Table:
    """Returns rows of TO_CHECK_SCHEMA for the segments.

    whole: compare all bytes too.
    """
    content = was.column("content_crc32c") if whole else pa.nulls(was.num_rows, pa.int64())
    files = pc.coalesce(seen.column("file"), was.column("segment"))
    columns = [files, was.column("decoded_bytes"), was.column("fingerprint"), content]
    return pa.table(columns, schema=TO_CHECK_SCHEMA)

"""Record batches of a copy as rows of header fields and checksums, by which copies are compared.

A batch has the same bytes on every replica. Its base offset, length and leader epoch (bytes 0 to 15) lie
outside its checksum, so they can be wrong in a batch that is sound otherwise: ``audit`` compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.kernels.framing import UNKNOWN_OFFSET
from kafka_log_lake.udfs.spark.protocol import SliceReport

# What of a batch was corrected: bits of ENTRY.mended
BASE_OFFSET, LEADER_EPOCH, LENGTH = 1, 2, 4
MENDED_WORDS = {BASE_OFFSET: "base offset", LEADER_EPOCH: "leader epoch", LENGTH: "length"}

# Of an offset in a segment, less the base offset in its name (LogSegment.canConvertToRelativeOffset)
MOST_RELATIVE = (1 << 31) - 1

UNPLACED = -1  # base and last offset of a batch of which nothing says where it belongs

# A batch of a copy, in the order of the files
ENTRY = np.dtype(
    [
        ("copy", "i4"),  # number of the copy
        ("file", "i4"),  # number of the segment in the copy
        ("file_base", "i8"),  # base offset in the segment's name
        ("position", "i8"),  # byte in the segment
        ("size", "i8"),  # bytes, by what its checksum confirms
        ("base", "i8"),  # base offset, corrected where it was wrong
        ("last", "i8"),  # last offset
        ("epoch", "i4"),  # leader epoch, corrected where it was wrong; -1: of magic 0 and 1
        ("delta", "i8"),  # last less base
        ("crc", "i8"),  # checksum as stored, unsigned
        ("count", "i4"),  # records by the header; -1: of magic 0 and 1
        ("attributes", "i4"),
        ("producer_id", "i8"),  # -1: none
        ("producer_epoch", "i2"),
        ("base_sequence", "i4"),
        ("max_timestamp", "i8"),  # ms since 1970 UTC; -1: none
        ("magic", "i1"),
        ("mended", "i1"),  # bits of what was corrected
        ("is_sound", "?"),  # False: the checksum is wrong, only the header is known
        ("hurt_before", "i4"),  # damaged ranges of the copy before it, in the order of the files
    ]
)

_IDENTITY = np.dtype([(name, "i8") for name in ("base", "crc", "size")])

DELETED = "deleted"  # state of a copy that is a .log.deleted file: it says nothing of which history is true

# Reasons of a CopyDamage that is no damage: a broker cuts off what was not written to the end
TAILS = TORN, ZEROS = "torn", "zeros"


@dataclass(frozen=True)
class CopyDamage:
    """A damaged range of a segment, or a tail that is cut or zero.

    first, last: offsets that its header claims; None where there is no header to read.
    """

    file: int
    position: int
    size: int
    reason: str
    detail: str
    first: int | None = None
    last: int | None = None


class SegmentFile(NamedTuple):
    """A segment file of a copy. modified: microseconds since 1970 UTC."""

    uri: str
    base: int
    length: int
    modified: int


class Absent(NamedTuple):
    """Offsets that a copy should have, in a file or object that can't be read. why: its name, and the
    reason.
    """

    first: int
    last: int
    why: str


@dataclass
class Copy:
    """One copy of a partition: its batches and what the broker wrote next to them.

    name: of the source, with the folder's suffix where it is not a live log. broker_id, directory_id: of its
    log directory, None where ``meta.properties`` has none. state: live, future, delete,
    stray; deleted: a ``.log.deleted`` file by itself; tier: what lies in tiered storage. epochs: entries of
    leader-epoch-checkpoint (epoch, start offset), None without a readable file; has_whole_epochs: whether
    each of its lines is one. log_start, high_watermark, recovery_point, cleaned_before: entries of the
    checkpoint files, None without one. orphans: offsets of indexes whose segment is not there. snapshots:
    producer snapshots (ENTRY of ``producer_snapshot``) by the offset after the log that they were made of.
    unbelieved: what files say and batches contradict. unreadable: segments that could not be read, and why;
    absent: the offsets of remote ones.
    """

    number: int
    name: str
    broker_id: int | None
    folder: str
    state: str
    topic_id: str | None
    files: list[SegmentFile] = field(default_factory=list)
    entries: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=ENTRY))
    hurts: list[CopyDamage] = field(default_factory=list)
    epochs: list[tuple[int, int]] | None = None
    has_whole_epochs: bool = True
    log_start: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    cleaned_before: int | None = None
    orphans: list[int] = field(default_factory=list)
    snapshots: dict[int, np.ndarray] = field(default_factory=dict)
    unbelieved: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)
    directory_id: str | None = None

    @property
    def sound(self) -> np.ndarray:
        """Returns ENTRY[m]: batches whose checksum is right, by offset."""
        return by_offset(rows_where(self.entries, self.entries["is_sound"]))

    @property
    def first_file(self) -> int | None:
        """Returns the base offset of the first segment; None without one."""
        return min((file.base for file in self.files), default=None)


def entries_of(batches: np.ndarray, is_sound: bool = True) -> np.ndarray:
    """Makes ENTRY[n] of BATCH[n]; leaves copy and file unset, and the last offset of wrappers for later."""
    rows = np.zeros(len(batches), dtype=ENTRY)
    for name in ("position", "size", "count", "attributes", "producer_id", "producer_epoch"):
        rows[name] = batches[name]
    for name, of in (("crc", "crc_stored"), ("epoch", "leader_epoch"), ("base_sequence", "base_sequence")):
        rows[name] = batches[of]
    rows["magic"], rows["max_timestamp"] = batches["magic"], batches["max_timestamp"]
    is_v2 = batches["magic"] == f.MAGIC_V2
    rows["delta"] = np.where(is_v2, np.maximum(batches["last_offset_delta"], 0), 0)
    is_unread = ~is_v2 & (batches["base_offset"] == UNKNOWN_OFFSET)
    rows["base"] = np.where(is_unread, batches["last_offset"], batches["base_offset"])
    # past int64 it wraps, as the offset of no real batch
    rows["last"] = np.where(is_v2, rows["base"] + rows["delta"], batches["last_offset"])
    rows["is_sound"] = is_sound
    return rows


def rows_where(entries: np.ndarray, is_chosen: np.ndarray) -> np.ndarray:
    """Returns the rows (ENTRY[n] or BATCH[n]) that are chosen (bool[n]); not copied if all are.

    numpy's ``compress`` and ``take`` copy whole rows, an index in brackets copies field by field.
    """
    chosen: np.ndarray = entries if is_chosen.all() else np.compress(is_chosen, entries)
    return chosen


def concatenated(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Joins all parts to one ENTRY[n], copying whole rows."""
    rows = np.dtype((np.void, ENTRY.itemsize))
    return np.concatenate([np.zeros(0, dtype=rows), *(part.view(rows) for part in parts)]).view(ENTRY)


def by_offset(entries: np.ndarray) -> np.ndarray:
    """Sorts ENTRY[n] by base offset; does not copy it if it is sorted."""
    bases = entries["base"]
    ordered: np.ndarray = entries
    if not (bases[1:] >= bases[:-1]).all():
        ordered = np.take(entries, np.argsort(bases, kind="stable"))
    return ordered


def are_among(entries: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns bool[n]: which of ENTRY[n] are among the others (ENTRY[m]), by ``identities``."""
    is_among: np.ndarray = pc.is_in(_keys(entries), value_set=_keys(others)).to_numpy(zero_copy_only=False)
    return is_among


def identities(entries: np.ndarray) -> np.ndarray:
    """Returns what is the same of a batch in every copy: base offset, checksum and size of ENTRY[n]."""
    rows = np.zeros(len(entries), dtype=_IDENTITY)
    for name in _IDENTITY.names or ():
        rows[name] = entries[name]
    return rows


def _keys(entries: np.ndarray) -> pa.Array:
    """Returns the identities of ENTRY[n] as bytes: Arrow hashes them 10 times faster than numpy sorts."""
    buffers = [None, pa.py_buffer(identities(entries))]
    return pa.Array.from_buffers(pa.binary(_IDENTITY.itemsize), len(entries), buffers)


@dataclass
class SliceHeaders:
    """The headers of one slice's batches.

    path: a file with ENTRY[n], None where there are no batches. hurts: the slice's damaged ranges, of file 0.
    """

    report: SliceReport
    path: str | None = None
    hurts: list[CopyDamage] = field(default_factory=list)

"""Offsets that no segment of a log has: a segment in the middle is missing, or has lost its bytes.

What is known of each segment decides: its row of the ledger, or the totals of a scan. The view
``lost_offsets`` knows every batch, and the causes of all ranges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.command.terminal import counted_noun
from pipelines.plan import ledger


@dataclass(frozen=True)
class Extent:
    """What a segment covers. first, last: offsets of its sound batches, None without any.

    is_damaged: whether it may hold more than that, in damage or because it was not decoded.
    """

    file_base_offset: int
    first: int | None
    last: int | None
    records: int
    is_damaged: bool = False
    ends_in_damage: bool = False

    @property
    def has_holes(self) -> bool:
        """Whether the log cleaner, and not damage, has removed records."""
        if self.is_damaged or self.last is None:
            return False
        first = self.file_base_offset
        return self.first != first or self.last - first + 1 > self.records


@dataclass(frozen=True)
class Missing:
    """Offsets that no segment has. empty: segments among them without a batch."""

    first: int
    last: int
    empty: int

    @property
    def why(self) -> str:
        return (
            f"{counted_noun(self.empty, 'segment')} without a batch" if self.empty else "no segment has them"
        )


def missing_ranges(extents: Sequence[Extent]) -> list[Missing]:
    """The missing offsets between the segments of a log, by offset; none of a log that was compacted."""
    if any(one.has_holes for one in extents):
        return []
    found, empty = [], 0
    following = extents[0].file_base_offset if extents else 0
    in_damage = False
    for one in extents:
        in_damage |= one.last is None and one.is_damaged
        if one.last is None:
            empty += 1
            continue
        if one.file_base_offset > following and not in_damage:
            found.append(Missing(following, one.file_base_offset - 1, empty))
        following, empty, in_damage = max(following, one.last + 1), 0, one.ends_in_damage
    return found


def of_ledger(rows: pa.Table) -> list[tuple[str, Missing]]:
    """The missing offsets of the logs in the ledger, each with ``<topic>-<partition>``."""
    rows = rows.sort_by([("partition_dir", "ascending"), ("file_base_offset", "ascending")])
    folder = rows.column("partition_dir").combine_chunks().dictionary_encode().indices.to_numpy()
    base = rows.column("file_base_offset").to_numpy()
    end = np.where(rows.column("end_offset").is_valid(), rows.column("end_offset").fill_null(0), base - 1)
    is_gap = (folder[1:] == folder[:-1]) & (base[1:] > end[:-1] + 1)
    logs: dict[str, list[ledger.LedgerRow]] = defaultdict(list)
    for row in ledger.rows(rows.filter(pa.array(np.isin(folder, folder[1:][is_gap])))):
        logs[row.partition_dir].append(row)
    return [
        (f"{log[0].topic}-{log[0].partition}", one)
        for log in logs.values()
        for one in missing_ranges([_extent(row) for row in log])
    ]


def _extent(row: ledger.LedgerRow) -> Extent:
    damage = row.damaged > 0 or row.left_out != 0, row.ends_in_damage
    return Extent(row.file_base_offset, row.first_offset, row.end_offset, row.records, *damage)

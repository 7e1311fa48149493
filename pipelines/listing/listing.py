"""Lists the segments of the sources: names, lengths and times. Nothing here reads a segment's bytes.

This process lists local folders and object stores, Spark other file systems; the rules for names are the
same. A million files take some 150 MB, as Arrow columns.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafka_log_lake.pipelines.listing.checkpoints import Checkpoints
from kafka_log_lake.pipelines.listing.leftovers import PassedOver
from kafka_log_lake.pipelines.listing.naming import (
    SWAP_SUFFIX,
    is_noted,
    left_state,
)
from kafka_log_lake.pipelines.listing.swaps import Completed
from kafka_log_lake.pipelines.listing.uris import canonical
from kafka_log_lake.pipelines.listing.witnesses import ListedLog, WitnessFiles
from kafka_log_lake.udfs.batches.account import NO_WITNESSES
from kafka_log_lake.udfs.batches.noted_start import log_start_from
from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.storage.byte_source import path_of_uri

if TYPE_CHECKING:
    from kafka_log_lake.udfs.batches.log_start import LogStart

LISTING_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("partition_dir", pa.string()),
        ("segment", pa.string()),
        ("file", pa.string()),
        ("file_base_offset", pa.int64()),
        ("length", pa.int64()),
        ("modified", pa.int64()),
        ("has_successor", pa.bool_()),
        ("log_start_offset", pa.int64()),
        ("topic_id", pa.string()),
        ("landed_at", pa.int64()),
        ("wanted", pa.bool_()),
    ]
)


@dataclass
class Listing:
    """The segments of the sources, and what was skipped.

    segments: LISTING_SCHEMA, by folder and base offset. It holds all segments of each partition folder;
    ``wanted`` is False for those that no source names. A ``.log.deleted`` file is a log of its own: its
    ``partition_dir`` is its URI, as its records may be in other segments of its folder too, or contradict
    those. modified, landed_at: microseconds since 1970 UTC;
    landed_at is null unless the bytes come from ``raw_segments``. file: the swap file that holds a segment's
    bytes, or the list of its pieces, as a URI; null where the segment does.
    replaced: URIs of segments that swap files take the place of.
    skipped: reason -> number of folders, or of files (``naming.counts_folders``).
    unreadable: URI of a folder or file that could not be read -> why.
    partial: URIs of folders of which not every file could be listed.
    not_requested: topics with segments that the filters exclude.
    passed_over: what a broker left behind, of topics that are requested.
    checkpoints, witnesses: what the broker noted of the logs, above their folders and in them; of local
    folders alone.
    starts: folder -> where its log begins for consumers, as far as ``log_starts`` has read or was told it.
    tier_report, segment_places: rows of these tables; None and () without ``--tier``.
    """

    segments: pa.Table = field(default_factory=LISTING_SCHEMA.empty_table)
    skipped: Counter[str] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)
    not_requested: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    passed_over: list[PassedOver] = field(default_factory=list)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    witnesses: WitnessFiles = field(default_factory=WitnessFiles)
    starts: dict[str, LogStart] = field(default_factory=dict)
    tier_report: list[dict[str, Any]] | None = None
    segment_places: Sequence[dict[str, Any]] = ()

    @property
    def has_wanted(self) -> bool:
        """Says whether a source names any segment."""
        return bool(self.segments.column("wanted").to_numpy().any())

    @property
    def log_dirs(self) -> set[str]:
        """Returns the local folders above those of wanted segments."""
        folders = pc.unique(self._wanted.column("partition_dir")).to_pylist()
        return {os.path.dirname(path) for uri in folders if (path := path_of_uri(uri)) is not None}

    def has_topic(self, topic: str) -> bool:
        """Says whether a source names a segment of a topic."""
        return bool(pc.any(pc.equal(self._wanted.column("topic"), topic)).as_py())

    @property
    def swap_files(self) -> int:
        """Returns the number of wanted segments whose bytes are in swap files."""
        return pc.sum(pc.ends_with(self._wanted.column("file"), SWAP_SUFFIX)).as_py() or 0

    @property
    def _wanted(self) -> pa.Table:
        return self.segments.filter(self.segments.column("wanted"))

    def noted_logs(self) -> dict[str, ListedLog]:
        """Returns by folder the logs that can be compared with what the broker noted of them."""
        if not (self.checkpoints.found or self.witnesses.found):
            return {}
        columns = {name: self.segments.column(name) for name in LISTING_SCHEMA.names}
        folders = columns["partition_dir"].to_pylist()
        last = {folder: at for at, folder in enumerate(folders)}
        not_wanted = set(itertools.compress(folders, ~columns["wanted"].to_numpy()))
        read, noted, begin = {*last, *columns["file"].to_pylist()}, dict[str, ListedLog](), 0
        for folder, at in last.items():
            first, begin = begin, at + 1
            if folder in not_wanted or folder in self.partial or left_state(folder) == "deleted":
                continue
            row = {name: column[at].as_py() for name, column in columns.items()}
            place = row["topic"], row["partition"]
            checkpoints = self.checkpoints if is_noted(folder, read) else Checkpoints()
            start = columns["file_base_offset"][first].as_py()
            witnesses = self.witnesses.of(folder, *place, start, checkpoints, row["topic_id"])
            aside = tuple(left for left in witnesses.aside if canonical(left.name) not in read)
            witnesses = replace(witnesses, aside=aside)
            if witnesses != NO_WITNESSES:
                noted[folder] = ListedLog(witnesses, row["segment"], row["length"])
        return noted

    def log_starts(self) -> dict[str, LogStart]:
        """Returns by folder where the logs of local folders begin for consumers; reads it once."""
        columns = [(name, "first") for name in ("topic", "partition", "segment")]
        first = self.segments.group_by("partition_dir", use_threads=False).aggregate(columns)
        listed = set(first.column("partition_dir").to_pylist())
        for row in first.to_pylist():
            folder = row["partition_dir"]
            path = path_of_uri(row["segment_first"])
            if path is not None and folder not in self.partial and folder not in self.starts:
                place = row["topic_first"], row["partition_first"]
                noted = self.checkpoints.noted_start(folder, *place) if is_noted(folder, listed) else None
                self.starts[folder] = log_start_from(path, noted)
        return self.starts

    def note(self, folder: str, done: Completed) -> None:
        """Notes what swap files did to the segments of a folder, by its URI."""
        self.replaced |= {f"{folder}/{name}" for name in done.replaced}
        self.skipped.update(+done.skipped)
        self.unreadable |= done.unreadable


_ORDER = ("partition_dir", "file_base_offset")
_by_folder_and_base_offset = itemgetter(*(LISTING_SCHEMA.get_field_index(name) for name in _ORDER))

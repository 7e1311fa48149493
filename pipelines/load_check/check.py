"""Finds the internal logs among the sources, and says of each where a loader stops (``stops``)."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.pipelines.load_check.found import (
    METADATA,
    OFFSETS,
    SHARE,
    TRANSACTIONS,
    Record,
    Stop,
    Unloadable,
)
from kafka_log_lake.udfs.storage.byte_source import path_of_uri
from kafka_log_lake.udfs.values.internal.releases import LOADERS, RELEASES

_CONFIGS = re.compile(r"(.*[-._])?connect[-._]configs?")
_COLUMNS = ("offset", "key", "value", "is_control")
# A log above it is not replayed: it would take minutes, and the memory of its records. It counts the files,
# and what they expand to: their columns and _RECORD_BYTES a record
_MOST_BYTES, _RECORD_BYTES = 256 << 20, 64


@dataclass
class Check:
    """What a check found. logs: how many were replayed. warnings: logs that were not, or not in full."""

    logs: int = 0
    unloadable: list[Unloadable] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_loading(listing: Listing, loaders: Sequence[str] = LOADERS) -> Check:
    """Replays the internal logs of a listing as loaders do, and returns where each stops.

    loaders: of LOADERS, in their order.
    """
    logs: dict[tuple[str, int, str], list[tuple[int, str, int]]] = defaultdict(list)
    names = ("topic", "partition", "partition_dir", "segment", "file_base_offset", "length", "wanted")
    rows = [row for row in listing.segments.select(names).to_pylist() if _is_internal(row["topic"])]
    asked = {row["partition_dir"] for row in rows if row["wanted"]}
    elsewhere = set()
    for row in rows:  # a loader reads the whole log, also where one file of it is named
        path = path_of_uri(row["segment"])
        if row["partition_dir"] not in asked:
            continue
        if path is None:
            elsewhere.add(row["partition_dir"])
        else:
            place = row["topic"], row["partition"], row["partition_dir"]
            logs[place].append((row["file_base_offset"], path, row["length"]))
    check = Check()
    if elsewhere:
        count = counted_noun(len(elsewhere), "internal log")
        check.warnings.append(f"{count} not on a local disk: not replayed")
    for place, files in sorted(logs.items()):
        size = sum(length for _, _, length in files)
        if size > _MOST_BYTES:
            text = f"{place[0]}-{place[1]} has {size_text(size)} and was not replayed: it may not load"
            check.warnings.append(text)
            continue
        damages: list[object] = []
        try:
            stops_ = [*_stops_in(place, [path for _, path, _ in sorted(files)], loaders, damages)]
        except _TooLargeError:
            text = f"{place[0]}-{place[1]} expands to more than {size_text(_MOST_BYTES)} and was not replayed"
            check.warnings.append(f"{text}: it may not load")
            continue
        check.unloadable += (Unloadable(*place, stop) for stop in stops_)
        check.logs += 1
        if damages:
            text = f"{place[0]}-{place[1]} was replayed without what is damaged: a broker may stop there"
            check.warnings.append(text)
    return check


def _is_internal(topic: str) -> bool:
    return topic in (OFFSETS, TRANSACTIONS, SHARE, METADATA) or _CONFIGS.fullmatch(topic) is not None


def _stops_in(
    place: tuple[str, int, str], paths: Sequence[str], loaders: Sequence[str], damages: list[object]
) -> Iterator[Stop]:
    from kafka_log_lake.pipelines.load_check.stops import (  # definitions, which few scans need
        stops,
        stops_of_connect,
    )

    topic, _, folder = place
    if topic == METADATA:
        yield from _of_metadata(local_path(folder) or "", paths, loaders, damages)
    elif topic.startswith("__"):
        yield from stops(topic, list(_records(paths, damages)), loaders)
    else:
        yield from stops_of_connect(list(_records(paths, damages)))


def _of_metadata(
    folder: str, paths: Sequence[str], loaders: Sequence[str], damages: list[object]
) -> Iterator[Stop]:
    """Yields the stops of a metadata log, which is loaded from its newest snapshot on."""
    from kafka_log_lake.pipelines.listing.metadata_log import is_whole, snapshot_end, snapshots
    from kafka_log_lake.pipelines.load_check.stops import stops

    snapshot = next(filter(is_whole, reversed(snapshots(folder))), None)
    end = snapshot_end(snapshot)
    held = [
        Record(end - 1, record.key, record.value)
        for record in _records([snapshot] if snapshot else [], damages)
    ]
    after = [record for record in _records(paths, damages) if record.offset >= end]
    first = min((int(os.path.basename(path)[:20]) for path in paths), default=0)
    if first > end:
        why = f"the log begins at {first}, and no snapshot reaches that offset"
        remedy = "copy the newest .checkpoint file of another controller into the folder"
        yield Stop(first, why, f"{RELEASES[0]} to {RELEASES[-1]}", "", remedy)
        return
    for stop in stops(METADATA, [*held, *after], loaders):
        is_held = snapshot is not None and stop.offset < end
        why = f"{stop.why} (in {os.path.basename(snapshot or '')})" if is_held else stop.why
        yield stop._replace(why=why)


class _TooLargeError(Exception):
    """Raised where the records of a log take more than _MOST_BYTES."""


def _records(paths: Iterable[str], damages: list[object]) -> Iterator[Record]:
    """Yields the records of files without control records; those that can't be read are left out.

    Raises _TooLargeError.
    """
    from kafka_log_lake.udfs.files import decode_segment  # the decoder, which few scans need
    from kafka_log_lake.udfs.storage.byte_source import SourceError

    size = 0
    for path in paths:
        try:
            for batch in decode_segment(path, columns=_COLUMNS, on_damage=damages.append):
                size += batch.nbytes + _RECORD_BYTES * batch.num_rows
                if size > _MOST_BYTES:
                    raise _TooLargeError
                columns = (batch.column(name).to_pylist() for name in _COLUMNS)
                for offset, key, value, is_control in zip(*columns, strict=True):
                    if not is_control:
                        yield Record(offset, key, value)
        except (OSError, SourceError) as error:
            damages.append(error)

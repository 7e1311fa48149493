"""Says whether a group coordinator, or a worker of Connect, could load its topic from these disks.

What stops one is named with the release that it stops, and so is a log that loads now and would not after the
log cleaner ran (``udfs.values.internal.loading``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.scan.findings import Findings, Stop, Unloadable
from kafka_log_lake.udfs.storage.byte_source import path_of_uri

OFFSETS = "__consumer_offsets"
_CONFIGS = re.compile(r"(.*[-._])?connect[-._]configs?")
_COLUMNS = ("offset", "key", "value", "is_control")
# A log above it is not replayed: a scan would take much longer by it
_MOST_BYTES = 256 << 20
# Places up to which the log cleaner may come, of each log
_CLEANINGS = 8


@dataclass(frozen=True)
class _Record:
    offset: int
    key: bytes | None
    value: bytes | None


def add_unloadable(findings: Findings, listing: Listing) -> None:
    """Adds what a loader of ``__consumer_offsets`` or of Connect's configurations would stop at.

    A log that is too large to replay gets a warning.
    """
    logs: dict[tuple[str, int, str], list[tuple[int, str, int]]] = defaultdict(list)
    wanted = listing.segments.filter(listing.segments.column("wanted"))
    names = ("topic", "partition", "partition_dir", "segment", "file_base_offset", "length")
    for row in wanted.select(names).to_pylist():
        path = path_of_uri(row["segment"])
        if path is not None and (row["topic"] == OFFSETS or _CONFIGS.fullmatch(row["topic"])):
            place = row["topic"], row["partition"], row["partition_dir"]
            logs[place].append((row["file_base_offset"], path, row["length"]))
    for place, files in sorted(logs.items()):
        size = sum(length for _, _, length in files)
        if size > _MOST_BYTES:
            findings.warnings.append(
                f"{place[0]}-{place[1]} has {size_text(size)} and was not replayed: it may not load"
            )
            continue
        records = [record for _, path, _ in sorted(files) for record in _records(path)]
        check = _of_groups if place[0] == OFFSETS else _of_connect
        findings.unloadable += (Unloadable(*place, one) for one in check(records))


def _records(path: str) -> Iterator[_Record]:
    """Yields the records of a segment without control records; those that can't be read are left out."""
    from kafka_log_lake.udfs.files import decode_segment  # the decoder, which few scans need
    from kafka_log_lake.udfs.storage.byte_source import SourceError

    try:
        for batch in decode_segment(path, columns=_COLUMNS, on_damage="ignore"):
            columns = (batch.column(name).to_pylist() for name in _COLUMNS)
            for offset, key, value, is_control in zip(*columns, strict=True):
                if not is_control:
                    yield _Record(offset, key, value)
    except (OSError, SourceError):
        return


_PASSES = (
    "it loads again once the log cleaner has come to the end: until then let the leader stay where it is"
)
_OF_GROUP = (
    "a later release may load it; else move the group's records out of the log, with the broker stopped"
)


def _of_groups(records: Sequence[_Record]) -> Iterator[Stop]:
    stop = _stops_at(records, is_strict=False)
    if stop is not None:
        yield Stop(*stop, "4.1 to 4.4", _issue(stop[1]), _OF_GROUP)
        return
    stop = _stops_at(records, is_strict=True)
    if stop is not None:
        yield Stop(*stop, "4.1.0", "KAFKA-19862", "start it with 4.1.2 or later")
    for number in range(1, _CLEANINGS + 1):
        end = len(records) * number // _CLEANINGS
        for drops_tombstones in (False, True):
            stop = _stops_at([*cleaned(records[:end], drops_tombstones), *records[end:]], is_strict=False)
            if stop is not None:
                passes = _stops_at(cleaned(records, drops_tombstones=True), is_strict=False) is None
                remedy = _PASSES if passes else _OF_GROUP
                yield Stop(*stop, "4.1 to 4.4", _issue(stop[1]), remedy, True)
                return


def _issue(why: str) -> str:
    return "KAFKA-21117" if "is not a" in why else "KAFKA-19862" if "is owned" in why else "KAFKA-21102"


def cleaned(records: Sequence[_Record], drops_tombstones: bool) -> list[_Record]:
    """Returns what the log cleaner leaves of records: the last one of each key."""
    last = {record.key: record.offset for record in records}
    kept = [record for record in records if last[record.key] == record.offset]
    return [record for record in kept if record.value is not None or not drops_tombstones]


def _stops_at(records: Iterable[_Record], is_strict: bool) -> tuple[int, str] | None:
    from kafka_log_lake.udfs.values.internal.loading import GroupReplay
    from kafka_log_lake.udfs.values.internal.topics import record_reader

    read, replay = record_reader(OFFSETS), GroupReplay(is_strict)
    for record in records:
        why = replay.add(read(record.key, record.value))
        if why is not None:
            return record.offset, why
    return None


def _of_connect(records: Sequence[_Record]) -> Iterator[Stop]:
    """Yields the commits of tasks that a worker ignores: they lie before their connector's configuration."""
    known: set[str] = set()
    ignored: dict[str, int] = {}
    for record in records:
        kind, _, connector = (record.key or b"").decode(errors="replace").partition("-")
        if kind == "connector":
            (known.discard if record.value is None else known.add)(connector)
        elif kind == "commit" and record.value is not None:
            if connector in known:
                ignored.pop(connector, None)
            else:
                ignored[connector] = record.offset
    for connector, offset in ignored.items():
        if connector in known:
            why = f"the tasks of connector {connector} lie before its configuration: a worker ignores them"
            remedy = f"send the configuration of {connector} again, with a change: its tasks are written anew"
            yield Stop(offset, why, "4.1 to 4.4", "KAFKA-17719", remedy)

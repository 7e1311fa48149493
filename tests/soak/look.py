"""What a lake holds, read without Spark: its published tables, what the view gives of them, and each version
of each table by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.sql.database import open_database
from tests.soak.decoded import (
    BATCH,
    DAMAGE,
    LEDGER,
    RECORD,
    Row,
    committed,
    holds_a_merged_segment,
    pick,
    rows_of,
    transactions,
)
from tests.soak.policy import Known, Tables
from tests.support.logs import TABLES

Log = tuple[str, int, str]

_ROWS = {"records": RECORD, "batches": BATCH, "quarantine": DAMAGE}

_TRANSACTION = (
    "producer_id",
    "producer_epoch",
    "first_offset",
    "last_offset",
    "records",
    "marker_offset",
    "outcome",
    "outcome_uncertain",
    "holds_last_stable_offset",
)
_SHOWN = 6


@dataclass
class Held:
    """Rows that count, by segment or log; ``left``: table -> rows that do not count."""

    ledger: dict[str, dict[str, Any]]
    rows: dict[str, dict[str, list[Row]]]
    transactions: dict[Log, list[Row]]
    committed: dict[str, list[int]]
    left: dict[str, int]


def read(lake: Path) -> Held:
    opened = published_tables(str(lake))
    tables = {name: opened[name].to_pyarrow_table() for name in TABLES[:5]}
    ledger = {row["segment"]: row for row in tables["segments"].to_pylist()}
    left: dict[str, int] = {}
    rows: dict[str, dict[str, list[Row]]] = {}
    for name, columns in _ROWS.items():
        by_segment: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in tables[name].select([*columns, "segment"]).to_pylist():
            by_segment[row["segment"]].append(row)
        rows[name] = {segment: pick(own, columns) for segment, own in by_segment.items()}
        left[name] = sum(len(own) for segment, own in by_segment.items() if segment not in ledger)
    found: dict[Log, list[dict[str, Any]]] = defaultdict(list)
    for row in tables["transactions"].to_pylist():
        found[row["topic"], row["partition"], row["partition_dir"]].append(row)
    transactions = {log: pick(own, _TRANSACTION) for log, own in found.items()}
    if len(ledger) != tables["segments"].num_rows:
        left["segments"] = tables["segments"].num_rows - len(ledger)
    return Held(ledger, rows, transactions, _committed(lake), left)


def _committed(lake: Path) -> dict[str, list[int]]:
    """Offsets of the view ``committed_records``, by segment."""
    statement = 'SELECT segment, "offset" FROM committed_records'
    found: dict[str, list[int]] = defaultdict(list)
    with open_database(str(lake), statement, threads=1) as database:
        for segment, offset in database.execute(statement).fetchall():
            found[segment].append(offset)
    return found


def either(one: Known, old: Known | None, new: Known | None) -> Known:
    """A segment that is in its state of before a run or in that of after it."""
    may_be = [content for state in (new, old) if state for content in state.may_be]
    return replace(one, may_be=may_be, may_go=one.may_go or old is None or new is None)


def differences(held: Held, tables: Tables, is_healthy: bool = True) -> list[str]:
    """What a lake holds against what it must; ``tables`` learns which of two states that may be is there."""
    for uri in [uri for uri, one in tables.known.items() if one.may_go and uri not in held.ledger]:
        del tables.known[uri]
    found = [f"segment {uri}: not in the tables" for uri in sorted(tables.known.keys() - held.ledger.keys())]
    found += [
        f"segment {uri}: must not be in the tables"
        for uri in sorted(held.ledger.keys() - tables.known.keys())
    ]
    for uri in sorted(tables.known.keys() & held.ledger.keys()):
        found += _of_segment(tables.known[uri], held)
    if found:
        return found
    found = _of_logs(held, tables)
    if is_healthy:
        found += [f"{name}: {count} rows that do not count" for name, count in held.left.items() if count]
    return found


# What makes a row of a table the only one of its kind
_IDENTITIES = {
    "segments": ("segment",),
    "records": ("segment", "batch_position", "offset"),
    "batches": ("segment", "position"),
    "quarantine": ("segment", "position"),
    "transactions": ("partition_dir", "producer_id", "producer_epoch", "first_offset", "marker_offset"),
    "raw_segments": ("segment", "chunk_position"),
}


@dataclass
class Versions:
    """Reads each version of each table plainly, as any reader does: no row twice, and of each segment its
    rows of before the run or of after it, whole."""

    lake: Path
    seen: dict[str, int] = field(default_factory=dict)

    def differences(self, before: Tables, after: Tables) -> list[str]:
        """Of the versions since the last call. before, after: what the tables must hold around the run."""
        found: list[str] = []
        for name, identity in _IDENTITIES.items():
            newest = DeltaTable(str(self.lake / name)).version()
            for version in range(self.seen.get(name, -1) + 1, newest + 1):
                rows = DeltaTable(str(self.lake / name), version=version).to_pyarrow_table()
                if name == "transactions":
                    logs = [*before.logs().items(), *after.logs().items()]
                    merged = [place[2] for place, log in logs if holds_a_merged_segment(log)]
                    rows = rows.filter(~pc.field("partition_dir").isin(pa.array(merged, pa.string())))
                printed = _doubled(rows, identity)
                printed += _torn(name, rows, before, after) if name in _ROWS else []
                found += [f"version {version} of {name}: {line}" for line in printed]
            self.seen[name] = newest
        return found

    def skip(self) -> None:
        """Leaves out the versions up to now: VACUUM may have taken their files."""
        self.seen = {name: DeltaTable(str(self.lake / name)).version() for name in _IDENTITIES}


def _doubled(rows: pa.Table, identity: Sequence[str]) -> list[str]:
    counted = rows.group_by(list(identity)).aggregate([([], "count_all")])
    return [f"{row} is there twice" for row in counted.to_pylist() if row["count_all"] > 1][:_SHOWN]


def _torn(name: str, table: pa.Table, before: Tables, after: Tables) -> list[str]:
    columns = _ROWS[name]
    held: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table.select([*columns, "segment"]).to_pylist():
        held[row["segment"]].append(row)
    found: list[str] = []
    for uri in sorted(held.keys() | before.known.keys() | after.known.keys()):
        states = [state.known[uri] for state in (before, after) if uri in state.known]
        may_be = [getattr(rows_of(content), name) for one in states for content in one.may_be]
        if len(states) < 2 or any(one.may_go for one in states):
            may_be.append([])
        have = pick(held.get(uri, []), columns)
        if have not in may_be:
            found += _compare(f"{name} of {uri}", have, may_be[-1])
    return found


def _of_segment(one: Known, held: Held) -> list[str]:
    found: list[str] = []
    for content in one.may_be:
        want = rows_of(content)
        printed = []
        for name in _ROWS:
            printed += _compare(f"{name} of {one.uri}", held.rows[name].get(one.uri, []), getattr(want, name))
        row = held.ledger[one.uri]
        printed += _compare(f"segments, {one.uri}", [tuple(row[n] for n in LEDGER)], [want.ledger(one.base)])
        if not printed:
            one.may_be, one.may_go = [content], False
            return []
        found = found or printed
    return found


def _of_logs(held: Held, tables: Tables) -> list[str]:
    found: list[str] = []
    logs = tables.logs()
    for log in sorted(logs.keys() | held.transactions.keys()):
        if holds_a_merged_segment(logs.get(log, [])):
            continue  # markers and data are there twice, until the other file goes
        want = transactions(logs.get(log, []))
        found += _compare(f"transactions of {log[2]}", held.transactions.get(log, []), want)
        uris = {one.base: uri for uri, one in tables.known.items() if one.folder == log[2]}
        seen = [(base, offset) for base, uri in uris.items() for offset in held.committed.get(uri, [])]
        found += _compare(f"committed_records of {log[2]}", sorted(seen), committed(logs.get(log, []), want))
    return found


def _compare(what: str, have: list[Any], want: list[Any]) -> list[str]:
    if have == want:
        return []
    missing, extra = list(want), []
    for row in have:
        if row in missing:
            missing.remove(row)
        else:
            extra.append(row)
    lines = [f"{what}: {len(missing)} rows missing, {len(extra)} extra"]
    lines += [f"    missing {row}" for row in missing[:_SHOWN]] + [
        f"    extra   {row}" for row in extra[:_SHOWN]
    ]
    return lines


def landed(lake: Path, tables: Tables) -> list[str]:
    """The chunks of ``raw_segments`` against the bytes that must have been landed."""
    chunks: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for row in DeltaTable(str(lake / "raw_segments")).to_pyarrow_table().to_pylist():
        chunks[row["segment"]].append((row["chunk_position"], row["content"]))
    for uri in [uri for uri, one in tables.known.items() if one.may_go and uri not in chunks]:
        del tables.known[uri]
    found = [f"raw segment {uri}: not landed" for uri in sorted(tables.known.keys() - chunks.keys())]
    found += [f"raw segment {uri}: must not be landed" for uri in sorted(chunks.keys() - tables.known.keys())]
    for uri in sorted(tables.known.keys() & chunks.keys()):
        one, at, data = tables.known[uri], 0, b""
        for position, content in sorted(chunks[uri]):
            if position != at:
                found.append(f"raw segment {uri}: a chunk at {position}, not at {at}")
            at, data = position + len(content), data + content
        match = [content for content in one.may_be if content.data == data]
        if match:
            one.may_be, one.may_go = match[:1], False
        else:
            found.append(
                f"raw segment {uri}: {len(data)} bytes are not the {len(one.content.data)} of the file"
            )
    return found

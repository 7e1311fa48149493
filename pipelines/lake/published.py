"""Which versions of a lake's tables belong together: the state that a run published.

A run commits each table by itself and the ledger last, and says in each commit which run it is of
(``mark``). The ledger's commit also names the version of every other table. So a reader of several tables
sees no run that is being committed, and none that died before its ledger.

Commits that are of no run (OPTIMIZE, DELETE, RESTORE, ADD COLUMN of anybody) are part of the state that they
follow. Tables of reports, which no run replaces rows of, are read as they are at that time.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kafka_log_lake.pipelines.cli import values
from kafka_log_lake.pipelines.cli.errors import UserError, one_line
from kafka_log_lake.pipelines.engine.delta import data_files, open_table, patiently
from kafka_log_lake.pipelines.lake.address import MissingTable, lake_table, reading, table_path
from kafka_log_lake.udfs.format.report_tables import REPORT_TABLES
from kafka_log_lake.udfs.format.schema import RAW_SEGMENTS, SEGMENTS, TABLES
from kafka_log_lake.udfs.storage.store import open_store

# Who writes: the job that decodes, and the one that lands bytes
DECODE_APP, INGEST_APP = "kafka-log-decode", "kafka-log-ingest"
# Where Delta keeps words of the user about a commit; DESCRIBE HISTORY shows them
USER_METADATA = "userMetadata"
_ALWAYS = float("inf")


def mark(run_id: str, app_id: str, number: int, **more: Any) -> dict[str, str]:
    """What a run's commit says of the run; number: of the run, they rise for each app.

    more: what is not empty of source (as the job names it), tables (of the ledger's commit, the versions of
    the other tables that belong to it), metrics (rows, files and bytes that the commit adds, files that it
    removes; of the ledger's commit, segments and bytes of them), undone (the commit takes the run's rows
    back).
    """
    said = {"run_id": run_id, "app": app_id, "run": number}
    return {USER_METADATA: json.dumps(said | {name: value for name, value in more.items() if value})}


@dataclass(frozen=True)
class Commit:
    """A commit of a table. at: ms since 1970 UTC. said: what ``mark`` said; nothing of others' commits."""

    version: int
    at: int
    said: Mapping[str, Any]


@dataclass(frozen=True)
class _Published:
    """The commit of the ledger that published a state, and the time from which on it was another (ms)."""

    ledger: int
    said: Mapping[str, Any]
    until: float = _ALWAYS


def published_tables(
    address: str, at: str | None = None, reports: Container[str] | None = None
) -> dict[str, DeltaTable]:
    """Name -> table at its version, of one published state; all tables that are there.

    address: of a lake (``lake_address``). reports: of the tables of reports those that are opened, by name;
    None for all. at: the id of a run, as in ``runs``, for the state that it left; or
    a time (ISO 8601, UTC where it has no zone; or ms since 1970); None for now. Raises a UserError for a run
    or a time that the lake does not know any more.
    """
    found = {table.name: lake_table(address, table.name) for table in TABLES}
    ledger = found[SEGMENTS.name]
    for table in REPORT_TABLES:
        if reports is None or table.name in reports:
            with suppress(MissingTable):
                found[table.name] = lake_table(address, table.name)
    with reading(f"the lake {address}"):
        state = _state(address, ledger, found[RAW_SEGMENTS.name], at)
        versions = {
            name: state.ledger if delta is ledger else _version(address, name, delta.version(), state)
            for name, delta in found.items()
        }
    return {n: _loaded(address, n, found[n], one, at) for n, one in versions.items() if one is not None}


def version_at(address: str, name: str, table: DeltaTable, at: str | None) -> int | None:
    """The version of a table that no run publishes, in a state (``published_tables``); None if younger."""
    if at is None:
        return table.version()
    ledger, landed = (open_table(table_path(address, one.name)) for one in (SEGMENTS, RAW_SEGMENTS))
    return _version(address, name, table.version(), _state(address, ledger, landed, at))


def _loaded(address: str, name: str, table: DeltaTable, version: int, at: str | None) -> DeltaTable:
    """A table at a version. Raises a UserError where files of it are gone."""
    if version == table.version():
        return table
    now = set(table.file_uris()) if at else set()
    try:
        patiently(lambda: table.load_as_version(version))
    except (DeltaError, OSError) as error:
        raise UserError(f"version {version} of {name} can't be opened: {one_line(error)}") from None
    if at:
        system, folder = open_store(table_path(address, name))
        paths = data_files(table).column("path").to_pylist()
        old = [p for p, uri in zip(paths, table.file_uris(), strict=True) if uri not in now]
        infos = system.get_file_info([f"{folder}/{path}" for path in old])
        if any(not info.is_file for info in infos):
            raise UserError(
                f"the state {at} can't be read any more: VACUUM deleted files of {name}; name a later one"
            )
    return table


def of_entry(version: int, at: int, said: str | None) -> Commit:
    """A commit of an entry in a table's history. said: what was said by USER_METADATA, by anybody."""
    ours: Any = None
    with suppress(TypeError, ValueError):
        ours = json.loads(said)  # type: ignore[arg-type]
    is_ours = isinstance(ours, dict) and {"run_id", "app", "run"} <= ours.keys()
    return Commit(version, at, ours if is_ours else {})


def history(address: str, name: str, newest: int, than: int = -1) -> Iterator[Commit]:
    """Commits of a table from version ``newest`` to the one above ``than``; fewer where entries are gone.

    Read here, as deltalake's ``history`` finds none below a path with a ``?`` or ``#``.
    """
    system, folder = open_store(table_path(address, name))
    for version in range(newest, than, -1):
        try:
            with system.open_input_stream(f"{folder}/_delta_log/{version:020d}.json") as entry:
                lines = entry.read().splitlines()
        except FileNotFoundError:
            return
        said = next((line for line in lines if line.startswith(b'{"commitInfo"')), b'{"commitInfo": {}}')
        info = json.loads(said)["commitInfo"]
        yield of_entry(version, info.get("timestamp", 0), info.get(USER_METADATA))


def _said(address: str, commits: Iterable[Commit], version: int) -> Mapping[str, Any]:
    """What the last of these commits of the ledger said that are a run's.

    Delta deletes old entries of a log. The number of the run is in the ledger's version itself, with the
    versions of no other table.
    """
    for one in commits:
        if one.said:
            return one.said
    ledger = open_table(table_path(address, SEGMENTS.name))
    ledger.load_as_version(version)
    return {"run": ledger.transaction_version(DECODE_APP) or 0}


def _state(address: str, ledger: DeltaTable, landed: DeltaTable, at: str | None) -> _Published:
    """The state of now (None), that a run left, or that was there at a time."""
    newest = history(address, SEGMENTS.name, ledger.version())
    if at is None:
        return _Published(ledger.version(), _said(address, newest, ledger.version()))
    commits = list(newest)
    until = _time_of(history(address, RAW_SEGMENTS.name, landed.version()), at)
    for place, commit in enumerate(commits):
        if commit.said.get("run_id") == at:
            later = [one for one in commits[:place] if one.said][-1:]
            last = later[0].version - 1 if later else ledger.version()
            return _Published(last, commit.said, later[0].at - 1 if later else _ALWAYS)
    known = [one for one in commits if one.at <= until]
    if not known:
        first = datetime.fromtimestamp(commits[-1].at / 1000, UTC).isoformat() if commits else "now"
        raise UserError(
            f"the lake has no state of {at!r}: name a run_id of the table runs, or a time from {first} on"
        )
    return _Published(known[0].version, _said(address, known, known[0].version), until)


def _time_of(landed: Iterator[Commit], at: str) -> float:
    """The time that is meant, ms since 1970 UTC: given, or when a run landed bytes; -1 of no such run."""
    with suppress(ValueError):
        return values.moment(at)
    return next((one.at for one in landed if one.said.get("run_id") == at), -1)


def _version(address: str, name: str, newest: int, state: _Published) -> int | None:
    """The version of a table in a state: the last one before a later run's; None where it is younger."""
    named = state.said.get("tables", {}).get(name)
    chosen: int | None = named
    following = history(address, name, newest, -1 if named is None else named)
    for commit in reversed(list(following)):
        is_decoded = commit.said.get("app") == DECODE_APP  # bytes that are landed are there at once
        if commit.at > state.until or (is_decoded and commit.said["run"] > state.said.get("run", 0)):
            break
        chosen = commit.version
    return chosen

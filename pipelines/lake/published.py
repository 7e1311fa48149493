"""Which versions of a lake's tables belong together: the state that a run published.

A run commits each table by itself and the ledger last, and says in each commit which run it is of
(``run_metadata``). The ledger's commit also names the version of every other table. So a reader of several
tables sees no run that is being committed, and none that died before its ledger.

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
from kafka_log_lake.pipelines.engine.delta import data_files, log_entry, open_table, patiently
from kafka_log_lake.pipelines.lake.address import MissingTable, lake_table, reading, table_path
from kafka_log_lake.udfs.format.report_tables import REPORT_TABLES
from kafka_log_lake.udfs.format.schema import OFFSET_FINDINGS, RAW_SEGMENTS, SEGMENTS, TABLES
from kafka_log_lake.udfs.storage.store import open_store

# Who writes: the job that decodes, and the one that lands bytes
DECODE_APP, INGEST_APP = "kafka-log-decode", "kafka-log-ingest"
# Where Delta keeps words of the user about a commit; DESCRIBE HISTORY shows them
USER_METADATA = "userMetadata"
_ALWAYS = float("inf")


def run_metadata(run_id: str, app_id: str, number: int, **more: object) -> dict[str, str]:
    """Returns the metadata by which a run's commit names it; number: of the run, they rise for each app.

    more: what is not empty of source (as the job names it), tables (of the ledger's commit, the versions of
    the other tables that belong to it), metrics (rows, files and bytes that the commit adds, files that it
    removes; of the ledger's commit, segments and bytes of them), undone (the commit takes the run's rows
    back).
    """
    metadata = {"run_id": run_id, "app": app_id, "run": number}
    return {USER_METADATA: json.dumps(metadata | {name: value for name, value in more.items() if value})}


@dataclass(frozen=True)
class Commit:
    """A commit of a table. at: ms since 1970 UTC. metadata: the ``run_metadata``; {} where no run made it."""

    version: int
    at: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class _PublishedState:
    """The ledger's version of a published state, and the time up to which the state held, ms since 1970."""

    ledger: int
    metadata: Mapping[str, Any]
    until: float = _ALWAYS


def published_tables(
    address: str, at: str | None = None, reports: Container[str] | None = None
) -> dict[str, DeltaTable]:
    """Opens the tables of one published state. Returns name -> table at its version, of all that are there.

    address: of a lake (``lake_address``). reports: of the tables of reports those that are opened, by name;
    None for all. at: the id of a run, as in ``runs``, for the state that it left; or
    a time (ISO 8601, UTC where it has no zone; or ms since 1970); None for now. Raises a UserError for a run
    or a time that the lake does not know any more.
    """
    opened = {table.name: lake_table(address, table.name) for table in TABLES}
    ledger = opened[SEGMENTS.name]
    for table in REPORT_TABLES:
        if reports is None or table.name in reports:
            with suppress(MissingTable):
                opened[table.name] = lake_table(address, table.name)
    with reading(f"the lake {address}"):
        state = _state(address, ledger, opened[RAW_SEGMENTS.name], at)
        versions = {
            name: state.ledger if delta is ledger else _version(address, name, delta.version(), state)
            for name, delta in opened.items()
        }
    if versions[OFFSET_FINDINGS.name] is None:
        raise UserError(
            f"the state {at} is of an earlier release, without {OFFSET_FINDINGS.name}: name a later one"
        )
    return {n: _loaded(address, n, opened[n], v, at) for n, v in versions.items() if v is not None}


def version_at(address: str, name: str, table: DeltaTable, at: str | None) -> int | None:
    """Returns the version, in a state (``published_tables``), of a table that no run publishes.

    None: the table is younger than the state.
    """
    if at is None:
        return table.version()
    ledger, landed = (open_table(table_path(address, t.name)) for t in (SEGMENTS, RAW_SEGMENTS))
    return _version(address, name, table.version(), _state(address, ledger, landed, at))


def _loaded(address: str, name: str, table: DeltaTable, version: int, at: str | None) -> DeltaTable:
    """Loads a table at a version. Raises a UserError where files of it are gone."""
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


def commit_of_entry(version: int, at: int, metadata: str | None) -> Commit:
    """Makes a Commit from an entry of a table's history. metadata: what anybody put under USER_METADATA."""
    ours: Any = None
    with suppress(TypeError, ValueError):
        ours = json.loads(metadata)  # type: ignore[arg-type]
    is_ours = isinstance(ours, dict) and {"run_id", "app", "run"} <= ours.keys()
    return Commit(version, at, ours if is_ours else {})


def history(address: str, name: str, newest: int, than: int = -1) -> Iterator[Commit]:
    """Yields commits of a table from version ``newest`` down to ``than`` + 1; stops where an entry is gone.

    Read here, as deltalake's ``history`` finds none below a path with a ``?`` or ``#``.
    """
    system, folder = open_store(table_path(address, name))
    for version in range(newest, than, -1):
        try:
            with system.open_input_stream(log_entry(folder, version)) as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        entry_line = next(
            (line for line in lines if line.startswith(b'{"commitInfo"')), b'{"commitInfo": {}}'
        )
        info = json.loads(entry_line)["commitInfo"]
        yield commit_of_entry(version, info.get("timestamp", 0), info.get(USER_METADATA))


def _newest_metadata(address: str, commits: Iterable[Commit], version: int) -> Mapping[str, object]:
    """Returns the ``run_metadata`` of the newest of these commits of the ledger that a run made.

    Delta deletes old entries of a log. The number of the run is in the ledger's version itself, with the
    versions of no other table.
    """
    for commit in commits:
        if commit.metadata:
            return commit.metadata
    ledger = open_table(table_path(address, SEGMENTS.name))
    ledger.load_as_version(version)
    return {"run": ledger.transaction_version(DECODE_APP) or 0}


def _state(address: str, ledger: DeltaTable, landed: DeltaTable, at: str | None) -> _PublishedState:
    """Finds the published state of now (None), that a run left, or that was there at a time."""
    newest = history(address, SEGMENTS.name, ledger.version())
    if at is None:
        return _PublishedState(ledger.version(), _newest_metadata(address, newest, ledger.version()))
    commits = list(newest)
    until = _resolve_at(history(address, RAW_SEGMENTS.name, landed.version()), at)
    for place, commit in enumerate(commits):
        if commit.metadata.get("run_id") == at:
            later = [c for c in commits[:place] if c.metadata][-1:]
            last = later[0].version - 1 if later else ledger.version()
            return _PublishedState(last, commit.metadata, later[0].at - 1 if later else _ALWAYS)
    known = [commit for commit in commits if commit.at <= until]
    if not known:
        first = datetime.fromtimestamp(commits[-1].at / 1000, UTC).isoformat() if commits else "now"
        raise UserError(
            f"the lake has no state of {at!r}: name a run_id of the table runs, or a time from {first} on"
        )
    return _PublishedState(known[0].version, _newest_metadata(address, known, known[0].version), until)


def _resolve_at(landed: Iterator[Commit], at: str) -> float:
    """Resolves --at to epoch ms: a time, or when a run landed bytes; -1 if there is no such run."""
    with suppress(ValueError):
        return values.moment(at)
    return next((commit.at for commit in landed if commit.metadata.get("run_id") == at), -1)


def _version(address: str, name: str, newest: int, state: _PublishedState) -> int | None:
    """Returns the version of a table in a state: the last before a later run's; None where it is younger."""
    named = state.metadata.get("tables", {}).get(name)
    chosen: int | None = named
    following = history(address, name, newest, -1 if named is None else named)
    for commit in reversed(list(following)):
        is_decoded = commit.metadata.get("app") == DECODE_APP  # bytes that are landed are there at once
        if commit.at > state.until or (is_decoded and commit.metadata["run"] > state.metadata.get("run", 0)):
            break
        chosen = commit.version
    return chosen

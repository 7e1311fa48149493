"""The folder ``<lake>/_runs``: a lock against a second job, and the intents of unfinished runs.

An intent lists everything that a run is going to commit. It is written atomically before the run's first
commit and removed after its last. If a job finds an intent when it starts, that run was killed in between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyarrow import fs

from kafka_log_lake.pipelines.cli.errors import LakeBusy, UserError, unwritable
from kafka_log_lake.pipelines.lake.lease import Lease
from kafka_log_lake.pipelines.plan.ledger import LedgerRow, Partition
from kafka_log_lake.udfs.arrow.parquet_sink import DataFile, flush
from kafka_log_lake.udfs.format.schema import TABLES
from kafka_log_lake.udfs.storage.store import is_object_store, open_store

FOLDER = "_runs"


@dataclass(frozen=True)
class RowRange:
    """The rows of a segment from byte ``position`` on. In ``transactions``: of a log, by its folder."""

    topic: str
    partition: int
    segment: str
    position: int = 0


@dataclass(frozen=True)
class Intent:
    """Everything that one run commits: files to add, ledger rows to write, rows to remove.

    app_id, version: the Delta transaction id of each of its commits; version counts the runs of an app.
    files: data files to add to the tables.
    put: ledger rows to write. only_new: whether the ledger has none of their segments yet.
    drop: ledger rows to remove, together with all rows of their segments.
    goes_on: segment of ``put`` -> the byte from which on its rows are new; others are new as a whole.
    cut: rows that go in addition to those of ``put`` and ``drop``; of landed bytes all that go.
    transactional: topic-partitions that got transactional batches.
    staged: of a lake in a catalog, where Spark keeps rows of batches and quarantine, "" for none;
    dropped_groups: groups of which none is committed. rows_by_spark: whether Spark makes the rows of the
    first table.
    after: version of the log of the table that publishes the run, when the run was planned; -1: not known.
    taken_back: whether what was committed of it is being undone.
    source: what ``--source`` of the run names. cluster_id: of the sources; None where nothing names it.
    files_left: folders of logs of which other files are there than before that no run could read -> the base
    offsets of all such files. cleaned: folders of logs of which ``cleaner-offset-checkpoint`` alone says that
    the log cleaner ran. fills_findings: whether it makes the table ``offset_findings``, of all logs.
    """

    app_id: str
    version: int
    run_id: str
    files: list[DataFile] = field(default_factory=list)
    put: list[LedgerRow] = field(default_factory=list)
    only_new: bool = False
    drop: list[LedgerRow] = field(default_factory=list)
    goes_on: dict[str, int] = field(default_factory=dict)
    cut: list[RowRange] = field(default_factory=list)
    transactional: list[Partition] = field(default_factory=list)
    staged: str = ""
    dropped_groups: list[int] = field(default_factory=list)
    rows_by_spark: bool = False
    after: int = -1
    taken_back: bool = False
    source: list[str] = field(default_factory=list)
    files_left: dict[str, list[int]] = field(default_factory=dict)
    cleaned: list[str] = field(default_factory=list)
    fills_findings: bool = False
    cluster_id: str | None = None

    @property
    def partitions(self) -> set[Partition]:
        """Returns the topic-partitions that the run changes."""
        return {(range_.topic, range_.partition) for range_ in self.ranges}

    @property
    def ranges(self) -> list[RowRange]:
        """Returns the rows that the run removes or replaces: what is there now goes."""
        return [
            *self.cut,
            *(RowRange(r.topic, r.partition, r.segment, self.goes_on.get(r.segment, 0)) for r in self.put),
            *(RowRange(r.topic, r.partition, r.segment) for r in self.drop),
        ]

    @property
    def new_bytes(self) -> int:
        """Returns the bytes of segments that the run decodes, without those that earlier runs decoded."""
        return sum(max(0, row.decoded_bytes - self.goes_on.get(row.segment, 0)) for row in self.put)

    def to_json(self) -> bytes:
        return json.dumps(self, default=vars).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Intent:
        """Parses ``to_json``. Raises a UserError for another text: somebody changed it, or copied a part."""
        classes: dict[str, Any] = {"files": DataFile, "put": LedgerRow, "drop": LedgerRow, "cut": RowRange}
        try:
            values: dict[str, Any] = json.loads(text)
            for name, kind in classes.items():
                values[name] = [kind(**row) for row in values[name]]
            values["transactional"] = [*map(tuple, values["transactional"])]
            return cls(**values)
        except (ValueError, TypeError, KeyError):
            raise UserError(
                f"the lake has an unfinished run that can't be read ({text[:40]!r}): restore its folder "
                f"{FOLDER}, or decode into a new --lake"
            ) from None


class Intents:
    """The folder ``_runs`` of one lake, on any file system that pyarrow opens. Creates the folder.

    Of a local lake it also flushes to the disk what a run has written, before anything relies on it.
    """

    def __init__(self, lake: str) -> None:
        self.local = lake if "://" not in lake else None
        try:
            self._files, base = open_store(lake)
            self._base = base.rstrip("/")
            self._folder = f"{self._base}/{FOLDER}"
            if not is_object_store(lake):
                self._files.create_dir(self._folder, recursive=True)
        except (OSError, ValueError) as error:
            raise unwritable(f"the lake {lake}", error) from error
        self._lake = lake
        self._flushed: set[str] = set()
        # Of a local lake the operating system knows who writes to it
        self.lease = Lease(lake, self._files, self._folder) if self.local is None else None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the lake during a block. A local lock ends with its process; a lease ends without renewal.

        Raises LakeBusy where another job has it.
        """
        if self.lease is not None:
            with self.lease.held():
                yield
            return
        import fcntl

        try:
            descriptor = os.open(f"{self._folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(f"the lake {self._lake}", error) from error
        try:
            self._check_hard_links()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LakeBusy(self._lake) from None
            yield
        finally:
            os.close(descriptor)

    def _check_hard_links(self) -> None:
        """Raises a UserError for a local lake without hard links: by one deltalake makes each commit.

        What else it could do there lets a commit overwrite that of another writer. Leaves nothing of a lake
        that was just being made.
        """
        lock = f"{self._folder}/lock"
        other = f"{lock}.{os.urandom(4).hex()}"
        try:
            os.link(lock, other)
            os.remove(other)
        except OSError as error:
            with suppress(OSError):
                if os.listdir(self._folder) == ["lock"]:
                    os.remove(lock)
                    os.rmdir(self._folder)
                    os.rmdir(self._base)
            raise UserError(
                f"the lake {self._lake} can't be written: {error.strerror}: commits need hard links, to keep "
                "other writers off, and a FUSE mount has none, as /Volumes and /dbfs of Databricks: name "
                "a lake in the bucket itself (s3://, abfss://, gs://), or use --sink catalog with "
                "--lake CATALOG.SCHEMA"
            ) from None

    def pending(self) -> list[Intent]:
        """Reads the intents of runs that were killed, oldest first for each app."""
        return sorted(map(Intent.from_json, self._texts()), key=lambda i: (i.app_id, i.version))

    def _texts(self) -> Iterator[bytes]:
        for path in self.paths():
            with self._files.open_input_stream(path) as stream:
                yield stream.read()

    def paths(self) -> list[str]:
        """Returns the paths of the intents that are there."""
        infos = self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        return [info.path for info in infos if info.is_file and info.path.endswith(".json")]

    def write(self, intent: Intent) -> None:
        """Writes the intent atomically. Raises a UserError if there is one of the same run already.

        With ``taken_back`` it replaces the intent that is there.
        """
        path = self._path(intent)
        if not intent.taken_back and self._files.get_file_info(path).type != fs.FileType.NotFound:
            raise UserError(f"another run is writing to {self._lake}: {path} exists already")
        write_whole(self._lake, self._files, path, intent.to_json())

    def flush_commits(self, intent: Intent) -> None:
        """Flushes to disk what Spark and deltalake have committed since the intent was written.

        These are the new files of the tables' logs, and the data files that they name but the intent does
        not: its own were flushed by the tasks that wrote them. On a local lake alone.
        """
        if self.local is None:
            return
        since = self._files.get_file_info(self._path(intent)).mtime_ns
        flushed = {f"{self._base}/{file.table}/{file.path}" for file in intent.files}
        for table in TABLES:
            log = f"{self._base}/{table.name}/_delta_log"
            entries = [
                f
                for f in self._files.get_file_info(fs.FileSelector(log, allow_not_found=True))
                if f.mtime_ns >= since
            ]
            new = [f.path for f in entries if f.path not in self._flushed]
            added = {f"{self._base}/{table.name}/{p}" for path in new for p in _added(path)} - flushed
            for path in [*sorted(added), *sorted({os.path.dirname(p) for p in added})]:
                with suppress(FileNotFoundError):  # another run's VACUUM
                    flush(path)
            for path in [*new, log] if new else []:
                flush(path)
            self._flushed.update(new)

    def remove(self, intent: Intent) -> None:
        """Removes the intent: after the last commit, or if nothing was committed."""
        if self._files.get_file_info(self._path(intent)).type != fs.FileType.NotFound:
            self._files.delete_file(self._path(intent))

    def holds(self, paths: Sequence[str]) -> bool:
        """Returns whether all of these files exist. paths: relative to the lake."""
        infos = self._files.get_file_info([f"{self._base}/{path}" for path in paths])
        return all(info.type == fs.FileType.File for info in infos)

    def _path(self, intent: Intent) -> str:
        return f"{self._folder}/{intent.app_id}-{intent.version:010d}.json"


def write_whole(lake: str, files: fs.FileSystem, path: str, content: bytes) -> None:
    """Writes a file of a lake atomically: who reads it finds what was there, or all of the content."""
    is_local, renames = "://" not in lake, not is_object_store(lake)
    written = path + ".tmp" if renames else path
    with files.open_output_stream(written) as out:
        out.write(content)
    if is_local:
        flush(written)
    if renames:
        files.move(written, path)
    if is_local:
        flush(os.path.dirname(path))


def _added(entry: str) -> list[str]:
    """Returns the paths of the data files that an entry of a Delta log adds, below the table's folder."""
    if not entry.endswith(".json"):
        return []
    with open(entry, "rb") as lines:
        actions = map(json.loads, lines)
        return [unquote(action["add"]["path"]) for action in actions if "add" in action]

"""The folder ``<lake>/_runs``: a lock that keeps a second run out, and the intents of runs under way.

An intent is everything that a run is going to commit, written in one piece before its first commit and
removed after its last. One that is found at the start of a job belongs to a run that died between the two.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs

from pipelines.command.errors import UserError

FOLDER = "_runs"


@dataclass(frozen=True)
class Replaced:
    """Rows of a segment at or past ``position`` that make way."""

    topic: str
    partition: int
    segment: str
    position: int


@dataclass(frozen=True)
class Intent:
    """What one run commits.

    app_id, version: the Delta transaction id of each of its commits; versions count the runs of an app.
    files: table -> data files ready to be added, as the stage reports them (arrow sink).
    facts: folder of the rows of batches and quarantine as Parquet (spark sink), without those of
    dropped_groups; "" for the arrow sink.
    records_first: the commit to ``records`` can't be made again by another process (spark sink).
    replaced: rows that make way in every table of data.
    put, drop: the ledger's rows and the segments it loses. only_new: the ledger knows none of put yet.
    partitions: [topic, partition] that change. transactional: those where batches of transactions come in.
    """

    app_id: str
    version: int
    run_id: str
    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    facts: str = ""
    dropped_groups: list[int] = field(default_factory=list)
    records_first: bool = False
    replaced: list[Replaced] = field(default_factory=list)
    put: list[dict[str, Any]] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    only_new: bool = False
    partitions: list[tuple[str, int]] = field(default_factory=list)
    transactional: list[tuple[str, int]] = field(default_factory=list)


class Runs:
    """The ``_runs`` folder of one lake, local or on any file system that pyarrow opens."""

    def __init__(self, lake: str) -> None:
        self.local = lake if "://" not in lake else None
        try:
            if self.local is not None:
                self._files: fs.FileSystem = fs.LocalFileSystem()
                base = lake
            else:
                self._files, base = fs.FileSystem.from_uri(lake)
            self._base = base.rstrip("/")
            self.folder = f"{self._base}/{FOLDER}"
            self._files.create_dir(self.folder, recursive=True)
        except (OSError, ValueError) as error:
            raise cannot_write(lake, error) from error
        self._lake = lake

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held for the whole job on a local lake; the kernel lets go of it however the process ends."""
        if self.local is None:
            yield
            return
        import fcntl

        try:
            descriptor = os.open(f"{self.folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise cannot_write(self._lake, error) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"another run is writing to {self._lake}: wait for it to end, then start again"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def pending(self) -> list[Intent]:
        """Intents of runs that died, oldest first."""
        listed = self._files.get_file_info(fs.FileSelector(self.folder))
        paths = [f.path for f in listed if f.type == fs.FileType.File and f.path.endswith(".json")]
        intents = [self._read(path) for path in paths]
        return sorted(intents, key=lambda i: (i.app_id, i.version))

    def write(self, intent: Intent) -> None:
        """Puts the intent there in one piece, or not at all."""
        path = self._path(intent)
        if self._files.get_file_info(path).type != fs.FileType.NotFound:
            raise UserError(f"another run is writing to {self._lake}: {path} is there already")
        with self._files.open_output_stream(path + ".tmp") as out:
            out.write(json.dumps(intent, default=vars).encode())
        if self.local is not None:
            _sync(path + ".tmp")
        self._files.move(path + ".tmp", path)
        if self.local is not None:
            _sync(self.folder)

    def remove(self, intent: Intent) -> None:
        """After the last commit, or where none was made and none will be."""
        if intent.facts:
            self.remove_folder(intent.facts)
        if self._files.get_file_info(self._path(intent)).type != fs.FileType.NotFound:
            self._files.delete_file(self._path(intent))

    def remove_folder(self, name: str) -> None:
        """A folder of facts, by its name in ``_runs``; nothing where it is not there."""
        path = f"{self.folder}/{name}"
        if self._files.get_file_info(path).type == fs.FileType.Directory:
            self._files.delete_dir(path)

    def left_over_facts(self) -> list[str]:
        """Folders of facts. With no intent beside them their run died before its first commit."""
        listed = self._files.get_file_info(fs.FileSelector(self.folder))
        return [f.base_name for f in listed if f.type == fs.FileType.Directory]

    def holds(self, paths: Sequence[str]) -> bool:
        """Whether all of these files of the lake are there."""
        found = self._files.get_file_info([f"{self._base}/{path}" for path in paths])
        return all(info.type == fs.FileType.File for info in found)

    def _path(self, intent: Intent) -> str:
        return f"{self.folder}/{intent.app_id}-{intent.version:010d}.json"

    def _read(self, path: str) -> Intent:
        with self._files.open_input_stream(path) as stream:
            values = json.loads(stream.read())
        values["replaced"] = [Replaced(**r) for r in values["replaced"]]
        for name in ("partitions", "transactional"):
            values[name] = [(topic, partition) for topic, partition in values[name]]
        return Intent(**values)


def cannot_write(lake: str, error: BaseException) -> UserError:
    """The line for a lake that takes no files."""
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return UserError(f"can't write to the lake {lake}: {reason}")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

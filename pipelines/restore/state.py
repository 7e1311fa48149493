"""The folder of a restore: what was asked, and of which sources, so that no other command continues it."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_log_lake.pipelines.cli.errors import LakeBusy, UserError, writing
from kafka_log_lake.pipelines.lake.lease import Lease
from kafka_log_lake.pipelines.restore.files import Files
from kafka_log_lake.pipelines.restore.request import Request
from kafka_log_lake.pipelines.sql.database import open_database
from kafka_log_lake.udfs.storage.byte_source import path_of_uri
from kafka_log_lake.udfs.storage.store import open_store

_FILE = "restore.json"
_BUSY = "another restore with --state {} runs: wait for it to end, or name another folder"


@contextmanager
def alone(state: str) -> Iterator[None]:
    """Keeps other restores from a state during a block. Raises a UserError where one is at it.

    The lock of a folder ends with the process, and with the workers that it forked; in an object store it is
    a lease.
    """
    if path_of_uri(state) is None:
        try:
            Files(state).names()  # says in one line that the store does not answer
            system, folder = open_store(state)
            with Lease(state, system, f"{folder}/_runs").held():
                yield
        except LakeBusy as error:
            raise UserError(_BUSY.format(state)) from error
        return
    import fcntl

    with writing(f"--state {state}"):
        Path(state).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(f"{state}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(_BUSY.format(state)) from None
        yield
    finally:
        os.close(descriptor)


def check_sources(state: str, sources: Sequence[str]) -> None:
    """Notes what is decoded into a state. Raises a UserError for a state of other sources.

    Their records would be restored too, or these would not be.
    """
    files = Files(state)
    known = files.load("sources.json")
    if known is None:
        files.keep("sources.json", sorted(sources))
    elif known != sorted(sources):
        raise UserError(f"--state {state} is of other sources: give the same ones, or name another folder")


def sees(place: tuple[str, str]) -> bool:
    """Says whether a worker finds the state of a restore. place: the address of the state, and its id."""
    state, restore_id = place
    return restore_id.encode() in (Files(state).read(_FILE) or b"")


class State:
    """What was asked of a restore. Raises a UserError for the folder of a restore of something else."""

    def __init__(self, folder: str, request: Request) -> None:
        self._files, self.request = Files(request.state), request
        known = self._files.load(_FILE)
        if known is not None and not (isinstance(known, dict) and {"of", "restore_id"} <= known.keys()):
            raise self._files.damaged(_FILE)
        told: dict[str, Any] = known or {}
        is_same = told.get("of") == request.fingerprint
        # a dry run of other arguments says what a new restore would do
        self.is_continued = "cluster_id" in told and (is_same or not request.dry_run)
        if not self.is_continued:  # no record is written: topics may have been made
            begun = {"restore_id": uuid.uuid4().hex[:12], "of": request.fingerprint}
            self._told = begun | {"made": told.get("made", {})}
            return
        self._told = told
        if not is_same:
            raise UserError(
                f"--state {folder} is of a restore with other arguments: give the same ones to continue it, "
                "or name another folder"
            )

    @property
    def restore_id(self) -> str:
        return str(self._told["restore_id"])

    def pin(self) -> None:
        """Chooses the state of the lake that is read, the same one by all who continue."""
        if self.request.at is None and "at" not in self._told:
            database = open_database(self.request.lake, "FROM runs")
            row = database.execute("SELECT run_id FROM runs ORDER BY began_at DESC LIMIT 1").fetchone()
            database.close()
            self._told["at"] = row[0] if row else None
        self.request = dataclasses.replace(self.request, at=self.request.at or self._told["at"])

    def note(self, cluster_id: str, texts: Sequence[str]) -> list[str]:
        """Keeps what is said of topics of a cluster, before they are made. Returns all of it."""
        made = self._told.setdefault("made", {})
        made[cluster_id] = [*dict.fromkeys((*made.get(cluster_id, ()), *texts))]
        if texts:
            self._write()
        return list(made[cluster_id])

    def check_cluster(self, cluster_id: str) -> None:
        """Raises a UserError where the restore began with another cluster."""
        if self._told.get("cluster_id", cluster_id) != cluster_id:
            raise UserError(
                f"the restore of this --state began into the cluster {self._told['cluster_id']}, and "
                f"{self.request.bootstrap} is {cluster_id}: name the same cluster, or another --state"
            )

    def keep(self, cluster_id: str) -> None:
        """Notes where records follow."""
        self._told["cluster_id"] = cluster_id
        self._write()

    def _write(self) -> None:
        self._files.keep(_FILE, self._told)

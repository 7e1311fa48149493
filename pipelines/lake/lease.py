"""The lock of a lake that is in no local folder: a lease, which ends where its job does not renew it.

Leases are numbered. Number n is taken by creating an empty Delta table of that number below ``_runs``, so by
the same conditional put as every commit to the lake: of several jobs one gets it. The job then writes a file
next to it again and again. A job that finds a lease waits until that file changes, so that the other job is
alive and it leaves, or until the lease has ended, so that it may take the next number. Where it runs on the
same machine it sees at once that the other job was killed.

Nothing rests on the clocks of two machines: times are those that the store gives to what is written. A job
that paused longer than its lease may go on while another one runs: what keeps them apart then is in
``pipelines.lake.commit``.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from kafka_log_lake.pipelines.cli.errors import LakeBusy, RunFailed
from kafka_log_lake.pipelines.engine.delta import open_table, patiently
from kafka_log_lake.udfs.storage.store import deltalake_options

log = logging.getLogger(__name__)

SECONDS = 20.0  # a lease lasts so long after it was taken or renewed
_RENEWALS = 4  # in that time
_PREFIX, _RENEWED, _RELEASED = "lease-", "renewed", "released"


def process_of(number: int) -> dict[str, object]:
    """Identifies a process of this machine, so that others on it can look it up; {} where that can't be done.

    place: the machine since it was started, and its table of processes. started: when the process was, as
    another one may have its number later.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        place = f"{boot} {os.readlink('/proc/self/ns/pid')}"
        return {"place": place, "number": number, "started": _started(number)}
    except OSError:  # not Linux
        return {}


def has_ended(process: Mapping[str, Any]) -> bool:
    """Returns whether a process (``process_of``) ran on this machine, and does not run any more."""
    if not process or process["place"] != process_of(os.getpid()).get("place"):
        return False
    try:
        os.kill(process["number"], 0)
        return _started(process["number"]) != process["started"]
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        return False


def _started(number: int) -> str:
    """Returns when a process started, in ticks since boot; "" for one that has ended and is not collected.

    ``/proc/<number>/stat``: the state is the first field after the name, in parentheses, the time the 20th.
    """
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


class Lease:
    """The lease of one lake. files, folder: the file system, and the path of ``_runs`` in it.

    number: of the lease that is held; 0 before.
    """

    def __init__(self, lake: str, files: fs.FileSystem, folder: str) -> None:
        self._lake, self._files, self._folder = lake, files, folder
        self._owner = f"process {os.getpid()} on {socket.gethostname()}"
        self._id = uuid.uuid4().hex
        self._ended = threading.Event()
        self.number = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lease during a block: takes, renews, releases it. Raises LakeBusy where a job has it."""
        while True:
            last = self._last()
            if last:
                self._wait_for_end(last)
            if self._take(last + 1):
                break
        self._ended.clear()
        renewing = threading.Thread(target=self._renew, daemon=True)
        renewing.start()
        try:
            for number, name in self._listed().items():
                if number < self.number:
                    with suppress(OSError):  # the next job does it
                        self._files.delete_dir(f"{self._folder}/{name}")
            yield
        finally:
            self._ended.set()
            renewing.join()
            with suppress(OSError):  # then it ends by itself
                self._write(self.number, _RELEASED)

    def check(self) -> None:
        """Raises a RunFailed where another job took the lease, as this one did not renew it in time."""
        if self._last() > self.number:
            raise RunFailed(
                f"another run took over {self._lake}, as this one did not renew its lease for "
                f"{SECONDS:.0f} s: start again once it has ended"
            )

    def _name(self, number: int) -> str:
        return f"{_PREFIX}{number:010d}"

    def _table(self, number: int) -> str:
        return f"{self._lake}/_runs/{self._name(number)}"

    def _listed(self) -> dict[int, str]:
        infos = self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        names = (f.base_name for f in infos if f.type == fs.FileType.Directory)
        return {int(n.removeprefix(_PREFIX)): n for n in names if n.startswith(_PREFIX)}

    def _last(self) -> int:
        return max(self._listed(), default=0)

    def _take(self, number: int) -> bool:
        """Takes the lease of a number. Returns whether this job has it."""
        path, nothing = self._table(number), pa.schema([("nothing", pa.string())])
        said = {"id": self._id, "owner": self._owner, "seconds": SECONDS, "process": process_of(os.getpid())}
        create = partial(
            DeltaTable.create,
            path,
            nothing,
            description=json.dumps(said),
            # Else deltalake would try a second creation again, onto the version after the first
            commit_properties=CommitProperties(max_commit_retries=0),
            storage_options=deltalake_options(path),
        )
        try:
            patiently(create)
        except (DeltaError, OSError):
            if self._last() < number:
                raise  # it can't be written at all
            # An answer that was lost: the next attempt met the own table
            if self._said(number).get("id") != self._id:
                return False
        self.number = number
        return self._last() == number

    def _said(self, number: int) -> dict[str, Any]:
        """Reads what the job that took a lease wrote into it; {} where the lease is gone."""
        try:
            return dict(json.loads(open_table(self._table(number)).metadata().description or "{}"))
        except (DeltaError, OSError):
            return {}

    def _state(self, number: int) -> tuple[bool, int]:
        """Returns whether a lease was given back, and when it was taken or renewed: ns of the store's clock.

        0 where its folder is empty: it is just being taken, or removed as there is a later one.
        """
        where = fs.FileSelector(f"{self._folder}/{self._name(number)}", recursive=True, allow_not_found=True)
        files = [f for f in self._files.get_file_info(where) if f.type == fs.FileType.File]
        is_released = any(f.base_name == _RELEASED for f in files)
        return is_released, max((f.mtime_ns for f in files), default=0)

    def _wait_for_end(self, number: int) -> None:
        """Waits until a lease has ended. Raises LakeBusy where its job is alive."""
        is_free, renewed = self._state(number)
        if is_free:
            return
        said = self._said(number)
        seconds, owner = float(said.get("seconds", SECONDS)), said.get("owner", "another run")
        if has_ended(said.get("process", {})):
            log.info("%s was killed while it wrote to the lake: taking its place", owner)
            return
        began, is_reported = time.monotonic(), False
        ends = began + seconds - ((self._now() - renewed) / 1e9 if renewed else 0)
        while time.monotonic() < ends:
            time.sleep(min(1.0, seconds / _RENEWALS))
            is_free, again = self._state(number)
            if is_free or self._last() != number:
                return
            if again != renewed:
                raise LakeBusy(self._lake, owner)
            if not is_reported and time.monotonic() > began + 1.5 * seconds / _RENEWALS:
                is_reported = True
                log.info(
                    "no sign of %s, which may be writing to the lake: waiting until its lease ends", owner
                )

    def _now(self) -> int:
        """Returns the time of the store, in ns: what it gives to a file that is written now."""
        path = f"{self._folder}/clock-{self._id}"
        with self._files.open_output_stream(path) as out:
            out.write(b"now")
        now = self._files.get_file_info(path).mtime_ns
        self._files.delete_file(path)
        return int(now)

    def _write(self, number: int, name: str) -> None:
        with self._files.open_output_stream(f"{self._folder}/{self._name(number)}/{name}") as out:
            out.write(self._owner.encode())

    def _renew(self) -> None:
        while not self._ended.wait(SECONDS / _RENEWALS):
            with suppress(OSError):  # the next time
                self._write(self.number, _RENEWED)

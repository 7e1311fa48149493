"""What was confirmed of a partition: a file of lines, of which each is complete or counts as not there.

A transaction has two lines: what was written, with its offsets, before it is committed; and whether it was.
A process that is killed between them leaves a transaction that is pending: the target says which it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from kafka_log_lake.pipelines.cli.errors import UserError, writing

# Consecutive offsets of the source: first offset, how many, partition of the target, its first offset there
Run = tuple[int, int, int, int]
_MOST_NAME = 255  # bytes of a file's name


@dataclass(frozen=True)
class Entry:
    """A transaction. Its records have offsets of the source from ``begin`` to ``end`` - 1.

    now: ms since 1970, when timestamps were judged. held: offset and reason of what was not written.
    """

    begin: int
    end: int
    records: int
    bytes: int
    now: int
    runs: tuple[Run, ...]
    held: tuple[tuple[int, str], ...]


class Journal:
    """The file of one partition. Confirmed entries are read from it, one at a time."""

    def __init__(self, state: str, topic: str, partition: int) -> None:
        self.path = Path(state, "journal", _file_name(topic, partition))
        self.pending: Entry | None = None
        self.next_offset: int | None = None  # of the source, after what is confirmed
        self.records = self.bytes = 0
        self.is_there = self.path.exists()
        if self.is_there:
            for entry in self.entries():
                self.next_offset = entry.end
                self.records, self.bytes = self.records + entry.records, self.bytes + entry.bytes

    def entries(self) -> Iterator[Entry]:
        """Yields the confirmed entries; sets ``pending`` to the one after them, if there is one."""
        self.pending = None
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith("\n"):
                    return
                try:
                    said = json.loads(line)
                    entry = None if "is_committed" in said else _entry(said)
                except (ValueError, TypeError, KeyError):
                    raise UserError(
                        f"--state: {self.path}, line {number} can't be read: what is restored is not known; "
                        "delete the topics in the target, and name another --state"
                    ) from None
                if entry is None and said["is_committed"] and self.pending is not None:
                    yield self.pending
                self.pending = entry

    def intend(self, entry: Entry) -> None:
        """Notes what a transaction has, before it is committed."""
        self._append(asdict(entry))
        self.pending = entry

    def settle(self, is_committed: bool) -> None:
        """Notes whether the pending transaction was committed."""
        entry = self.pending
        if is_committed and entry is not None:
            self.next_offset = entry.end
            self.records, self.bytes = self.records + entry.records, self.bytes + entry.bytes
        self._append({"is_committed": is_committed, "in_all": [self.records, self.bytes]})
        self.pending = None

    def _append(self, said: dict[str, object]) -> None:
        with writing(f"--state {self.path}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                _drop_torn_line(file)
                file.write(json.dumps(said, separators=(",", ":")).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())


def _drop_torn_line(file: IO[bytes]) -> None:
    """Cuts off what a process that was killed, or had no room, had begun to write."""
    content_end = at = file.seek(0, os.SEEK_END)
    while at > 0:
        size = min(1 << 16, at)
        file.seek(at - size)
        found = file.read(size).rfind(b"\n")
        if found >= 0:
            at = at - size + found + 1
            break
        at -= size
    if at < content_end:
        file.truncate(at)
    file.seek(0, os.SEEK_END)


def _file_name(topic: str, partition: int) -> str:
    """Returns the name of a journal's file: the longest names of topics leave no room for an end."""
    name = f"{quote(topic, safe='')}-{partition}.jsonl"
    return name if len(name) <= _MOST_NAME else f"{sha256(topic.encode()).hexdigest()}-{partition}.jsonl"


def _entry(said: dict[str, Any]) -> Entry:
    held = tuple((offset, reason) for offset, reason in said.pop("held"))
    runs = tuple((first, n, to, new) for first, n, to, new in said.pop("runs"))
    return Entry(**said, runs=runs, held=held)


def confirmed(state: str) -> tuple[int, int]:
    """Returns the records and bytes that all journals of a state confirm, by the last lines of each."""
    folder, records, size = Path(state, "journal"), 0, 0
    for path in folder.iterdir() if folder.is_dir() else ():
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 16)))
            lines = [line for line in file.read().split(b"\n") if line.startswith(b'{"is_committed"')]
        with suppress(ValueError, KeyError):  # of the last line a part may be there
            own = json.loads(lines[-1])["in_all"] if lines else (0, 0)
            records, size = records + own[0], size + own[1]
    return records, size

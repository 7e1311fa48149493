"""What was confirmed of a partition: a small file a transaction, in a folder or in an object store.

A file is written before its transaction is committed: it says what the transaction has, with the offsets
that the target gave. It names the file before it, which says that that one was committed; whether the last
one was, the target says. Each file has a name of its own: a task that was taken for dead and still runs
replaces nothing, and what it began is of no transaction that was committed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.restore.files import Files

# Consecutive offsets of the source: first offset, how many, partition of the target, its first offset there
Run = tuple[int, int, int, int]
_MOST_NAME = 255  # bytes of a folder's name
_TOGETHER, _THREADS = 256, 16  # files that are read at a time


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


@dataclass(frozen=True)
class _Noted:
    """A file. before: the name of the one before it, "" for the first; in_all: records and bytes up to it.

    ends: the last offset that records up to it have in partitions of the target.
    """

    name: str
    before: str
    in_all: tuple[int, int]
    ends: dict[int, int]
    entry: Entry

    @property
    def number(self) -> int:
        return _number(self.name)


class Journal:
    """Reads and writes the files of one partition.

    Before ``find_last`` the last transaction may count as not confirmed.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._names: dict[int, list[str]] = defaultdict(list)
        for name in files.names():
            if number := _number(name):
                self._names[number].append(name)
        self.is_there = bool(self._names)
        self._pending: _Noted | None = None
        self._last: _Noted | None = None
        self.find_last(lambda _: False)

    @property
    def last(self) -> str:
        """Returns the name of the file of the last confirmed transaction; "" without one."""
        return "" if self._last is None else self._last.name

    @property
    def pending(self) -> str:
        """Returns the name of the file of a transaction that is being committed; "" without one."""
        return "" if self._pending is None else self._pending.name

    @property
    def next_offset(self) -> int | None:
        """Returns the offset of the source after what is confirmed; None where nothing is."""
        return None if self._last is None else self._last.entry.end

    @property
    def in_all(self) -> tuple[int, int]:
        """Returns the records and bytes that are confirmed."""
        return (0, 0) if self._last is None else self._last.in_all

    @property
    def ends(self) -> dict[int, int]:
        """Returns the last offset in each partition of the target that has confirmed records."""
        return {} if self._last is None else self._last.ends

    def find_last(self, is_committed: Callable[[Entry], bool]) -> None:
        """Finds the last confirmed transaction. is_committed: asks the target about one."""
        followed: set[str] = set()
        self._last = None
        for number in sorted(self._names, reverse=True):
            files = [noted for name in self._names[number] if (noted := self._read(name)) is not None]
            for noted in sorted(files, key=lambda noted: not noted.entry.runs):
                if noted.name in followed or not noted.entry.runs or is_committed(noted.entry):
                    self._last = noted
                    return
            followed |= {noted.before for noted in files}

    def entries(self) -> Iterator[Entry]:
        """Yields the confirmed transactions in their order."""
        if self._last is None:
            return
        names, name = [self._last.name], self._last.name
        for number in range(self._last.number - 1, 0, -1):
            there = self._names.get(number, [])
            name = there[0] if len(there) == 1 else self._known(name).before
            names.append(name)
        with ThreadPoolExecutor(_THREADS) as threads:
            for at in range(len(names), 0, -_TOGETHER):
                some = reversed(names[max(0, at - _TOGETHER) : at])
                yield from (noted.entry for noted in threads.map(self._known, some))

    def intend(self, entry: Entry) -> None:
        """Notes what a transaction has, before it is committed."""
        number = 1 if self._last is None else self._last.number + 1
        in_all = (self.in_all[0] + entry.records, self.in_all[1] + entry.bytes)
        ends = self.ends | {to: new + count - 1 for _, count, to, new in entry.runs}
        noted = _Noted(f"{number:010d}-{uuid4().hex[:12]}.json", self.last, in_all, ends, entry)
        said = {**asdict(entry), "before": noted.before, "in_all": noted.in_all, "ends": [*ends.items()]}
        self._files.write(noted.name, json.dumps(said, separators=(",", ":")).encode() + b"\n")
        self._names[number].append(noted.name)
        self._pending = noted

    def settle(self, is_committed: bool) -> None:
        """Takes the pending transaction for confirmed, or leaves it."""
        if is_committed and self._pending is not None:
            self._last = self._pending
        self._pending = None

    def close(self) -> None:
        """Notes that the last transaction is confirmed, so that nobody has to ask."""
        if self._last is not None and self._last.entry.runs:
            end = self._last.entry.end
            self.intend(Entry(end, end, 0, 0, self._last.entry.now, (), ()))
            self.settle(True)

    def _known(self, name: str) -> _Noted:
        if (noted := self._read(name)) is None:
            raise self._damaged(name or "a file")
        return noted

    def _read(self, name: str) -> _Noted | None:
        """Reads a file; returns None where it is not whole: its transaction was never committed."""
        content = self._files.read(name) if name else None
        if content is None or not content.endswith(b"\n"):
            return None
        try:
            said = json.loads(content)
            before, (records, size), ends = (said.pop(field) for field in ("before", "in_all", "ends"))
            return _Noted(name, before, (records, size), dict(ends), _entry(said))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self._damaged(name) from None

    def _damaged(self, name: str) -> UserError:
        return UserError(
            f"--state: {self._files.place}: {name} can't be read: what is restored is not known; "
            "delete the topics in the target, and name another --state"
        )


def open_journal(state: str, topic: str, partition: int) -> Journal:
    """Opens the journal of a partition of the source."""
    return Journal(Files(f"{state}/journal/{_folder_name(topic, partition)}"))


def confirmed(state: str) -> tuple[int, int]:
    """Returns the records and bytes that all journals of a state confirm."""
    folders = Files(f"{state}/journal").folders()
    totals = [Journal(Files(f"{state}/journal/{folder}")).in_all for folder in folders]
    return sum(records for records, _ in totals), sum(size for _, size in totals)


def _number(name: str) -> int:
    """Returns the number of a file by its name; 0 for a file of others, which is not read."""
    number, dash, _ = name.partition("-")
    return int(number) if dash and number.isdecimal() and name.endswith(".json") else 0


def _folder_name(topic: str, partition: int) -> str:
    """Returns the name of a journal's folder: the longest names of topics leave no room for an end."""
    name = f"{quote(topic, safe='')}-{partition}"
    return name if len(name) <= _MOST_NAME else f"{sha256(topic.encode()).hexdigest()}-{partition}"


def _entry(said: dict[str, Any]) -> Entry:
    held = tuple((offset, reason) for offset, reason in said.pop("held"))
    runs = tuple((first, n, to, new) for first, n, to, new in said.pop("runs"))
    return Entry(**said, runs=runs, held=held)

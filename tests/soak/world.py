"""A small world of log directories, on disk and as a job lists them.

What its dice give depends on the world alone, never on a lake: the same seed gives the same world.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.logs import Folder

_START = 1_700_000_000


@dataclass
class Listed:
    """A folder as a job lists it: base offset -> (bytes, modification time, positions of turned-over bits).

    topic_ids: of files that were landed before or after the topic was made again. log_starts: of landed
    files, the first base offset of the folder when they were landed.
    """

    topic: str
    partition: int
    topic_id: str | None
    files: dict[int, tuple[bytes, int, frozenset[int]]]
    topic_ids: dict[int, str | None] = field(default_factory=dict)
    log_starts: dict[int, int] = field(default_factory=dict)


@dataclass
class World:
    """Folders on disks below ``root``; links lead to folders next to it."""

    root: Path
    draw: random.Random
    folders: list[Folder] = field(default_factory=list)
    clock: int = _START
    _ids: int = 0
    _links: set[Path] = field(default_factory=set)
    _written: dict[Path, tuple[bytes, int]] = field(default_factory=dict)

    def new_id(self) -> str:
        self._ids += 1
        return f"topic-id-{self._ids:013d}"

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def listing(self, disks: set[str] | None = None) -> dict[str, Listed]:
        """What a job lists, by the folder's URI; disks: those that it is given, None for all."""
        found = {}
        for folder in self.folders:
            if folder.files and (disks is None or folder.disk in disks):
                files = {f.base: (f.bytes(), f.mtime, frozenset(f.touched)) for f in folder.files}
                found[f"file://{folder.path}"] = Listed(
                    folder.topic, folder.partition, folder.topic_id, files
                )
        return found

    def exists(self, uri: str) -> bool:
        return os.path.lexists(uri.removeprefix("file://"))

    def write(self) -> None:
        """Brings the disk to what the world says."""
        wanted: dict[Path, tuple[bytes, int]] = {}
        for folder in self.folders:
            wanted |= folder.bytes()
        for path in self._written.keys() - wanted.keys():
            path.unlink()
        places = {folder.real or folder.path for folder in self.folders}
        for place in {path.parent for path in self._written} - places:
            shutil.rmtree(place, ignore_errors=True)
        links = {folder.path for folder in self.folders if folder.real}
        for gone in self._links - links:
            gone.unlink()
        self._links = links
        self._write_folders()
        for path, (data, mtime) in wanted.items():
            if self._written.get(path) != (data, mtime) or not path.exists():
                path.write_bytes(data)
                os.utime(path, (mtime, mtime))
        self._written = wanted

    def _write_folders(self) -> None:
        for folder in self.folders:
            place = folder.real or folder.path
            place.mkdir(parents=True, exist_ok=True)
            if folder.real and (not folder.path.is_symlink() or folder.path.readlink() != place):
                folder.path.parent.mkdir(parents=True, exist_ok=True)
                folder.path.unlink(missing_ok=True)
                folder.path.symlink_to(place)
            metadata = place / "partition.metadata"
            if folder.topic_id:
                metadata.write_text(f"version: 0\ntopic_id: {folder.topic_id}\n")

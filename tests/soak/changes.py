"""How log directories change between two runs: by brokers, by operators, by crashes and disks.

Every method of ``Changes`` is one kind of change; it says what it did, or "" where it could not.
"""

from __future__ import annotations

from pathlib import Path

from tests.soak.logs import V2_HEADER, File, Folder, Maker, Piece, copied
from tests.soak.world import World

_MOST_BATCHES = 30
DISKS = ("disk-1", "disk-2", "disk-3")


class Changes:
    """The kinds of changes. Names of methods without an underscore are their names."""

    def __init__(self, world: World, with_transactions: bool = True) -> None:
        self.world, self.draw = world, world.draw
        self.maker = Maker(self.draw, with_transactions)
        self.asides: list[str] = []  # what happened besides, for the report

    def start(self, partitions: int, with_links: bool) -> None:
        for number in range(partitions):
            topic_id = self.world.new_id() if self.draw.random() < 0.6 else None
            folder = Folder(self.world.root / "disk-1" / f"t{number}-0", f"t{number}", 0, topic_id)
            if with_links and number == 0:
                folder.real = self._elsewhere()
            folder.files = [File(0, mtime=self.world.tick())]
            self.world.folders.append(folder)
            for _ in range(self.draw.randrange(4)):
                self._append(folder, self.draw.randint(1, 4))
                self._roll(folder)
        self.world.write()

    def _elsewhere(self) -> Path:
        return self.world.root.parent / "elsewhere" / self.world.new_id()

    def _folder(self) -> Folder:
        return self.draw.choice(self.world.folders)

    def _append(self, folder: Folder, count: int) -> None:
        file = folder.active
        file.cut, file.junk, file.hollow = None, b"", False
        for _ in range(count):
            file.pieces.append(self.maker.make(folder, file.end))
        if file.size < file.laid_out:
            return  # the blocks were there already: the modification time may stay
        file.laid_out = 0
        file.mtime = self.world.tick()

    # As a broker does

    def growth(self) -> str:
        folder = self._folder()
        if len(folder.active.pieces) >= _MOST_BATCHES:
            return self._roll(folder)
        count = self.draw.randint(1, 4)
        self._append(folder, count)
        return f"{name(folder)} grows by {count} to {folder.active.end}"

    def roll(self) -> str:
        return self._roll(self._folder())

    def _roll(self, folder: Folder) -> str:
        if not folder.active.pieces:
            return ""
        folder.active.clear()
        folder.files.append(File(folder.active.end, mtime=self.world.tick()))
        if self.draw.random() < 0.7:
            self._append(folder, 1)
        return f"{name(folder)} rolls at {folder.active.base}"

    def retention(self) -> str:
        folder = self._settled()
        count = min(self.draw.randint(1, 2), len(folder.files) - 1)
        if count < 1:
            return ""
        del folder.files[:count]
        return f"{name(folder)} loses {count} by retention, begins at {folder.files[0].base}"

    def compaction(self) -> str:
        folder = self._settled()
        closed = [file for file in folder.files[:-1] if file.pieces]
        if not closed:
            return ""
        file = self.draw.choice(closed)
        self._clean(file, file.pieces)
        return f"{name(folder)} compacts {file.base}"

    def _clean(self, file: File, pieces: list[Piece]) -> None:
        file.rewrite(self.maker.cleaned(pieces))
        if self.draw.random() < 0.5:
            file.mtime = self.world.tick()

    def merge(self) -> str:
        return self._merge(swallowed_stays=False)

    def merge_by_copy(self) -> str:
        """As seen through a copy in progress: the merged file is there before the swallowed one goes."""
        return self._merge(swallowed_stays=True)

    def _merge(self, swallowed_stays: bool) -> str:
        folder = self._settled()
        if len(folder.files) < 3:
            return ""
        place = self.draw.randrange(len(folder.files) - 2)
        first, second = folder.files[place : place + 2]
        pieces = first.pieces + second.pieces
        if self.draw.random() < 0.5:
            first.rewrite(pieces)  # both clean: their bytes one after the other
        else:
            self._clean(first, pieces)
        first.mtime = second.mtime
        folder.swallowed = second
        if not swallowed_stays:
            self._settle(folder)
        return f"{name(folder)} merges {second.base} into {first.base}" + " by copy" * swallowed_stays

    def truncation(self) -> str:
        """A new leader's log is shorter: segments after an offset go, the one that holds it is cut."""
        folder = self._settled()
        ends = [(file, n) for file in folder.files[-3:] for n in range(len(file.pieces))]
        if not ends:
            return ""
        file, count = self.draw.choice(ends)
        self._truncate(folder, file, count)
        return f"{name(folder)} is truncated to {file.end}, {count} batches left of {file.base}"

    def emptying(self) -> str:
        folder = self._settled()
        file = self.draw.choice(folder.files[-2:])
        self._truncate(folder, file, 0)
        return f"{name(folder)} is truncated to nothing of {file.base}"

    def _truncate(self, folder: Folder, file: File, count: int) -> None:
        del folder.files[folder.files.index(file) + 1 :]
        file.clear()
        del file.pieces[count:]
        file.flips = {at: mask for at, mask in file.flips.items() if at < file.size}
        file.touched = {at for at in file.touched if at < file.size}
        file.mtime = self.world.tick()

    def recreation(self) -> str:
        """The topic is deleted and made again under its name, on any disk."""
        old = self._folder()
        self.world.folders = [f for f in self.world.folders if f.topic != old.topic]
        new_id = self.world.new_id() if old.topic_id else None
        path = old.path if old.real else self._place(old, self.draw.choice(DISKS))
        new = Folder(path, old.topic, old.partition, new_id, real=old.real and self._elsewhere())
        new.files = [File(0, mtime=self.world.tick())]
        self.world.folders.append(new)
        for _ in range(self.draw.randint(0, 3)):
            self._append(new, self.draw.randint(1, 3))
            self._roll(new)
        return f"{old.topic} is made again on {new.disk}, up to {new.active.end}"

    # As an operator does

    def move(self) -> str:
        """The partition moves to another disk."""
        folder = self._settled()
        path = self._free_place(folder)
        if path is None or folder.real:
            return ""
        folder.path = path
        return f"{folder.topic} moves to {folder.disk}"

    def replica(self) -> str:
        """A second copy of a partition, after the first or not; or it goes."""
        folder = self._settled()
        others = [f for f in self.world.folders if f.topic == folder.topic and f is not folder]
        if others:
            self.world.folders.remove(others[0])
            return f"{name(others[0])} goes"
        path = self._free_place(folder)
        if path is None:
            return ""
        new = copied(folder, path)
        file = self.draw.choice(new.files)
        self._truncate(new, file, self.draw.randint(0, len(file.pieces)))
        self.world.folders.append(new)
        return f"{name(new)} is a copy of {name(folder)}, up to {new.active.end}"

    def link(self) -> str:
        """A link points elsewhere: to the same log at another state."""
        linked = [folder for folder in self.world.folders if folder.real]
        if not linked:
            return ""
        folder = linked[0]
        self._settle(folder)
        folder.real = self._elsewhere()
        file = self.draw.choice(folder.files)
        self._truncate(folder, file, self.draw.randint(0, len(file.pieces)))
        self._append(folder, self.draw.randint(0, 6))
        return f"{name(folder)} points elsewhere: other bytes in {file.base}, up to {folder.active.end}"

    def copying(self) -> str:
        """A file is being copied: it ends anywhere, though closed."""
        folder = self._folder()
        file = self.draw.choice(folder.files)
        if file.size < 2 or file.junk or file.laid_out:
            return ""
        file.cut = self.draw.randrange(file.size)
        file.mtime = self.world.tick()
        return f"{name(folder)}: {file.base} is copied up to byte {file.cut} of {file.size}"

    def copies_end(self) -> str:
        """All copies come to their ends."""
        done = [
            f"{name(f)}: {file.base}" for f in self.world.folders for file in f.files if file.cut is not None
        ]
        for folder in self.world.folders:
            for file in folder.files:
                if file.cut is not None:
                    file.cut, file.mtime = None, self.world.tick()
            done += [f"{name(folder)}: {folder.swallowed.base} goes"] if folder.swallowed else []
            self._settle(folder)
        return f"copies end: {', '.join(done)}" if done else ""

    def loss(self) -> str:
        """A file from the middle is lost."""
        folder = self._settled()
        if len(folder.files) < 3:
            return ""
        file = self.draw.choice(folder.files[1:-1])
        folder.files.remove(file)
        return f"{name(folder)}: {file.base} is lost"

    # As a crash or a disk does

    def laid_out(self) -> str:
        """Space is laid out as zeros; what is written into it later need not change the modification time."""
        folder = self._folder()
        file = folder.active
        if file.junk or file.cut is not None or file.hollow:
            return ""
        file.laid_out = max(file.laid_out, file.size) + self.draw.randint(1, 600)
        file.mtime = self.world.tick()
        return f"{name(folder)}: {file.base} is laid out up to byte {file.laid_out}"

    def junk(self) -> str:
        """Junk after the last batch; the broker cuts it off before it writes on."""
        folder = self._folder()
        file = folder.active
        if file.laid_out or file.cut is not None:
            return ""
        kind = self.draw.randrange(3)
        stale = self.maker.make(folder, file.end).data
        if kind == 0:
            file.junk = self.draw.randbytes(self.draw.randint(1, 200))
        elif kind == 1:
            file.junk = stale[self.draw.randrange(len(stale)) :]
        else:
            file.junk = stale[: self.draw.randint(1, len(stale))] + self.draw.randbytes(30)
        file.mtime = self.world.tick()
        return f"{name(folder)}: {len(file.junk)} bytes of junk after {file.base}"

    def hollow(self) -> str:
        """A new last batch whose header reached the disk before its payload; or the payload is there now."""
        folder = self._folder()
        file = folder.active
        if file.hollow:
            file.hollow = False
            if self.draw.random() < 0.5:
                file.mtime = self.world.tick()
            return f"{name(folder)}: the last payload of {file.base} is there"
        file.clear()
        self._append(folder, 1)
        last = file.pieces[-1]
        if last.made is None or len(last.data) < V2_HEADER + 8:
            return f"{name(folder)} grows by 1 to {file.end}"
        file.hollow = True
        return f"{name(folder)}: the payload of a new last batch of {file.base}, {last.first}, is zeros"

    def damage(self) -> str:
        """A byte in the middle of a file is not what it was; its modification time may be."""
        folder = self._folder()
        file = self.draw.choice(folder.files)
        if len(file.pieces) < 3 or file.cut is not None:
            return ""
        place = self.draw.randrange(1, len(file.pieces) - 1)
        begin = sum(len(piece.data) for piece in file.pieces[:place])
        at = begin + self.draw.randrange(V2_HEADER, max(V2_HEADER + 1, len(file.pieces[place].data)))
        if at >= begin + len(file.pieces[place].data):
            return ""
        file.flips[at] = file.flips.get(at, 0) ^ self.draw.randint(1, 255) or 1
        file.touched.add(at)
        if self.draw.random() < 0.5:
            file.mtime = self.world.tick()
        return f"{name(folder)}: byte {at} of {file.base} is damaged"

    def repair(self) -> str:
        """Damaged bytes are put right: the file is written anew."""
        hurt = [(folder, file) for folder in self.world.folders for file in folder.files if file.flips]
        if not hurt:
            return ""
        folder, file = self.draw.choice(hurt)
        file.flips, file.mtime = {}, self.world.tick()
        return f"{name(folder)}: {file.base} is put right"

    def _settled(self) -> Folder:
        """A folder in which no swallowed file is left."""
        folder = self._folder()
        self._settle(folder)
        return folder

    def _settle(self, folder: Folder) -> None:
        if folder.swallowed in folder.files:
            folder.files.remove(folder.swallowed)
            self.asides.append(f"{name(folder)}: {folder.swallowed.base} goes; ")
        folder.swallowed = None

    def _place(self, folder: Folder, disk: str) -> Path:
        return self.world.root / disk / f"{folder.topic}-{folder.partition}"

    def _free_place(self, folder: Folder) -> Path | None:
        """A place on another disk where no copy of the partition is."""
        taken = {f.path for f in self.world.folders}
        free = [p for p in (self._place(folder, disk) for disk in DISKS) if p not in taken]
        return self.draw.choice(free) if free else None


def name(folder: Folder) -> str:
    return f"{folder.disk}/{folder.path.name}"


KINDS = tuple(kind for kind in vars(Changes) if not kind.startswith("_") and kind != "start")

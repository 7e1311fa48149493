"""Random disks of one broker, and the exit code that ``find`` has to give for a key that is nowhere.

The model knows what was written, and what was then taken away; it reads no file, and shares no code with
``find``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.logs import batch, put

EVER = 1 << 62
Range = tuple[int, int]  # first and last offset


@dataclass
class Piece:
    """A record batch."""

    first: int
    last: int
    content: bytes
    is_sound: bool = True


@dataclass
class ModelLog:
    """A log, as it is left on the disk.

    files, deleted: base offset -> batches, of live and ``.log.deleted`` files. torn: the claim of an
    incomplete last batch and its bytes; the claim is None where its header is cut. zeros: bytes after the
    last batch.
    """

    partition: int
    files: dict[int, list[Piece]] = field(default_factory=dict)
    deleted: dict[int, list[Piece]] = field(default_factory=dict)
    zeroed: set[int] = field(default_factory=set)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    high_watermark: int | None = None
    torn: tuple[Range | None, bytes] | None = None
    zeros: int = 0
    is_gone: bool = False

    def write(self, disk: Path) -> None:
        folder = disk / f"a-{self.partition}"
        if self.is_gone:
            return
        folder.mkdir(parents=True)
        last = max(self.files, default=-1)
        for base, pieces in self.files.items():
            content = b"".join(one.content for one in pieces)
            if base in self.zeroed:
                content = bytes(len(content))
            elif base == last:
                content += (self.torn[1] if self.torn else b"") + bytes(self.zeros)
            put(folder, base, content)
        for base, pieces in self.deleted.items():
            path = put(disk / "other", base, *(one.content for one in pieces))
            path.rename(folder / f"{base:020d}.log.deleted")
        if self.epochs:
            write_checkpoint(folder / "leader-epoch-checkpoint", [f"{e} {at}" for e, at in self.epochs])

    def unsearched(self, include_deleted: bool) -> list[Range]:
        """The offsets that something names and that no search sees."""
        named = [self.high_watermark or 0, *(at for _, at in self.epochs[-1:] if not self.is_gone)]
        found: list[Range] = []
        have: set[int] = set()
        bases = sorted(self.files) if not self.is_gone else []
        for base, limit in zip(bases, [*bases[1:], EVER], strict=False):
            if base in self.zeroed:
                found.append((base, limit - 1))
                continue
            sound = [one for one in self.files[base] if one.is_sound]
            have.update(offset for one in sound for offset in range(one.first, one.last + 1))
            for one in (each for each in self.files[base] if not each.is_sound):
                after = [other.first for other in sound if other.first > one.first]
                found += [(one.first, min(after, default=limit) - 1)]
        end = max([*bases[-1:], *(offset + 1 for offset in have)], default=0)
        if bases and self.torn is not None:
            found.append(self.torn[0] or (end, EVER))
        elif bases and self.zeros:
            found.append((end, EVER))
        begins = [at for _, at in self.epochs[:1] if not self.is_gone]
        missing = set(range(min([*begins, *bases[:1]], default=0), max([end, *named]))) - have
        for base, pieces in {} if self.is_gone else self.deleted.items():
            if include_deleted:
                missing -= {offset for one in pieces for offset in range(one.first, one.last + 1)}
            else:
                found.append((base, EVER))
        if not self.epochs and bases and bases[0] > 0:
            found.append((0, bases[0] - 1))
        return found + [(offset, offset) for offset in missing]

    @property
    def names_start(self) -> bool:
        """Whether a file says where it begins."""
        return bool(self.epochs) or self.is_gone or not self.files or min(self.files) == 0

    @property
    def is_known(self) -> bool:
        own = self.files or self.deleted or self.epochs
        return self.high_watermark is not None or bool(own and not self.is_gone)


def write_checkpoint(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def made_log(chance: random.Random, partition: int) -> ModelLog:
    """A whole log."""
    log, at, epoch = ModelLog(partition), chance.choice((0, 0, 0, 40)), 0
    has_epochs = chance.random() < 0.6
    for _ in range(chance.randint(2, 4)):
        base, pieces = at, []
        for _ in range(chance.randint(1, 3)):
            if has_epochs and (not log.epochs or chance.random() < 0.2):
                epoch += 1
                log.epochs.append((epoch, at))
            number = chance.randint(1, 3)
            content = batch(at, number, leader_epoch=epoch, codec=chance.choice((0, 2)))
            pieces.append(Piece(at, at + number - 1, content))
            at += number
        log.files[base] = pieces
    log.high_watermark = chance.choice((None, at, at - 1))
    return log


def hurt(log: ModelLog, chance: random.Random) -> None:
    """Takes something away from a whole log, or leaves it whole."""
    bases = sorted(log.files)
    kinds = ("none", "gone", "none left", "lost", "torn", "zeroed", "zeros", "flipped", "deleted")
    kind = chance.choice(kinds)
    base = chance.choice(bases)
    if kind == "gone":
        log.is_gone = True
    elif kind == "none left":
        log.files = {}
    elif kind == "lost":
        del log.files[base]
    elif kind == "torn":
        last = log.files[bases[-1]].pop()
        cut = chance.randrange(1, len(last.content))
        log.torn = (last.first, last.last) if cut >= 61 else None, last.content[:cut]
    elif kind == "zeroed":
        log.zeroed.add(base)
    elif kind == "zeros":
        log.zeros = chance.choice((10, 500))
    elif kind == "flipped":
        one = chance.choice(log.files[base])
        one.content, one.is_sound = one.content[:-1] + bytes([one.content[-1] ^ 4]), False
    elif kind == "deleted":
        log.deleted[base] = log.files.pop(base)


def expected_code(
    logs: list[ModelLog], partition: int | None, offsets: Range | None, include_deleted: bool
) -> int:
    """The exit code of a search for a key that is nowhere."""
    known = {log.partition for log in logs if log.is_known}
    if not known or partition not in {None, *known}:
        return 2
    low, high = offsets or (0, EVER)
    for log in logs:
        if partition in (None, log.partition):
            for first, last in log.unsearched(include_deleted):
                is_start = not log.names_start and last < min(log.files)  # counts where offsets are requested
                if first <= high and last >= low and (offsets is not None or not is_start):
                    return 5
    return 4

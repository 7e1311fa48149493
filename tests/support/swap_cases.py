"""Partition folders as a crash leaves them while the log cleaner, or a split, puts its files in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.logs import batch, batches, put
from tests.support.segment_maker import segment_name

# Records 0 and 1 of the first batch are gone, as keys that came again
CLEANED = [batch(0, 1), *batches(3, 4)]
SPLIT = batches(0, 6)


def put_leftover(folder: Path, base: int, suffix: str, *content: bytes) -> Path:
    """A file that is no segment yet, or none any more."""
    path = put(folder, base, *content)
    return path.rename(path.with_name(path.name + suffix))


def old_segments_there(folder: Path) -> None:
    put_leftover(folder, 0, ".swap", *CLEANED)
    put(folder, 9, *batches(9, 2))
    put(folder, 15, *batches(15, 2))
    put(folder, 0, *batches(0, 3))


def only_copy(folder: Path) -> None:
    put_leftover(folder, 0, ".swap", *CLEANED)
    put(folder, 15, *batches(15, 2))


def half_of_the_old_deleted(folder: Path) -> None:
    put_leftover(folder, 0, ".deleted", *batches(0, 3))
    put_leftover(folder, 0, ".swap", *CLEANED)
    put(folder, 9, *batches(9, 2))
    put(folder, 15, *batches(15, 2))


def split_in_two(folder: Path) -> None:
    put_leftover(folder, 0, ".swap", *SPLIT[:3])
    put_leftover(folder, 9, ".swap", *SPLIT[3:])
    put(folder, 0, *SPLIT)
    put(folder, 18, batch(18))


def split_that_was_half_renamed(folder: Path) -> None:
    put(folder, 0, *SPLIT[:3])
    put_leftover(folder, 9, ".swap", *SPLIT[3:])
    put(folder, 18, batch(18))


def split_not_finished(folder: Path) -> None:
    put_leftover(folder, 0, ".cleaned", *SPLIT[:3])
    put_leftover(folder, 9, ".swap", *SPLIT[3:])
    put(folder, 0, *SPLIT)
    put(folder, 18, batch(18))


def index_not_finished(folder: Path) -> None:
    put_leftover(folder, 9, ".swap", *SPLIT[3:])
    put(folder, 0, *SPLIT)
    put(folder, 18, batch(18))
    (folder / f"{0:020d}.timeindex.cleaned").write_bytes(b"")


def cleaned_after_it(folder: Path) -> None:
    """The next group was being cleaned already."""
    put_leftover(folder, 0, ".swap", *CLEANED)
    put_leftover(folder, 15, ".cleaned", batch(15))
    put(folder, 15, *batches(15, 2))
    put(folder, 21, batch(21))


def emptied(folder: Path) -> None:
    put_leftover(folder, 0, ".swap")
    put(folder, 0, *batches(0, 3))
    put(folder, 9, *batches(9, 2))


def index_alone(folder: Path) -> None:
    put(folder, 0, *batches(0, 3))
    put(folder, 9, *batches(9, 2))
    (folder / f"{0:020d}.index.swap").write_bytes(b"")


CASES: list[Callable[[Path], None]] = [
    old_segments_there,
    only_copy,
    half_of_the_old_deleted,
    split_in_two,
    split_that_was_half_renamed,
    split_not_finished,
    index_not_finished,
    cleaned_after_it,
    emptied,
    index_alone,
]


def finish(folder: Path) -> None:
    """What a broker does with ``old_segments_there``, ``only_copy`` and ``split_in_two`` when it starts."""
    swaps = {int(path.name[:20]): path for path in folder.glob("*.log.swap")}
    for path in folder.glob("*.log"):
        if int(path.stem) < (15 if len(swaps) == 1 else 18):
            path.unlink()
    for base, path in swaps.items():
        path.rename(folder / segment_name(base))

"""Does with the log cleaner's swap files what a broker does when it starts, without a change to any file.

The log cleaner, and the split of a segment, write new segments as ``.log.cleaned``, rename all of them to
``.log.swap``, then delete the segments that they were made of, then rename them to ``.log``
(``LocalLog.replaceSegments``). After a crash in between the broker completes that (``LogLoader.load``):

* swap files at or past the lowest ``.cleaned`` file are removed: not all of their set had been renamed;
* segments from the first swap file's base offset up to the last one's next offset are removed, as the swap
  files take their place;
* swap files become segments.

So a swap file may be the only copy of its records, or hold what older segments hold too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_log_lake.pipelines.listing.naming import (
    CLEANED_SUFFIX,
    REPLACED,
    SWAP_NOT_WHOLE,
    SWAP_SUFFIX,
    SWAP_UNFINISHED,
    UNREADABLE,
    File,
    Folder,
    offset_left,
    parse_file,
)
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX, file_name
from kafka_log_lake.udfs.storage.byte_source import SourceError


class End(NamedTuple):
    """The end of the batches of a swap file.

    next_offset: after the last batch that headers lead to; the file's base offset if it has none. is_whole:
    whether headers lead to the end of the file.
    """

    next_offset: int
    is_whole: bool


# URI of a swap file, its base offset, its length in bytes -> its end. Raises a SourceError
ReadEnd = Callable[[str, int, int], End]


@dataclass
class Completed:
    """A folder's segments once its swap files are in place.

    files: segments under their final names, and ``.log`` files of other names. swaps: final name of a segment
    -> URI of the swap file that holds its bytes. replaced: names of segments that they take the place of.
    skipped: reason -> files. unreadable: URI of a swap file -> why it can't be read.
    """

    files: list[File]
    swaps: dict[str, str] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)


def segments_alone(files: Iterable[File]) -> list[File]:
    """Returns the ``.log`` files of a folder."""
    return [file for file in files if file.name.endswith(SEGMENT_SUFFIX)]


def complete_swaps(folder: Folder, read_end: ReadEnd) -> Completed:
    """Returns the segments of a folder as a broker has them once it has started.

    Where headers do not lead to the end of every swap file, none is put in place as long as the first segment
    that they were made of is there: the broker deletes these in the order of offsets, so all of them are.
    """
    files = folder.files
    done = Completed(segments_alone(files))
    cleaned = [offset for file in files if (offset := offset_left(file.name, CLEANED_SUFFIX)) is not None]
    swaps = {base: file for file in files if (base := offset_left(file.name, SWAP_SUFFIX)) is not None}
    for base in [base for base in swaps if cleaned and base >= min(cleaned)]:
        done.skipped[SWAP_UNFINISHED] += swaps.pop(base).wanted
    if not swaps:
        return done
    segments = {at: file for file in done.files if isinstance(at := parse_file(file.name), int)}
    first, ends = min(swaps), _ends(folder.uri, swaps, read_end, done)
    if first in segments and not all(offset in ends and ends[offset].is_whole for offset in swaps):
        done.skipped[SWAP_NOT_WHOLE] += sum(swaps[offset].wanted for offset in ends)
        return done
    last = max((end.next_offset for end in ends.values()), default=first)
    replaced = {offset for offset in segments if offset in ends or (ends and first <= offset < last)}
    done.replaced = {segments[offset].name for offset in replaced}
    done.files = [file for file in done.files if file.name not in done.replaced]
    for offset in sorted(ends):
        file, name = swaps[offset], file_name(offset)
        old = segments.get(offset)
        done.files.append(file._replace(name=name, wanted=file.wanted or (old is not None and old.wanted)))
        done.swaps[name] = f"{folder.uri}/{file.name}"
    done.skipped[REPLACED] += sum(segments[offset].wanted for offset in replaced)
    return done


def _ends(folder: str, swaps: Mapping[int, File], read_end: ReadEnd, done: Completed) -> dict[int, End]:
    """Returns the ends of the swap files that can be read, by base offset; adds the others to ``done``."""
    ends: dict[int, End] = {}
    for offset, file in sorted(swaps.items()):
        uri = f"{folder}/{file.name}"
        try:
            ends[offset] = read_end(uri, offset, file.length)
        except SourceError as error:
            done.unreadable[uri] = str(error)
            done.skipped[UNREADABLE] += 1
    return ends

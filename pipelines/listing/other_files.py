"""Tells what files of a source are that have no segment's name, and finds segments among them.

Somebody may have renamed a segment: the base offset of its first batch then is what the name would say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kafka_log_lake.pipelines.listing.naming import NO_SEGMENT, File, Folder, parse_file
from kafka_log_lake.udfs.format.layout import MAX_OFFSET
from kafka_log_lake.udfs.storage.byte_source import path_of_uri
from kafka_log_lake.udfs.storage.foreign import SUFFIXES, name_kind


def other_files(folder: str, names: Sequence[str]) -> Counter[str]:
    """Counts the files in a folder that do not end as a segment does and are another program's, by reason."""
    may_be = [name for name in names if name.endswith(SUFFIXES) and not name.endswith(".log")]
    return Counter(kind for name in may_be if (kind := name_kind(folder, name)) is not None)


def why_skipped(folder: str, name: str, reason: str) -> str:
    """Returns the reason why a ``.log`` file is skipped: what it is by its name, else the given reason."""
    return name_kind(folder, name) or reason


def renamed_segments(folder: Folder, segments: Sequence[tuple[int, File]]) -> list[tuple[int, File]]:
    """Returns the ``.log`` files with other names that begin with a sound batch, by their first offsets.

    folder: named by a source, or a file in it. segments: its segments with the names of Kafka.
    """
    if not folder.is_named:
        return []
    known = {base for base, _ in segments}
    renamed = []
    for file in folder.files:
        is_renamed = file.name.endswith(".log") and parse_file(file.name) == NO_SEGMENT and file.length
        path = path_of_uri(f"{folder.uri}/{file.name}") if is_renamed else None
        base = None if path is None else _first_offset(path)
        if base is not None and base not in known:
            known.add(base)
            renamed.append((base, file))
    return renamed


def _first_offset(path: str) -> int | None:
    """Returns the first offset of a file whose first batch is sound; None for any other file."""
    from kafka_log_lake.udfs.files import decode_segment  # kernels, which few listings need

    damages = list[object]()
    try:
        for batch in decode_segment(
            path, columns=("offset",), on_damage=damages.append, window_bytes=1 << 20
        ):
            if damages or not batch.num_rows:
                return None
            offset: int = batch.column("offset")[0].as_py()
            return offset if 0 <= offset <= MAX_OFFSET else None
    except (OSError, ValueError):
        pass
    return None

"""What a listing gives of a folder, whatever file system it is on."""

from __future__ import annotations

from typing import NamedTuple


class File(NamedTuple):
    """A file of a partition folder: a segment, or one that the log cleaner left next to segments.

    modified: microseconds since 1970 UTC. wanted: False if no source names the file, and it was listed only
    because another file of its folder was named.
    """

    name: str
    length: int
    modified: int
    wanted: bool


class Folder(NamedTuple):
    """A folder with its ``.log`` files, and those of the log cleaner where they are requested.

    uri: canonical, no trailing slash. topic_id: None if unknown.
    """

    uri: str
    files: list[File]
    topic_id: str | None

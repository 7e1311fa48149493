"""Disks that were copied into an object store: a folder of this machine that looks like one of them.

Files next to segments are fetched whole. A segment is an empty file of its size and time: its bytes are read
where they are. The metadata log of a controller is fetched too.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from functools import cache

from pipelines.command.errors import UserError
from pipelines.source.naming import SEGMENT_SUFFIX, parse_folder
from pipelines.source.stores import list_files
from udfs.indexes.files import OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from udfs.indexes.kraft_snapshot import METADATA_TOPIC
from udfs.source.store import open_store, reason_of

_NAMES_ALONE = (SEGMENT_SUFFIX, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, ".deleted")


@cache
def _folder() -> str:
    """The folder of this process for all mirrors; it goes with the process."""
    folder = tempfile.mkdtemp(prefix="kafka-log-lake-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def mirrored(uri: str) -> str:
    """The folder that looks like the disk, or the part of one, at a canonical URI.

    Raises a UserError for one that can't be listed or read.
    """
    places = [uri]
    if not isinstance(parse_folder(uri), str):
        places.append(uri.rpartition("/")[0])  # meta.properties and checkpoints of the disk lie there
    for place in places:
        table, _ = list_files(place, ("",))
        for path, length, modified in zip(*table.to_pydict().values(), strict=True):
            if place == uri or path.rpartition("/")[0] == place:
                _make(path, length, modified)
    return _local(uri)


def original(text: str) -> str:
    """A path or URI, or a text with some, in which those of mirrors are the URIs of what they are for."""
    return re.sub(rf"(file://)?{re.escape(_folder())}/([a-z0-9]+)/", r"\2://", text)


def _local(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    return f"{_folder()}/{scheme}/{rest}".rstrip("/")


def _make(uri: str, length: int, modified: int) -> None:
    """modified: microseconds since 1970 UTC."""
    path = _local(uri)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    is_name_alone = path.endswith(_NAMES_ALONE) and f"/{METADATA_TOPIC}-" not in path
    try:
        with open(path, "wb") as out:
            if is_name_alone:
                out.truncate(length)
            else:
                system, place = open_store(uri)
                with system.open_input_stream(place) as source:
                    shutil.copyfileobj(source, out)
    except OSError as error:
        raise UserError(f"{uri} can't be read: {reason_of(error)}") from None
    os.utime(path, ns=(modified * 1000, modified * 1000))

"""Mirrors the disks of brokers that were copied into an object store as folders of this machine.

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

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.listing.naming import parse_folder
from kafka_log_lake.pipelines.listing.stores import list_files
from kafka_log_lake.udfs.batches.account import REMOTE_METADATA
from kafka_log_lake.udfs.format.file_names import SEGMENT_SUFFIX
from kafka_log_lake.udfs.indexes.files import OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC
from kafka_log_lake.udfs.storage.byte_source import reason_of
from kafka_log_lake.udfs.storage.store import open_store

_FETCHED = (METADATA_TOPIC, REMOTE_METADATA)
_NAMES_ALONE = (SEGMENT_SUFFIX, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, ".deleted")


@cache
def _folder() -> str:
    """Returns the temporary folder for all mirrors, which is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="kafka-log-lake-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def mirrored(uri: str) -> str:
    """Makes a local folder that looks like the disk, or a part of one, at a canonical URI; returns its path.

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
    """Returns a text in which paths and URIs of mirrors are replaced by the URIs that they mirror."""
    return re.sub(rf"(file://)?{re.escape(_folder())}/([a-z0-9]+)/", r"\2://", text)


def _local(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    return f"{_folder()}/{scheme}/{rest}".rstrip("/")


def _make(uri: str, length: int, modified: int) -> None:
    """Makes the local file that mirrors a URI. modified: microseconds since 1970 UTC."""
    path = _local(uri)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    is_name_alone = path.endswith(_NAMES_ALONE) and not any(f"/{topic}-" in path for topic in _FETCHED)
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

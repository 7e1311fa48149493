"""Opens a segment by its URI: a file, an object of a store, or a list of pieces."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafka_log_lake.udfs import now_reading
from kafka_log_lake.udfs.storage.byte_source import (
    MANIFEST,
    PIECES,
    FileSource,
    path_of_uri,
    split_range,
)

if TYPE_CHECKING:
    from kafka_log_lake.udfs.storage.object_source import ObjectSource
    from kafka_log_lake.udfs.storage.pieces import PiecesSource
    from kafka_log_lake.udfs.storage.tier_object import TierObject


def open_named(path: str) -> FileSource | ObjectSource | PiecesSource | TierObject:
    """Opens a ``.log`` file or object that a person names: by its manifest, where one lies next to it.

    Raises a SourceError.
    """
    manifest = path.removesuffix(".log") + MANIFEST
    if (
        path.endswith(".log")
        and path_of_uri(path) is not None
        and os.path.exists(path_of_uri(manifest) or "")
    ):
        return open_source(manifest)
    return open_source(path)


def open_source(uri: str, stop: int | None = None) -> FileSource | ObjectSource | PiecesSource | TierObject:
    """Opens a segment by its URI: in place where it is local, else through pyarrow's file systems.

    A list of pieces (``udfs.storage.pieces``) and the manifest of a remote object are opened as the segments
    that they stand for; so is a range of a segment (``with_range``).

    stop: where reading ends; None for the end of the segment. Raises a SourceError.
    """
    now_reading.note(uri)
    path, part = path_of_uri(uri), split_range(uri)
    if part is not None or (path is not None and path.endswith(PIECES)):
        from kafka_log_lake.udfs.storage.pieces import Piece, PiecesSource, read_pieces

        whole, begin, end = part or ("", 0, 0)
        return PiecesSource(
            [Piece(whole, begin, end - begin)] if part else read_pieces(path or ""), open_source
        )
    if uri.endswith(MANIFEST):
        from kafka_log_lake.udfs.storage.tier_object import open_tier_object

        return open_tier_object(uri, open_source)
    if path is not None:
        return FileSource(path)
    from kafka_log_lake.udfs.storage.object_source import ObjectSource

    return ObjectSource(uri, stop)

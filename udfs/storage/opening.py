"""Opens a segment by its URI: a file, an object of a store, or a list of pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_log_lake.udfs import now_reading
from kafka_log_lake.udfs.storage.byte_source import PIECES, FileSource, path_of_uri

if TYPE_CHECKING:
    from kafka_log_lake.udfs.storage.object_source import ObjectSource
    from kafka_log_lake.udfs.storage.pieces import PiecesSource


def open_source(uri: str, stop: int | None = None) -> FileSource | ObjectSource | PiecesSource:
    """Opens a segment by its URI: in place where it is local, else through pyarrow's file systems.

    A list of pieces (``udfs.storage.pieces``) is opened as the segment that it stands for.

    stop: where reading ends; None for the end of the segment. Raises a SourceError.
    """
    now_reading.note(uri)
    path = path_of_uri(uri)
    if path is not None and path.endswith(PIECES):
        from kafka_log_lake.udfs.storage.pieces import PiecesSource, read_pieces

        return PiecesSource(read_pieces(path), open_source)
    if path is not None:
        return FileSource(path)
    from kafka_log_lake.udfs.storage.object_source import ObjectSource

    return ObjectSource(uri, stop)

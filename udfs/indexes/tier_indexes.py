"""Splits the ``.indexes`` object of tiered storage into the files that it is made of, by its manifest."""

from __future__ import annotations

import os

from kafka_log_lake.udfs.indexes.files import (
    LEADER_EPOCH_FILE,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
)
from kafka_log_lake.udfs.storage.byte_source import MANIFEST
from kafka_log_lake.udfs.storage.tier_object import read_index

# Name in the manifest -> what the name of the file ends in
_FILES = {
    "offset": OFFSET_INDEX,
    "timestamp": TIME_INDEX,
    "producerSnapshot": PRODUCER_SNAPSHOT,
    "leaderEpoch": LEADER_EPOCH_FILE,
    "transaction": TRANSACTION_INDEX,
}


def split_indexes(path: str) -> dict[str, bytes]:
    """Returns the files in an ``.indexes`` object, by the path that each would have next to it.

    Raises a SourceError where the object, its manifest or a key can't be used.
    """
    stem = path.removesuffix(".indexes")
    folder = os.path.dirname(path)
    indexes: dict[str, bytes] = {}
    for name, suffix in _FILES.items():
        data = read_index(stem + MANIFEST, name)
        if data or suffix != TRANSACTION_INDEX:
            indexes[os.path.join(folder, suffix) if suffix == LEADER_EPOCH_FILE else stem + suffix] = data
    return indexes

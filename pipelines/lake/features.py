"""Checks for features of Delta that other tools turned on: refuses some, applies deletion vectors.

A deletion vector is part of a file's name in Delta's log. deltalake's transactions can't remove such a file,
and a rewrite that reads the file alone would bring the deleted rows back. So deltalake's UPDATE first writes
those files again that hold rows which a run replaces: it leaves out the deleted rows, and changes none.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from kafka_log_lake.pipelines.cli.errors import RunFailed, UserError
from kafka_log_lake.pipelines.engine.delta import data_files
from kafka_log_lake.pipelines.lake.intents import RowRange
from kafka_log_lake.pipelines.lake.superseded import delete_predicate, files_with
from kafka_log_lake.udfs.arrow.rewriting import KEYS
from kafka_log_lake.udfs.format.schema import Table

# Feature in the protocol -> the property that turned it on, and what goes wrong
_FEATURES = {
    "columnMapping": ("delta.columnMapping.mode", "rows would be written under wrong names"),
    "rowTracking": ("delta.enableRowTracking", "it can't be written"),
    "inCommitTimestamp": ("delta.enableInCommitTimestamps", "it can't be written"),
    "typeWidening": ("delta.enableTypeWidening", "it can't be written"),
    "clustering": ("CLUSTER BY", "it can't be written"),
    "identityColumns": ("GENERATED AS IDENTITY", "it can't be written"),
    "catalogManaged": ("delta.feature.catalogManaged", "it can't be written"),
}
_OFF = ("none", "false")


def check_features(table: DeltaTable, path: str) -> None:
    """Raises a UserError for a table that deltalake can't write as it should."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    named = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    for feature, (turned_on_by, problem) in _FEATURES.items():
        # Old protocols name no features: the property says that a table uses one
        if feature in named or configuration.get(turned_on_by, "none").lower() not in _OFF:
            raise UserError(
                f"{path} has Delta's feature {feature} ({turned_on_by}), with which {problem}: "
                f"ALTER TABLE delta.`{path}` DROP FEATURE {feature}, or decode into a new lake"
            )


def may_have_deletion_vectors(delta: DeltaTable) -> bool:
    """Returns whether the table's protocol admits deletion vectors."""
    return "deletionVectors" in (delta.protocol().reader_features or ())


def with_deletion_vectors(delta: DeltaTable) -> set[str]:
    """Returns the files that have a deletion vector: paths below the table's folder, as in ``OldFile``.

    Raises RunFailed where two files have one URI, so that it is not known which.
    """
    if not may_have_deletion_vectors(delta):
        return set()
    marked = set(pa.table(delta.deletion_vectors()).column("filepath").to_pylist())
    paths = data_files(delta).column("path").to_pylist()
    uris = (uri if "://" in uri else f"file://{uri}" for uri in delta.file_uris())
    with_vectors = {path for path, uri in zip(paths, uris, strict=True) if uri in marked}
    if len(with_vectors) != len(marked):
        raise RunFailed(
            f"{delta.table_uri} has deletion vectors of files that can't be distinguished: "
            f"REORG TABLE delta.`{delta.table_uri}` APPLY (PURGE), then start again"
        )
    return with_vectors


def apply_deletion_vectors(delta: DeltaTable, table: Table, ranges: Collection[RowRange]) -> None:
    """Rewrites the files with rows in these ranges that have a deletion vector, in one commit."""
    if not ranges or not may_have_deletion_vectors(delta):
        return
    marked = with_deletion_vectors(delta)
    if any(file.path in marked for file in files_with(delta, table, ranges)):
        owner, _ = KEYS[table.name]
        delta.update(
            {owner: owner},
            predicate=delete_predicate(table.name, ranges),
            commit_properties=CommitProperties(max_commit_retries=0),
        )

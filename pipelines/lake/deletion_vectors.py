"""Data files of which other tools have deleted rows by a deletion vector, without writing the file again.

A deletion vector is part of a file's name in Delta's log. deltalake's transactions can't remove such a file,
and a rewrite that reads the file alone would bring the deleted rows back. So deltalake's UPDATE first writes
those files again that hold rows which a run replaces: it leaves out the deleted rows, and changes none.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from pipelines.command.errors import RunFailed
from pipelines.lake.intents import Place
from pipelines.lake.superseded import delete_predicate, files_with
from udfs.arrow.rewriting import KEYS
from udfs.format.schema import Table


def may_have_deletion_vectors(delta: DeltaTable) -> bool:
    """Whether the table's protocol admits deletion vectors."""
    return "deletionVectors" in (delta.protocol().reader_features or ())


def with_deletion_vectors(delta: DeltaTable) -> set[str]:
    """The files that have a deletion vector. Paths below the table's folder, as ``OldFile`` has them."""
    if not may_have_deletion_vectors(delta):
        return set()
    marked = set(pa.table(delta.deletion_vectors()).column("filepath").to_pylist())
    paths = pa.table(delta.get_add_actions()).column("path").to_pylist()
    uris = (uri if "://" in uri else f"file://{uri}" for uri in delta.file_uris())
    found = {unquote(path) for path, uri in zip(paths, uris, strict=True) if uri in marked}
    if len(found) != len(marked):
        raise RunFailed(
            f"{delta.table_uri} has deletion vectors of files that can't be distinguished: "
            f"REORG TABLE delta.`{delta.table_uri}` APPLY (PURGE), then start again"
        )
    return found


def apply_deletion_vectors(delta: DeltaTable, table: Table, places: Collection[Place]) -> None:
    """Writes the files with rows at these places again where they have a deletion vector, in one commit."""
    if not places or not may_have_deletion_vectors(delta):
        return
    marked = with_deletion_vectors(delta)
    if any(file.path in marked for file in files_with(delta, table, places)):
        owner, _ = KEYS[table.name]
        delta.update(
            {owner: owner},
            predicate=delete_predicate(table.name, places),
            commit_properties=CommitProperties(max_commit_retries=0),
        )

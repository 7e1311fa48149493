"""Lists the folders of object stores, and of file systems that Spark alone opens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.listing.naming import CLEANED_SUFFIX, DELETED_SUFFIX, File, Folder
from kafka_log_lake.udfs.storage.store import is_object_store, missing_package

if TYPE_CHECKING:
    from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand

_ROWS = 1 << 14


def remote_folders(
    on_demand: SparkOnDemand | None, uris: Iterable[str], suffixes: tuple[str, ...]
) -> Iterator[Folder]:
    """Yields every folder with files that end so, on file systems other than the local one.

    on_demand: lists what is no object store; a UserError says so where it is None.
    """
    for uri in uris:
        if is_object_store(uri):
            from kafka_log_lake.pipelines.listing import stores  # pyarrow's file systems take 0.1 s to import

            files, named = stores.list_files(uri, suffixes)
        elif on_demand is None:
            raise UserError(
                f"{uri} can't be listed without Spark: name a local folder or an object store"
                f"{missing_package(uri)}"
            )
        else:
            from kafka_log_lake.pipelines.listing import hadoop  # imports Spark

            files, named = hadoop.list_files(on_demand.spark, uri, suffixes)
        by_folder: dict[str, list[File]] = {}
        for batch in files.to_batches(_ROWS):
            for row in batch.to_pylist():
                folder, _, name = row["path"].rpartition("/")
                is_selected = not named and not name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX))
                wanted = is_selected or row["path"] in named
                by_folder.setdefault(folder, []).append(File(name, row["length"], row["modified"], wanted))
        for folder, logs in by_folder.items():
            has_named = any(f"{folder}/{log.name}" in named for log in logs)
            yield Folder(folder, logs, None, folder == uri or has_named, not named)

"""Finds what ``__cluster_metadata`` says of the logs in a listing, for each cluster."""

from __future__ import annotations

import os

from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.pipelines.listing.identity import Identity, read_identity
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.pipelines.listing.metadata_log import snapshot_end, snapshots
from kafka_log_lake.pipelines.listing.naming import PartitionFolder, parse_file
from kafka_log_lake.pipelines.listing.uris import canonical, local_path
from kafka_log_lake.pipelines.recover.entries import Copy, SegmentFile
from kafka_log_lake.pipelines.recover.placement import Placements, placements
from kafka_log_lake.pipelines.recover.sources import LIVE, Inventory, TopicTest
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC

_MOST_BYTES = 32 << 20  # of records after the newest snapshot: some ten seconds to read
_PLACE = PartitionFolder(METADATA_TOPIC, 0)


def placements_of(listing: Listing, is_meant: TopicTest, warnings: list[str]) -> dict[str | None, Placements]:
    """Returns cluster id -> what its metadata logs say; None is the id if no ``meta.properties`` has one.

    A metadata log is looked for next to each partition folder of the listing. warnings: gets one for
    each that is too long to be read.
    """
    by_cluster: dict[str | None, Inventory] = {}
    clusters: dict[str, str | None] = {}
    for log_dir in sorted(listing.witnesses.log_dirs):
        identity = read_identity(log_dir)
        name = f"broker-{identity.node_id}" if identity.node_id is not None else os.path.basename(log_dir)
        clusters[log_dir] = identity.cluster_id
        inventory = by_cluster.setdefault(identity.cluster_id, Inventory(is_meant))
        inventory.log_dirs[log_dir] = name, identity
        _add_metadata(log_dir, name, identity, inventory, warnings)
    _add_copies(listing, by_cluster, clusters)
    by_id = {cluster: placements(inventory) for cluster, inventory in by_cluster.items()}
    for cluster, of_cluster in by_id.items():
        # of what lies next to the folders that were named nothing is known
        if not by_cluster[cluster].log_dirs.keys() <= listing.witnesses.walked:
            of_cluster.rows = {
                place: row for place, row in of_cluster.rows.items() if place in by_cluster[cluster].copies
            }
            of_cluster.whole = set()
    return {cluster: of_cluster for cluster, of_cluster in by_id.items() if of_cluster.state is not None}


def _add_metadata(
    log_dir: str, name: str, identity: Identity, inventory: Inventory, warnings: list[str]
) -> None:
    """Adds the metadata log of a log directory as a copy, from its newest snapshot on."""
    folder = os.path.join(log_dir, f"{METADATA_TOPIC}-0")
    newest = [0, *map(snapshot_end, snapshots(folder))][-1]
    try:
        with os.scandir(folder) as listed:
            files = [(base, entry) for entry in listed if isinstance(base := parse_file(entry.name), int)]
    except OSError:
        return
    files.sort(key=lambda each: each[0])
    next_bases = [*(base for base, _ in files[1:]), newest + 1]
    kept = [
        SegmentFile(canonical(entry.path), base, entry.stat().st_size, 0)
        for (base, entry), next_base in zip(files, next_bases, strict=False)
        if next_base > newest
    ]
    size = sum(file.length for file in kept)
    if size > _MOST_BYTES:
        behind = size_text(size)
        warnings.append(
            f"{folder} was not read, {behind} follow its newest snapshot: recover --metadata does"
        )
        return
    copy = Copy(0, name, identity.node_id, canonical(folder), LIVE, None, kept)
    inventory.copies[_PLACE].append(copy)


def _add_copies(
    listing: Listing, by_cluster: dict[str | None, Inventory], clusters: dict[str, str | None]
) -> None:
    """Adds the folders of the listing as copies, each with one of its segments."""
    names = ("partition_dir", "topic", "partition", "topic_id", "segment")
    seen: set[str] = set()
    for row in zip(*(listing.segments.column(name).to_pylist() for name in names), strict=True):
        folder, topic, partition, topic_id, segment = row
        if folder in seen:
            continue
        seen.add(folder)
        path = local_path(folder)
        log_dir = os.path.dirname(path) if path else None
        if log_dir is None or log_dir not in clusters or topic == METADATA_TOPIC:
            continue
        inventory = by_cluster[clusters[log_dir]]
        name, identity = inventory.log_dirs[log_dir]
        files = [SegmentFile(segment, 0, 0, 0)]
        copy = Copy(0, name, identity.node_id, folder, LIVE, topic_id, files)
        inventory.copies[PartitionFolder(topic, partition)].append(copy)

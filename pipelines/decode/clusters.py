"""Holds a lake to one cluster: topics of the same name in two clusters are not the same topic."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.lake.commit import LakeWriter
from kafka_log_lake.pipelines.listing.identity import clusters_of
from kafka_log_lake.pipelines.listing.listing import Listing
from kafka_log_lake.udfs.format.report_tables import RUNS


def check_cluster(listing: Listing, lake: LakeWriter) -> str | None:
    """Returns the id of the cluster that the sources are of; None where no ``meta.properties`` names it.

    Raises a UserError where the table ``runs`` has the id of another one: earlier runs read that cluster.
    """
    cluster_id = next(iter(clusters_of(listing.log_dirs)), None)
    if cluster_id is None or not lake.has(RUNS):
        return cluster_id
    known = {
        cluster_id
        for cluster_id in lake.read(RUNS, ["cluster_id"]).column("cluster_id").to_pylist()
        if cluster_id
    }
    if known and cluster_id not in known:
        raise UserError(
            f"the lake has topics of cluster {printable(min(known))}, and the sources are of cluster "
            f"{printable(cluster_id)}, by meta.properties: decode each cluster into a --lake of its own"
        )
    return cluster_id

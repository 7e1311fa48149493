"""Reads ``meta.properties``, which says of which cluster and node a log directory is."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import first_names
from kafka_log_lake.udfs.storage.regular_file import MOST_SMALL_BYTES, RefusedFile, read_regular

META, QUORUM_STATE = "meta.properties", "quorum-state"
_ID = re.compile(r"[!-\[\]-~]+")  # it is written to properties again, where a backslash escapes


class Identity(NamedTuple):
    """What ``meta.properties`` says of a log directory; None where it does not say it."""

    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None


def read_identity(log_dir: str, refused: list[str] | None = None) -> Identity:
    """Reads ``meta.properties`` of a log directory.

    refused: a list that gets the reason if the file is not read.
    """
    path = os.path.join(log_dir, META)
    try:
        text = read_regular(path, MOST_SMALL_BYTES).decode(errors="replace")
    except RefusedFile as error:
        if refused is not None:
            refused.append(f"{path}: not read: {error.strerror}")
        return Identity()
    except OSError:
        return Identity()
    said = dict(re.findall(r"^\s*([\w.]+)\s*[=:]\s*(\S*)\s*$", text, re.MULTILINE))
    node = str(said.get("node.id", said.get("broker.id", "")))
    node_id = int(node) if re.fullmatch(r"[0-9]{1,9}", node) else None
    ids = (said.get(name, "") for name in ("cluster.id", "directory.id"))
    cluster, directory = (id_ if _ID.fullmatch(id_) else None for id_ in ids)
    return Identity(cluster, node_id, directory)


def clusters_of(log_dirs: Iterable[str]) -> dict[str, list[str]]:
    """Returns by cluster id the log directories whose ``meta.properties`` names it."""
    clusters: dict[str, list[str]] = defaultdict(list)
    for log_dir in sorted(log_dirs):
        if cluster_id := read_identity(log_dir).cluster_id:
            clusters[cluster_id].append(log_dir)
    return dict(clusters)


def check_one_cluster(log_dirs: Iterable[str]) -> None:
    """Raises a UserError for log directories of several clusters, whose topics are not the same."""
    clusters = clusters_of(log_dirs)
    if len(clusters) > 1:
        places = first_names([f"{dirs[0]} is of {cluster_id}" for cluster_id, dirs in clusters.items()], 3)
        raise UserError(
            f"the sources are of {len(clusters)} clusters, by meta.properties ({places}): name those of one "
            "cluster, and decode each cluster into a --lake of its own"
        )

"""Reads ``meta.properties``: of which cluster and node a log directory is."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

META = "meta.properties"


class Identity(NamedTuple):
    """What ``meta.properties`` says of a log directory; None where it does not say it."""

    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None


def read_identity(log_dir: str) -> Identity:
    """What ``meta.properties`` of a log directory says."""
    try:
        with open(os.path.join(log_dir, META), encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 16)
    except OSError:
        return Identity()
    said = dict(re.findall(r"^\s*([\w.]+)\s*[=:]\s*(\S*)\s*$", text, re.MULTILINE))
    node = str(said.get("node.id", said.get("broker.id", "")))
    node_id = int(node) if re.fullmatch(r"[0-9]{1,9}", node) else None
    return Identity(said.get("cluster.id") or None, node_id, said.get("directory.id") or None)


def clusters_of(log_dirs: Iterable[str]) -> dict[str, list[str]]:
    """Cluster id -> the log directories whose ``meta.properties`` names it."""
    found: dict[str, list[str]] = defaultdict(list)
    for log_dir in sorted(log_dirs):
        if cluster_id := read_identity(log_dir).cluster_id:
            found[cluster_id].append(log_dir)
    return dict(found)

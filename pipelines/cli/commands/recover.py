"""Declares the command ``recover``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.commands.arguments import number
from kafka_log_lake.pipelines.cli.declaration import Argument, Command, Screen
from kafka_log_lake.pipelines.cli.values import from_0

_OFFSET = from_0(10**18, "must be an offset")
RECOVER = Command(
    "recover",
    "recover",
    "Merge the copies on the disks of brokers into one log, and list what is lost. Needs no Java.",
    (
        *("source", "tier", "tier_key", "lake", "topics", "exclude_topics", "with_copies", "include_deleted"),
        *("cores", "json", "slice_bytes", "max_batch_uncompressed"),
    ),
    (
        Argument("report", "folder for the list of losses as a page and as CSV", metavar="DIR"),
        Argument("write", "new folder: a log directory for a broker to start from", metavar="DIR"),
        number("node_id", "node.id of that broker, or controller (default 1)", parse=from_0(10**9)),
        Argument("metadata", "compare the metadata logs of controllers instead", is_switch=True),
        number(
            "at", "with --metadata: the state before this offset of the log", metavar="OFFSET", parse=_OFFSET
        ),
    ),
    continues=True,
    screen=Screen(
        "--source NAME=PATH... --lake LAKE [OPTIONS]",
        "Compare the copies of partitions on the disks of brokers: find the history that was committed, take "
        "each batch from a copy in which it is sound, decode this merged log into a lake, and list what is "
        "lost. The sources are only read. Needs no Java.",
        (
            (
                "Sources",
                "source: a broker's disk, or a part of it, as NAME=PATH; several disks of a broker have the "
                "same name. Without NAME it is broker-N, by the node.id in meta.properties",
            ),
            ("", "include_deleted: also .log.deleted files, each as a copy by itself"),
            ("Topics", "topics: only these (whole name)", "exclude_topics"),
            ("Lake", "lake: its folder; created if missing"),
            ("", "with_copies: also each copy by itself, for query --log NAME"),
            (
                "Report",
                "report: write recovery.html, lost_records.csv, and restore.sh, which writes these records "
                "to a cluster again. A new or empty folder, or one of an earlier run",
            ),
            ("Disk", "write: a log directory from which one broker starts", "node_id: its id (default 1)"),
            (
                "Cluster",
                "metadata: compare the __cluster_metadata of controllers instead. The lake has the state of "
                "the cluster, at its end or before --at OFFSET. --report DIR: as files; --write DIR: as a "
                "controller's disk",
            ),
            ("Running", "json: one JSON object", "cores: processes (default: all cores)"),
        ),
        ("--source b1=/mnt/b1 --source b2=/mnt/b2 --lake lake",),
        "0 recovered, 2 a source or a folder can't be used.",
        "docs/recovery.md",
    ),
)

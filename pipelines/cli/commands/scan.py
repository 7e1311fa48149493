"""Declares the command ``scan``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.declaration import SORTS, Argument, Command, Screen
from kafka_log_lake.pipelines.cli.values import amount

SCAN = Command(
    "scan",
    "scan",
    "Show what is in a log directory: formats, damage, open transactions. Needs no Java and no lake.",
    (
        *("source", "tier", "tier_key", "topic", "partition", "topics", "exclude_topics"),
        *("follow_symlinks", "include_swap"),
        *(
            "include_deleted",
            "max_batch_uncompressed",
            "slice_bytes",
            "cores",
            "formats",
            "fail_on_damage",
            "json",
        ),
    ),
    (
        Argument("path", "log directory, partition folder, .log file or glob", many=True, is_optional=True),
        Argument("sort", "order of the topics", choices=SORTS),
        Argument(
            "price_per_gb_month",
            "with --tier: price of 10^9 bytes there for a month; objects that nobody reads get it",
            metavar="PRICE",
            parse=amount,
        ),
    ),
    extra="",
    screen=Screen(
        "PATH... [OPTIONS]",
        "Show what is in a log directory: topics, formats, damage and the offsets lost by it, open "
        "transactions, what to do next. Needs no Java; only reads.",
        (
            ("Sources", "PATH: log directory, partition folder, .log file or glob"),
            ("", "source: a broker's disk, also as NAME=PATH; copies of partitions are compared"),
            ("Topics", "topics: only these (whole name)", "exclude_topics"),
            ("", "topic: with --partition N, if the folder is not named TOPIC-N"),
            ("Files", "include_swap: .log.swap files in place of the segments they replace"),
            ("", "include_deleted: .log.deleted files, -delete, -stray, -future folders"),
            ("", "follow_symlinks: follow links inside a source"),
            ("Output", "sort", "json: one JSON object", "formats"),
            ("", "fail_on_damage: exit with code 3 unless what was read is sound"),
            ("Running", "cores: processes (default: all cores)", "--help-all: for tuning"),
        ),
        (
            "/var/lib/kafka/data",
            "/backup/kafka --topics 'payments.*' --fail-on-damage",
            "00000000000000000000.log --topic orders --partition 0",
        ),
        "0 done, 2 nothing to scan, 3 damage and --fail-on-damage.",
    ),
)

"""Declares the command ``restore``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.commands.arguments import AT, LOG
from kafka_log_lake.pipelines.cli.declaration import Argument, Command, Screen
from kafka_log_lake.pipelines.cli.values import (
    byte_count,
    host_and_port,
    moment,
    pattern,
    security_kinds,
    target_partitions,
)

RESTORE = Command(
    "restore",
    "restore",
    "Write the records of segments or of a lake to a live cluster, each once, and read them back.",
    (
        *("source", "tier", "tier_key", "lake", "topics", "exclude_topics", "since", "until", "offsets"),
        *("follow_symlinks", "include_deleted", "cores", "json", "slice_bytes", "max_batch_uncompressed"),
    ),
    (
        Argument("path", "log directory, partition folder, .log file or glob", many=True, is_optional=True),
        AT,
        LOG,
        Argument(
            "bootstrap_server",
            "brokers of the target",
            metavar="HOST:PORT",
            parse=host_and_port,
            default=None,
        ),
        Argument("config", "properties of a Kafka client, such as for TLS and SASL", metavar="FILE"),
        Argument("partition", "only this partition of the sources", True, (), "N"),
        Argument("keys", "only records with these keys: one a line, as text or 0xHEX", metavar="FILE"),
        Argument("committed", "what a READ_COMMITTED consumer gets (the default)", is_switch=True),
        Argument("as_written", "also records of transactions that did not commit", is_switch=True),
        Argument("rename", "another name for topics; NEW may have \\1 for a group", True, (), "REGEX=NEW"),
        Argument(
            "partitions",
            "partitions of the target: keep, or a number by which keys choose as Kafka's producer does",
            metavar="keep|N",
            default="keep",
            parse=target_partitions,
        ),
        Argument("with_origin", "add headers with topic, partition and offset of the source", is_switch=True),
        Argument(
            "create",
            "topics that the target lacks: ask, create them (yes), stop (never), or create and write "
            "no record (only)",
            choices=("ask", "yes", "never", "only"),
        ),
        Argument("append", "write after the records that a topic of the target has", is_switch=True),
        Argument("dry_run", "print what would be done, and write nothing to the target", is_switch=True),
        Argument("max_bytes_per_second", "most bytes of keys and values", metavar="BYTES", parse=byte_count),
        Argument("groups", "only these groups (default: all)", metavar="REGEX", parse=pattern),
        Argument("no_groups", "commit no offsets of groups", is_switch=True),
        Argument("groups_at", "what groups had committed at a time", metavar="TIME", parse=moment),
        Argument("overwrite_groups", "replace what a group has committed in the target", is_switch=True),
        Argument(
            "app_offsets",
            "topics with offsets of Connect and MirrorMaker: restored as others, or left out",
            choices=("keep", "skip"),
        ),
        Argument(
            "registry",
            "a schema registry that gets the schemas of _schemas, with their ids, instead of the topic",
            metavar="URL",
        ),
        Argument(
            "security",
            "also write acls, quotas, scram: several with commas",
            metavar="KINDS",
            default=None,
            parse=security_kinds,
        ),
        Argument("scram_passwords", "passwords of SCRAM users, user=password a line", metavar="FILE"),
        Argument("report", "write a page and CSV files of what was done", metavar="DIR"),
        Argument(
            "state", "folder of what is done; the same one continues", metavar="DIR", default="restore-state"
        ),
    ),
    continues=True,
    extra="restore",
    screen=Screen(
        "SOURCE... --bootstrap-server HOST:PORT [OPTIONS]",
        "Write the records of segments, damaged disks, a tier or a lake to a live cluster: each once, in its "
        "order, with key, value, headers and timestamp, also where it is killed and started again. Then read "
        "all back and compare.",
        (
            ("From", "SOURCE: log directories or segments; decoded into STATE/lake first"),
            ("", "source: a broker's disk as NAME=PATH, healed", "tier", "lake", "at", "log"),
            ("To", "bootstrap_server", "config"),
            ("What", "topics", "exclude_topics", "partition", "since", "until", "offsets", "keys"),
            ("", "committed: what a READ_COMMITTED consumer gets (default)", "as_written"),
            ("How", "rename", "partitions", "with_origin", "create", "append", "max_bytes_per_second"),
            ("Groups", "groups", "no_groups", "groups_at", "overwrite_groups", "app_offsets"),
            ("Cluster", "registry", "security", "scram_passwords"),
            ("State", "state: what is done; the same folder continues", "dry_run"),
            ("Output", "json: one JSON object", "report", "cores: processes (default: all cores)"),
        ),
        (
            "/var/lib/kafka/data --bootstrap-server new:9092",
            "--lake lake --topics orders --bootstrap-server new:9092",
            "--lake lake --dry-run",
        ),
        "0 all is there, 1 failed, 2 wrong argument, 3 not all is there.",
        "docs/restore.md",
    ),
)

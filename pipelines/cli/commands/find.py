"""Declares the command ``find``: its settings, its arguments and its help."""

from __future__ import annotations

from dataclasses import replace

from kafka_log_lake.pipelines.cli.commands.arguments import number
from kafka_log_lake.pipelines.cli.declaration import Argument, Command, Screen
from kafka_log_lake.pipelines.cli.values import count

NOT = "not_"  # before the name of a condition: it must not hold
_KEY = "TEXT|0xHEX|@FILE"
_CONDITIONS = (
    Argument("key", "the key, as text, as 0x and digits, or @FILE with a key a line", True, (), _KEY),
    Argument("key_prefix", "the key begins with a text, or with 0x and digits", True, (), "TEXT"),
    Argument("key_regex", "a regular expression of RE2 is found in the key", True, (), "REGEX"),
    Argument("value_contains", "the value contains a text", True, (), "TEXT"),
    Argument("value_regex", "a regular expression of RE2 is found in the value", True, (), "REGEX"),
    Argument("text", "the key, the value or a header contains a text", True, (), "TEXT"),
    Argument(
        "json",
        "a JSONPath leads to a value in a value that is JSON",
        True,
        (),
        "PATH=VALUE",
        alias="where_json",
    ),
    Argument("header", "a header has the name, and the value", True, (), "NAME[=VALUE]"),
    Argument("tombstones", "the value is null", is_switch=True),
    Argument("partition", "the number of the partition", True, (), "N"),
    Argument("offset", "the offset, or offsets from FROM to TO - 1", True, (), "N|FROM:TO"),
    Argument("since", "the timestamp is this one or later: a date, a time or ms", True, (), "TIME"),
    Argument("until", "the timestamp is earlier", True, (), "TIME"),
    Argument("producer", "the producer's id", True, (), "ID"),
    Argument("transaction", "the outcome: open, aborted or committed", True, (), "open|aborted|committed"),
)
FIND = Command(
    "find",
    "find",
    "Find records in log segments. Needs no Java and no lake.",
    (
        *(
            "source",
            "tier",
            "tier_key",
            "lake",
            "topics",
            "exclude_topics",
            "follow_symlinks",
            "include_swap",
        ),
        *("include_deleted", "max_batch_uncompressed", "cores", "schemas", "registry", "formats"),
    ),
    (
        Argument("path", "log directory, partition folder, .log file or glob", many=True, is_optional=True),
        *_CONDITIONS,
        *(
            replace(condition, name=NOT + condition.name, alias=condition.alias and NOT + condition.alias)
            for condition in _CONDITIONS
        ),
        Argument("committed", "only what a READ_COMMITTED consumer gets", is_switch=True),
        number("limit", "at most this many records; with --first and --last per partition", parse=count),
        Argument("first", "the first of each partition", is_switch=True),
        Argument("last", "the last of each partition; searches from the end", is_switch=True),
        number("context", "records before and after each one", parse=count),
        Argument("superseded", "add a column: whether a later record of the key follows", is_switch=True),
        Argument("count", "print only the number of records", is_switch=True),
        Argument(
            "topic",
            "topic of the segments if the folder is not named TOPIC-N",
            metavar="NAME",
            alias="as_topic",
        ),
        Argument(
            "trust_partitioner",
            "search for a key only in the partition that Kafka's default partitioner chooses for it",
            is_switch=True,
        ),
        Argument("format", "how records are printed", choices=("table", "json", "csv", "arrow", "raw")),
        Argument("typed", "keys and values by the schemas in _schemas", is_switch=True),
        Argument("output", "write the records to a file", metavar="FILE"),
    ),
    extra="",
    screen=Screen(
        "PATH... | --lake LAKE [CONDITIONS] [OPTIONS]",
        "Find the records that meet all conditions, in segments or a lake, without Java. "
        "--source NAME=PATH for each broker's disk: whose record, committed or not.",
        (
            ("Text", "text: in the key, the value or a header"),
            ("Key", "key", "key_prefix", "key_regex"),
            ("Value", "value_contains", "value_regex", "json"),
            ("Others", "header", "since", "until", "tombstones"),
            ("Place", "topics", "exclude_topics", "partition", "offset"),
            ("Producer", "producer", "transaction", "committed"),
            ("Not", "--not CONDITION: records that do not meet it: --not --key user-17"),
            ("Number", "first", "last", "limit", "context", "count"),
            ("Output", "format", "output", "superseded"),
            ("Schemas", "typed: decoded", "schemas", "registry", "formats"),
            (
                *("Search", "trust_partitioner", "topic", "max_batch_uncompressed", "cores"),
                *("follow_symlinks", "include_swap", "include_deleted"),
            ),
        ),
        (
            "/var/lib/kafka/data --key user-17",
            "backup --where-json state=FAILED --since 2026-01-31",
            "data --topics payments --not --transaction aborted",
        ),
        "0 found, 4 not found, 5 not found, but not all could be searched.",
    ),
)

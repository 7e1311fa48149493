"""Declares every command once: its names, the settings it takes, its help text.

``python -m pipelines.<module>`` and ``kafka-log-lake <name>`` are one program, which ``options`` parses for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from kafka_log_lake.pipelines.cli.declaration import SORTS, Argument, Command, Screen
from kafka_log_lake.pipelines.cli.settings import (
    COST_NAMES,
    SETTING_NAMES,
    CostSettings,
    Decoding,
    LakeSettings,
    Typing,
    Watching,
)
from kafka_log_lake.pipelines.cli.values import amount, count, from_0
from kafka_log_lake.udfs.values.internal.definitions import NEWEST, RELEASES

_KEY = "TEXT|0xHEX|@FILE"
_PLACE, _OFFSET = from_0(10**19), from_0(10**18, "must be an offset")
_OF_TYPES = tuple(name for name in Typing.__annotations__ if name != "typed")
_ONLY_FOR_DECODING = {
    *("include_swap", "with_indexes", "with_copies"),
    *(name for kind in (Decoding, Watching, Typing) for name in kind.__annotations__),
}
_number = partial(Argument, metavar="N")
_bytes = partial(Argument, metavar="BYTES", parse=from_0(math.inf, "must be a whole number of bytes"))
_age = partial(Argument, parse=from_0(878_401, "takes a whole number from 0 to 878,400"))

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
NOT = "not_"  # before the name of a condition: it must not hold
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
        *(replace(one, name=NOT + one.name, alias=one.alias and NOT + one.alias) for one in _CONDITIONS),
        Argument("committed", "only what a READ_COMMITTED consumer gets", is_switch=True),
        _number("limit", "at most this many records; with --first and --last per partition", parse=count),
        Argument("first", "the first of each partition", is_switch=True),
        Argument("last", "the last of each partition; searches from the end", is_switch=True),
        _number("context", "records before and after each one", parse=count),
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
DECODE = Command(
    "decode",
    "decode_batches",
    "Decode Kafka log segments into Delta tables.",
    tuple(name for name in SETTING_NAMES if name != "include_deleted"),
    is_configurable=True,
    continues=True,
    screen=Screen(
        "--source PATH... --lake LAKE [OPTIONS]",
        "Decode Kafka log segments into Delta tables. A later run decodes only what is new. The sources are "
        "only read.",
        (
            ("Sources", "source: log directory, partition folder, .log file, glob or URI; several times"),
            ("Topics", "topics: only these (whole name)", "exclude_topics"),
            ("Lake", "lake: its folder or URI; created if missing"),
            ("Records", "since", "until"),
            ("Values", "typed: keys and values by their schemas; --no-typed: not"),
            ("", "mode: latest, also one row per key; cdc, also the tables that Debezium captured"),
            ("Running", "watch: repeat until Ctrl-C", "cores: processes (default: all cores)"),
            ("Output", "json: one JSON object", "fail_on_damage: exit with 3 if damage was found"),
            ("More", "--help-all: all options", "--config FILE.yml: settings from a file"),
        ),
        (
            "--source /var/lib/kafka/data --lake lake",
            "--source backup --topics 'payments.*' --lake lake",
        ),
        "0 done, 2 a wrong source or lake, 3 damage and --fail-on-damage.",
    ),
)
INGEST = Command(
    "ingest",
    "ingest_raw",
    "Land the bytes of Kafka log segments in a Delta table.",
    tuple(name for name in DECODE.settings if name not in _ONLY_FOR_DECODING),
    is_configurable=True,
    continues=True,
)
_ENGINE = Argument(
    "engine",
    "query engine, each with its own SQL; auto: DuckDB, without Java, where this machine reads the lake",
    choices=("auto", "duckdb", "spark"),
)
_AT = Argument(
    "at", "an earlier state: the id of a run (table runs), or a time in UTC; DuckDB only", metavar="RUN|TIME"
)
_LOG = Argument(
    "log",
    "in a lake of several copies: healed (default), or the name of a copy decoded by --with-copies",
    metavar="NAME",
)
QUERY = Command(
    "query",
    "query",
    "Run one SQL statement over the tables and views of a lake.",
    ("lake", "cores", "driver_memory"),
    (
        Argument("statement", "one SQL statement, in quotes"),
        Argument("format", "how rows are printed", choices=("table", "json", "csv")),
        Argument("full", "do not cut long values", is_switch=True),
        Argument("output", "write the rows to a file, .csv or .parquet, and print none", metavar="FILE"),
        Argument("writes", "whether a statement may change tables", choices=("refuse", "allow")),
        _ENGINE,
        _AT,
        _LOG,
    ),
    kind=LakeSettings,
    extra="sql",
    example='--lake lake "SELECT topic, records FROM topics"',
)
EXPORT_FORMATS = ("parquet", "csv", "xlsx", "duckdb")
EXPORT = Command(
    "export",
    "export",
    "Write the committed records of a topic to one file, for a colleague or a BI tool. Needs no Java.",
    ("lake", "cores"),
    (
        Argument("topic", "the topic, by its whole name", metavar="NAME"),
        Argument("output", "the file (default: the topic's name, in this folder)", metavar="FILE"),
        Argument("format", "auto: by the name of the file", choices=("auto", *EXPORT_FORMATS)),
        Argument(
            "values", "typed: by the topic's typed table, if the lake has one", choices=("typed", "text")
        ),
        Argument("overwrite", "replace a file that is there", is_switch=True),
        _AT,
        _LOG,
    ),
    kind=LakeSettings,
    extra="export",
    example="--lake lake --topic orders --output orders.xlsx",
)
SQL = Command(
    "sql",
    "sql_shell",
    "Open a SQL shell over the tables and views of a lake.",
    ("lake", "cores"),
    (_AT, _LOG),
    kind=LakeSettings,
    extra="sql",
)
QUALITY_REPORT = Command(
    "quality-report",
    "quality_report",
    "Check the data quality of a lake: a table of metrics and one HTML page. Needs no Java.",
    ("lake", "cores", "json"),
    (
        Argument("output", "folder for HTML, Markdown and JSON", metavar="FOLDER", default="quality-report"),
        Argument("thresholds", "YAML file: threshold and severity of each check", metavar="FILE.yml"),
        Argument(
            "at",
            "an earlier state: the id of a run (table runs), or a time in UTC; the lake is not changed",
            metavar="RUN|TIME",
        ),
        Argument(
            "fail_on",
            "exit with code 3 where the verdict is Not sound (error), or where any check fails (warning)",
            choices=("error", "warning", "never", "none"),
        ),
    ),
    extra="report",
    kind=LakeSettings,
)
MCP = Command(
    "mcp",
    "mcp_server",
    "Answer questions of programs, by the Model Context Protocol, about logs and a lake. Only reads.",
    ("source", "lake"),
    (
        Argument("path", "log directory, partition folder, .log file or glob", many=True, is_optional=True),
        _number(
            "http", "listen at this port of 127.0.0.1, not on standard input", metavar="PORT", parse=count
        ),
        _number("max_rows", "rows of an answer", default="100", parse=count),
        _number("max_bytes", "bytes of an answer", default="262144", parse=count),
        _number("max_seconds", "seconds of a call", default="60", parse=count),
    ),
    extra="mcp",
    example="/var/lib/kafka/data --lake lake",
)
FORMAT_REPORT = Command(
    "format-report",
    "format_report",
    "Measure the size and the cost of a lake's records in each message format and codec.",
    COST_NAMES,
    kind=CostSettings,
)
MAINTAIN = Command(
    "maintain",
    "maintain",
    "Compact the tables of a lake: merge small files, delete files and old rows that are not needed.",
    ("lake", "cores", "driver_memory", "json"),
    (
        _age(
            "vacuum_hours",
            "delete files that no version of the last hours needs; a reader that began earlier may fail",
            metavar="HOURS",
            default="168",
        ),
        _age(
            "keep_days",
            "drop the rows of segments whose file is gone and whose newest record is older",
            metavar="DAYS",
        ),
    ),
    continues=True,
    kind=LakeSettings,
)
DECODE_VALUES = Command(
    "decode-values",
    "decode_values",
    "Decode keys and values by the schema registry in the lake: a typed table for each topic. Needs no Java.",
    ("lake", "topics", "exclude_topics", *_OF_TYPES, "cores", "json"),
    continues=True,
)
DUMP = Command(
    "dump",
    "dump_log",
    "Print segments, indexes and snapshots: the same lines as kafka-dump-log.sh. Needs no Java.",
    ("include_deleted", "tier_key", "max_batch_uncompressed"),
    (
        Argument("file", "a .log, an index, a snapshot or a checkpoint file", many=True, is_optional=True),
        Argument("files", "files separated by commas, as kafka-dump-log.sh takes them", metavar="LIST"),
        Argument("print_data_log", "print keys and values of records", is_switch=True),
        Argument("deep_iteration", "print records, without keys and values", is_switch=True),
        Argument("skip_record_metadata", "print only keys and values", is_switch=True),
        Argument("key_decoder_class", "string, long, integer, bytes, or Kafka's class", metavar="NAME"),
        Argument("value_decoder_class", "the same, for values", metavar="NAME"),
        Argument("offsets_decoder", "decode records of __consumer_offsets", is_switch=True),
        Argument("transaction_log_decoder", "of __transaction_state", is_switch=True),
        Argument("cluster_metadata_decoder", "of __cluster_metadata", is_switch=True),
        Argument("remote_log_metadata_decoder", "of __remote_log_metadata", is_switch=True),
        Argument("share_group_state_decoder", "of __share_group_state", is_switch=True),
        Argument("as", "the release of Kafka whose tool's text is printed", choices=RELEASES, default=NEWEST),
        Argument("index_sanity_check", "check an index as a broker does when it starts", is_switch=True),
        Argument("verify_index_only", "compare an index with its segment, print no entry", is_switch=True),
        _bytes("max_message_size", "largest batch of an index", default="5242880"),
        _bytes("max_bytes", "read only the first bytes of a log", default="2147483647"),
        Argument("more", "print header values and damage too, and what follows damage", is_switch=True),
        Argument("json", "print one JSON object per batch, record or entry", is_switch=True),
    ),
    extra="",
    screen=Screen(
        "FILE... [OPTIONS]",
        "Print the lines of kafka-dump-log.sh (Kafka 4.1 to 4.4) for the same flags. No Java.",
        (
            ("Files", "FILE: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint, *-checkpoint"),
            ("", "files: separated by commas", "include_deleted: a folder of logs"),
            ("Records", "print_data_log", "deep_iteration", "skip_record_metadata"),
            (
                *("Decoders", "key_decoder_class", "value_decoder_class", "offsets_decoder"),
                *("transaction_log_decoder", "cluster_metadata_decoder"),
                *("remote_log_metadata_decoder", "share_group_state_decoder", "as"),
            ),
            ("Indexes", "index_sanity_check", "verify_index_only", "max_message_size"),
            ("Bounds", "max_bytes", "max_batch_uncompressed"),
            ("More", "more: also print header values, damage, and what follows it"),
            ("", "json: one JSON object per batch, record, damage or index entry"),
        ),
        (
            "--print-data-log orders-0/00000000000000000000.log",
            "--offsets-decoder __consumer_offsets-7/*.log",
            "--verify-index-only orders-0/*.index orders-0/*.timeindex",
        ),
        "0 printed, 1 where kafka-dump-log.sh fails too, 2 no file of Kafka.",
        "docs/dump.md",
    ),
)
INSPECT = Command(
    "inspect",
    "inspect_batch",
    "Show one batch byte by byte: what is damaged, and the most likely cause. Needs no Java.",
    ("include_deleted", "tier_key", "max_batch_uncompressed"),
    (
        Argument("file", "a .log file, with --offset a partition folder, with --browse any folder of logs"),
        _number("position", "byte of the file where the batch begins", metavar="BYTE", parse=_PLACE),
        _number("offset", "an offset that the batch has", parse=_PLACE),
        _number(
            "records", "records that are shown, of damage those that are mended", default="20", parse=_PLACE
        ),
        Argument("html", "write an HTML page instead of printing", metavar="FILE"),
        Argument("json", "print one JSON object", is_switch=True),
        Argument("browse", "interactive: topics, segments, batches and fields", is_switch=True),
    ),
    extra="",
    screen=Screen(
        "FILE [--position BYTE | --offset N] [OPTIONS]",
        "Show one batch byte by byte: each field with its position, bytes, value and meaning; its checksum; "
        "what is damaged, and the most likely cause. Without --position and --offset: the first damage, or "
        "the first batch. Needs no Java.",
        (
            ("File", "FILE: .log file; a partition folder (--offset), of logs (--browse)"),
            ("", "include_deleted: with a folder, also .log.deleted files"),
            ("Batch", "position: its first byte", "offset: an offset in it"),
            ("Records", "records: that are shown; of damage those that are mended (20)"),
            ("Output", "html: an HTML page", "json: one JSON object"),
            ("", "browse: interactive; needs the extra browse"),
            ("Bound", "max_batch_uncompressed: larger batches are not expanded (256MiB)"),
        ),
        (
            "orders-0/00000000000000000000.log",
            "/var/lib/kafka/data/orders-0 --offset 4711",
            "orders-0/00000000000000000000.log --html batch.html",
        ),
        "0 shown, 2 no such file, position or offset.",
    ),
)
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
        _number("node_id", "node.id of that broker, or controller (default 1)", parse=from_0(10**9)),
        Argument("metadata", "compare the metadata logs of controllers instead", is_switch=True),
        _number(
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
                "to a cluster again; a new or empty folder, or one of an earlier run",
            ),
            ("Disk", "write: a log directory from which one broker starts", "node_id: its id (default 1)"),
            (
                "Cluster",
                "metadata: compare the __cluster_metadata of controllers instead: the state of the cluster, "
                "at its end or before --at OFFSET, in the lake, as files with --report DIR, as the disk of a "
                "controller with --write DIR",
            ),
            ("Running", "json: one JSON object", "cores: processes (default: all cores)"),
        ),
        ("--source b1=/mnt/b1 --source b2=/mnt/b2 --lake lake",),
        "0 recovered, 2 a source or a folder can't be used.",
        "docs/recovery.md",
    ),
)
# As the help of the program shows them
GROUPS = {
    "look into log files": (SCAN, FIND, INSPECT, DUMP),
    "load them into a lake": (DECODE, DECODE_VALUES, INGEST),
    "ask the lake": (QUERY, SQL, EXPORT, QUALITY_REPORT, FORMAT_REPORT, MCP),
    "repair": (RECOVER,),
    "keep": (MAINTAIN,),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)

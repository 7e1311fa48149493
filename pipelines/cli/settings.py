"""Declares every setting of the commands once: name, type, default, help text and allowed values.

Each is in the class of its concern; a command's settings are made of these: ``Settings`` for decoding,
``CostSettings`` for the report on formats, ``LakeSettings`` where a lake is enough. The command line
(``options``), the YAML file of ``--config`` and a notebook's keywords all give one of them, frozen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.values import (
    MIB,
    Checked,
    amount,
    byte_count,
    catalog_lake,
    check_times,
    codec_levels,
    core_count,
    count,
    currency,
    delta_properties,
    flag,
    identifier,
    key_files,
    memory,
    moment,
    offset_range,
    one_of,
    partition_number,
    pattern,
    setting,
    text,
    texts,
    topic_name,
    whole_number,
)
from kafka_log_lake.udfs.decoder.decoded import Bounds, Scope

# Codecs of Parquet that have levels, with the levels
PARQUET_LEVELS = {"zstd": range(-7, 23), "gzip": range(1, 10)}
CATALOG = "catalog"  # of --sink


@dataclass(frozen=True, kw_only=True)
class Selection(Checked):
    """Which topics."""

    topics: str | None = setting(None, pattern, "only topics whose whole name matches", "REGEX")
    exclude_topics: str | None = setting(None, pattern, "skip topics whose whole name matches", "REGEX")


@dataclass(frozen=True, kw_only=True)
class Running(Checked):
    """Running and output."""

    cores: int | None = setting(None, core_count, "parallel tasks (default: all cores)", "N")
    driver_memory: str = setting(
        "2g", memory, "Java heap of the Spark that the command starts, where it needs one", "SIZE"
    )
    json: bool = setting(False, flag, "print one JSON object as the last line of standard output")

    @property
    def processes(self) -> int:
        """Returns how many processes work without Spark; macOS tells only the cores of the machine."""
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return self.cores or usable or 1


@dataclass(frozen=True, kw_only=True)
class LakeSettings(Running):
    """The lake."""

    lake: str | None = setting(None, text, "folder or URI of the lake", "PATH")

    def require_lake(self) -> str:
        """Returns the lake. Raises a UserError if it is not set."""
        if self.lake is None:
            raise UserError("--lake is missing: name the folder of the lake, such as --lake ./lake")
        return self.lake


@dataclass(frozen=True, kw_only=True)
class Reading(Selection):
    """Which segments, and how their bytes are read."""

    source: tuple[str, ...] = setting(
        (), texts, "log directory, partition folder, .log file or glob; may be given several times", "PATH"
    )
    topic: str | None = setting(
        None, topic_name, "topic of the segments, if their folder is not named TOPIC-N", "NAME"
    )
    partition: int | None = setting(
        None, partition_number, "their partition; only together with --topic", "N"
    )
    tier: tuple[str, ...] = setting(
        (),
        texts,
        "objects of tiered storage that belong to the sources: a folder or s3://bucket/prefix; may be given "
        "several times",
        "PATH",
    )
    tier_key: tuple[str, ...] = setting(
        (), key_files, "private RSA key of encrypted objects; may be given several times", "ID=FILE.pem"
    )
    follow_symlinks: bool = setting(False, flag, "follow links inside a source")
    include_swap: bool = setting(
        False, flag, "use .log.swap files instead of the segments that they replace when a broker starts"
    )
    include_deleted: bool = setting(
        False, flag, "also read .log.deleted files, and folders ending -delete, -stray or -future"
    )
    with_indexes: bool = setting(
        False, flag, "also load the indexes, producer snapshots and epoch files into tables"
    )
    one_copy: bool = setting(
        False, flag, "of several copies of a partition, keep only the one that reaches the highest offset"
    )
    with_copies: bool = setting(
        False, flag, "with --source NAME=PATH: also decode each copy separately, for query --log NAME"
    )
    read: str = setting(
        "auto", one_of("auto", "direct", "binary"), "how bytes reach the workers: auto, direct or binary"
    )
    max_content: int = setting(
        32 * MIB, byte_count, "with --read binary: Spark loads a file up to this size whole", "BYTES"
    )
    slice_bytes: int = setting(128 * MIB, byte_count, "a larger segment is decoded by several tasks", "BYTES")
    window_bytes: int = setting(2 * MIB, byte_count, "bytes that a worker reads at a time", "BYTES")
    max_files_per_run: int = setting(4096, count, "segments that are decoded and committed together", "N")
    max_bytes_per_run: int = setting(
        64 * 1024 * MIB,
        byte_count,
        "most bytes that are committed together; about as many as half a minute takes",
        "BYTES",
    )


@dataclass(frozen=True, kw_only=True)
class Decoding(Checked):
    """Which records, and damage."""

    from_raw: bool = setting(False, flag, "decode the bytes that ingest landed in the lake, not files")
    since: int | None = setting(
        None, moment, "decode only records with this timestamp or a later one: a date, a time or ms", "TIME"
    )
    until: int | None = setting(None, moment, "decode only records with an earlier timestamp", "TIME")
    offsets: str | None = setting(
        None, offset_range, "decode only records with offsets from FROM to TO - 1", "FROM:TO"
    )
    redecode: str | None = setting(None, pattern, "decode known segments again whose URI matches", "REGEX")
    verify_content: bool = setting(
        False, flag, "compare all bytes of known segments, not only their fingerprints"
    )
    max_batch_uncompressed: int = setting(
        256 * MIB, byte_count, "a batch that decompresses to more than this counts as damage", "BYTES"
    )
    quarantine_content_bytes: int = setting(
        MIB, byte_count, "bytes of a damaged range that the table quarantine keeps", "BYTES"
    )
    fail_on_damage: bool = setting(False, flag, "exit with code 3 if damage was found")


@dataclass(frozen=True, kw_only=True)
class Writing(Checked):
    """How tables are written."""

    sink: str = setting(
        "arrow",
        one_of("arrow", CATALOG),
        "what writes the tables: arrow (the workers, by path), catalog (Spark, by name)",
    )
    catalog_schema: str | None = setting(
        None, identifier, "also register tables and views under this schema of the catalog", "NAME"
    )
    clustered: bool = setting(
        False, flag, "with --sink catalog: new tables CLUSTER BY topic, partition, offset, without partitions"
    )
    table_properties: str | None = setting(
        None, delta_properties, "with --sink catalog: properties of Delta for new tables", "NAME=VALUE,..."
    )
    parquet_compression: str = setting(
        "zstd", one_of("zstd", "lz4", "snappy", "gzip", "none"), "compression of the data files"
    )
    parquet_compression_level: int | None = setting(
        None, whole_number, "level of the data files' codec: zstd has -7 to 22, gzip 1 to 9", "N"
    )


@dataclass(frozen=True, kw_only=True)
class Watching(Checked):
    """Following a log while it grows."""

    watch: bool = setting(False, flag, "repeat until SIGTERM or Ctrl-C")
    interval: float | None = setting(
        None, amount, "with --watch: seconds from the end of a run to the next (default 10)", "SECONDS"
    )
    commit_bytes: int | None = setting(
        None, byte_count, "with --watch: decode after this many new bytes, or after --commit-lag", "BYTES"
    )
    commit_lag: float | None = setting(
        None,
        amount,
        "with --watch: a change waits at most this long (60 with --commit-bytes alone)",
        "SECONDS",
    )


@dataclass(frozen=True, kw_only=True)
class Typing(Checked):
    """Keys and values by their schemas."""

    typed: bool | None = setting(
        None, flag, "also update the typed tables (default: where the sources have the topic _schemas)"
    )
    schemas: tuple[str, ...] = setting(
        (),
        texts,
        "further schemas: a folder of .avsc, .proto and .json files, or a file of a registry's REST API; may "
        "be given several times",
        "PATH",
    )
    registry: str | None = setting(
        None, text, "further schemas: those of a running registry, by its REST API", "URL"
    )
    formats: str | None = setting(
        None,
        text,
        "what topics hold that no schema says: a YAML file, topic (regular expression) -> kind, key, value, "
        "window_size_ms",
        "FILE",
    )
    json_values: str = setting(
        "text",
        one_of("text", "infer"),
        "JSON in typed tables: its text, or infer: structs, with a column for what does not fit",
    )
    value_columns: str = setting(
        "struct",
        one_of("struct", "flat"),
        "keys and values in typed tables: one struct each, or flat: a column for each of their fields",
    )
    fill_defaults: bool = setting(
        False, flag, "a field that a value's version lacks gets the default of the latest version, not null"
    )
    mode: str = setting(
        "append",
        one_of("append", "latest", "cdc"),
        "append: every record; latest: also one row per key; cdc: also the tables that Debezium captured",
    )


@dataclass(frozen=True, kw_only=True)
class Monitoring(Checked):
    """Monitoring."""

    metrics: str | None = setting(
        None, text, "write counters and the lag of --watch to this file after each run (OpenMetrics)", "FILE"
    )
    lineage: str | None = setting(
        None, text, "send OpenLineage events of each run to this server, or append them to a file", "URL"
    )


@dataclass(frozen=True, kw_only=True)
class Settings(Typing, Monitoring, Watching, Writing, Decoding, Reading, LakeSettings):
    """The settings of decoding, checked and frozen; ``ingest`` and ``scan`` take some of them.

    Parameters
    ----------
    All by name, each an option of the command with ``-`` for ``_``: docs/commands.md and ``help_of`` say what
    each means, with its default. Sizes (``*_bytes``, max_batch_uncompressed, max_content) are in bytes: an
    int, or a text such as "64MiB"; since and until: ms since 1970 UTC, or a text with a date or time;
    interval and commit_lag: seconds. None: not given, or no limit.

    Raises
    ------
    UserError: a value is wrong, or two settings contradict each other.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_compression_level()
        check_times(self.since, self.until)
        if (self.topic is None) != (self.partition is None):
            raise UserError(
                "--topic and --partition are given together, to name the segments of a folder; "
                "--topics selects topics"
            )
        if self.topic is not None and self.from_raw:
            raise UserError("--topic and --partition are for files: what was landed has its own")
        if self.source and self.from_raw:
            raise UserError("--source is for files, --from-raw for what was landed: leave one of them out")
        if self.include_swap and self.from_raw:
            raise UserError("--include-swap is for files: what was landed are segments")
        if self.with_indexes and self.from_raw:
            raise UserError("--with-indexes is for files: what was landed are segments")
        if self.typed and self.sink == CATALOG:
            raise UserError("--typed needs a lake in a folder: --sink catalog has none")
        self._check_catalog()

    def _check_catalog(self) -> None:
        """Raises a UserError for a lake that no schema of a catalog can be, or for what only one can have."""
        if self.sink != CATALOG and (self.clustered or self.table_properties):
            raise UserError("--clustered and --table-properties are for a catalog: add --sink catalog")
        if self.sink == CATALOG and self.catalog_schema is not None:
            raise UserError("--catalog-schema: with --sink catalog, --lake names the schema")
        if self.sink == CATALOG and self.lake is not None:
            try:
                catalog_lake(self.lake)
            except ValueError as error:
                raise UserError(f"--lake: with --sink catalog it is a schema, which {error}") from None

    def _check_compression_level(self) -> None:
        """Raises a UserError for a level that the codec of the data files does not have."""
        codec, level = self.parquet_compression, self.parquet_compression_level
        if level is None:
            return
        levels = PARQUET_LEVELS.get(codec)
        if levels is None:
            raise UserError(f"--parquet-compression-level: {codec} has no levels; zstd and gzip have")
        if level not in levels:
            raise UserError(
                f"--parquet-compression-level of {codec} must be {levels[0]} to {levels[-1]}, not {level}"
            )

    @property
    def scope(self) -> Scope:
        """Returns the offsets and times of the records to decode."""
        low, _, high = (self.offsets or ":").partition(":")
        offsets = Bounds(int(low) if low else None, int(high) if high else None)
        return Scope(offsets, Bounds(self.since, self.until))


@dataclass(frozen=True, kw_only=True)
class CostSettings(Selection, LakeSettings):
    """Costs."""

    codec_levels: str = setting(
        "gzip:1,gzip:6,gzip:9,snappy,lz4:9,lz4:12,zstd:1,zstd:3,zstd:9",
        codec_levels,
        "codecs to try, with the levels of Kafka's compression.<codec>.level",
        "LIST",
    )
    sample_batches: int = setting(
        200, count, "batches of each topic, partition and magic that are compressed to try a codec", "N"
    )
    price_per_gb_month: float = setting(0.08, amount, "price of 10^9 stored bytes for a month", "PRICE")
    currency: str = setting("USD", currency, "currency of the price and of the printed costs", "CODE")
    replication_factor: int = setting(3, count, "copies that the cluster keeps", "N")
    retention_days: float = setting(7.0, amount, "days until retention deletes a record", "DAYS")

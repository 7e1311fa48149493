"""Every setting of the jobs, declared once: name, type, default, help text and allowed values.

The command line (``options``), the YAML file of ``--config`` and a notebook's keywords all give one frozen
``Settings``. It checks its values when it is made: a wrong value raises a ``UserError`` of one line.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import regex
import yaml

from pipelines.command.errors import UserError
from udfs.decoded import Bounds, Scope
from udfs.format.levels import parse_levels

MIB = 1024 * 1024
REGEX_FLAGS = regex.DOTALL  # the name of a folder may contain a newline
# Codecs of Parquet that have levels, with the levels
PARQUET_LEVELS = {"zstd": range(-7, 23), "gzip": range(1, 10)}
CATALOG = "catalog"  # of --sink
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"": 1, "k": 1024, "m": MIB, "g": 1024 * MIB, "t": 1024 * 1024 * MIB}


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a non-empty string, not {value!r}")
    return value


def texts(value: object) -> tuple[str, ...]:
    """One string or several, as a tuple."""
    if isinstance(value, str):
        return (text(value),)
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise ValueError(f"must be a string or a list of strings, not {value!r}")
    return tuple(text(item) for item in value)


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def byte_count(value: object) -> int:
    """A number of bytes above 0; a string may end in KiB, MiB, GiB or TiB."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", value.strip().lower())
        if match:
            value = int(match.group(1)) * _UNITS[match.group(2) or ""]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a number of bytes above 0, such as 1048576 or 1MiB, not {value!r}")
    return value


def byte_text(value: int) -> str:
    """A number of bytes as ``byte_count`` takes it, in the largest unit that divides it: ``64MiB``."""
    for unit in ("t", "g", "m", "k"):
        if value % _UNITS[unit] == 0:
            return f"{value // _UNITS[unit]}{unit.upper()}iB"
    return str(value)


def count(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d+", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a whole number above 0, not {value!r}")
    return value


def number_from_0(value: object) -> int:
    """The number of a partition."""
    if isinstance(value, str) and re.fullmatch(r"\d+", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise ValueError(f"must be a whole number from 0 to 2147483647, not {value!r}")
    return value


def amount(value: object) -> float:
    """A finite number, 0 or above."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"must be a number of 0 or above, such as 0.08, not {value!r}")
    return float(value)


def codec_levels(value: object) -> str:
    """Codecs with their levels, in the text of ``udfs.format.levels.parse_levels``."""
    try:
        parse_levels(text(value))
    except ValueError as error:
        raise ValueError(f"must be codecs separated by commas, such as gzip:6,snappy: {error}") from None
    return text(value)


def pattern(value: object) -> str:
    """A regular expression in the syntax of the Python package ``regex``."""
    try:
        regex.compile(text(value), REGEX_FLAGS)
    except regex.error as error:
        raise ValueError(f"must be a regular expression; {value!r} does not compile: {error}") from None
    return text(value)


def topic_name(value: object) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text(value), re.ASCII):
        raise ValueError(f"must be a topic's name, of letters, digits, '.', '_' and '-', not {value!r}")
    return text(value)


def identifier(value: object) -> str:
    """The name of a schema, plain or as ``catalog.schema``."""
    if not re.fullmatch(r"\w+(\.\w+)?", text(value)):
        raise ValueError(f"must be a name of letters, digits and _, or catalog.schema, not {value!r}")
    return text(value)


def memory(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[1-9]\d*[mMgG]", value):
        raise ValueError(f"must be a Java heap size such as 512m or 2g, not {value!r}")
    return value


def whole_number(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, not {value!r}")
    return value


def moment(value: object) -> int:
    """A time in milliseconds since 1970 UTC, given so or as a date (its midnight) or time of ISO 8601.

    A time that does not say its zone is UTC.
    """
    at = value
    if isinstance(value, str) and re.fullmatch("[0-9]{12,18}", value):
        return int(value)
    if isinstance(value, str) and "-" in value:
        with suppress(ValueError):
            at = datetime.fromisoformat(value)
    elif isinstance(value, date) and not isinstance(value, datetime):  # of a YAML file
        at = datetime(value.year, value.month, value.day)
    if isinstance(at, datetime):
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(at, bool) or not isinstance(at, int) or abs(at) >= 10**18:
        raise ValueError(
            "must be a date, a time or milliseconds since 1970, such as 2026-01-31, 2026-01-31T06:00:00Z or "
            f"1769839200000, not {value!r}"
        )
    return at


def offset_range(value: object) -> str:
    """``FROM:TO``; one of both may be missing."""
    match = re.fullmatch("([0-9]{0,18}):([0-9]{0,18})", value) if isinstance(value, str) else None
    if match is None or match[0] == ":" or (match[1] and match[2] and int(match[1]) >= int(match[2])):
        raise ValueError(
            "must be FROM:TO, such as 100:200 for 100 to 199, 100: or :200 (in quotes in a file), "
            f"not {value!r}"
        )
    return match[0]


def one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return parse


def _setting(default: Any, parse: Callable[[object], Any], help_text: str, metavar: str | None = None) -> Any:
    """A field of ``Settings``. parse: returns the checked value, or raises a ValueError with the rule."""
    metadata = {"parse": parse, "help": help_text, "metavar": metavar}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a job. None: not given, or no limit."""

    source: tuple[str, ...] = _setting(
        (), texts, "log directory, partition folder, .log file or glob; may be given several times", "PATH"
    )
    lake: str | None = _setting(None, text, "folder or URI of the lake; created if missing", "PATH")
    from_raw: bool = _setting(False, flag, "decode the bytes that ingest_raw landed in the lake, not files")
    topic: str | None = _setting(
        None, topic_name, "topic of the segments, where the name of their folder does not tell it", "NAME"
    )
    partition: int | None = _setting(None, number_from_0, "their partition; given together with --topic", "N")
    topics: str | None = _setting(None, pattern, "decode only topics whose whole name matches", "REGEX")
    exclude_topics: str | None = _setting(None, pattern, "skip topics whose whole name matches", "REGEX")
    since: int | None = _setting(
        None, moment, "decode only records with this timestamp or a later one: a date, a time or ms", "TIME"
    )
    until: int | None = _setting(None, moment, "decode only records with an earlier timestamp", "TIME")
    offsets: str | None = _setting(
        None, offset_range, "decode only records with offsets from FROM up to, not with, TO", "FROM:TO"
    )
    one_copy: bool = _setting(
        False, flag, "of several copies of a partition, keep only the one that reaches the highest offset"
    )
    redecode: str | None = _setting(None, pattern, "decode known segments again whose URI matches", "REGEX")
    verify_content: bool = _setting(
        False, flag, "compare all bytes of known segments, not only their fingerprints"
    )
    read: str = _setting(
        "auto", one_of("auto", "direct", "binary"), "how bytes reach the workers: auto, direct or binary"
    )
    sink: str = _setting(
        "arrow",
        one_of("arrow", "spark", CATALOG),
        "who writes the tables: arrow (the workers), spark (files), or catalog (Spark, tables by name)",
    )
    catalog_schema: str | None = _setting(
        None, identifier, "also register tables and views under this schema of the catalog", "NAME"
    )
    follow_symlinks: bool = _setting(False, flag, "follow links inside a source")
    include_swap: bool = _setting(
        False, flag, "take .log.swap files for the segments whose place they take when a broker starts"
    )
    max_batch_uncompressed: int = _setting(
        256 * MIB, byte_count, "a batch that decompresses to more than this is quarantined", "BYTES"
    )
    quarantine_content_bytes: int = _setting(
        MIB, byte_count, "bytes of a damaged range that the table quarantine keeps", "BYTES"
    )
    slice_bytes: int = _setting(
        128 * MIB, byte_count, "a larger segment is decoded by several tasks", "BYTES"
    )
    window_bytes: int = _setting(2 * MIB, byte_count, "bytes that a worker reads at a time", "BYTES")
    max_files_per_run: int = _setting(4096, count, "segments that are decoded and committed together", "N")
    max_bytes_per_run: int = _setting(
        64 * 1024 * MIB, byte_count, "bytes that are decoded and committed together", "BYTES"
    )
    parquet_compression: str = _setting(
        "zstd", one_of("zstd", "lz4", "snappy", "gzip", "none"), "compression of the data files"
    )
    parquet_compression_level: int | None = _setting(
        None, whole_number, "level of the data files' codec: zstd has -7 to 22, gzip 1 to 9", "N"
    )
    codec_levels: str = _setting(
        "gzip:1,gzip:6,gzip:9,snappy,lz4:9,lz4:12,zstd:1,zstd:3,zstd:9",
        codec_levels,
        "codecs to try, with the levels of Kafka's compression.<codec>.level",
        "LIST",
    )
    sample_batches: int = _setting(
        200, count, "batches of each topic, partition and magic that are compressed to try a codec", "N"
    )
    price_per_gb_month: float = _setting(0.08, amount, "price of 10^9 stored bytes for a month", "PRICE")
    replication_factor: int = _setting(3, count, "copies that the cluster keeps", "N")
    retention_days: float = _setting(7.0, amount, "days until retention deletes a record", "DAYS")
    watch: bool = _setting(False, flag, "do it again and again, until SIGTERM or Ctrl-C")
    interval: float = _setting(
        10.0, amount, "seconds from the end of a run to the next, with --watch", "SECONDS"
    )
    cores: int | None = _setting(None, count, "parallel tasks, of Spark or of scan (default: all cores)", "N")
    driver_memory: str = _setting("2g", memory, "Java heap of the embedded Spark", "SIZE")
    fail_on_damage: bool = _setting(False, flag, "exit with code 3 if damage was found")
    json: bool = _setting(False, flag, "print one JSON object as the last line of standard output")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            try:
                parsed = field.metadata["parse"](value)
            except ValueError as error:
                raise UserError(f"{option(field.name)} {error}") from None
            object.__setattr__(self, field.name, parsed)
        self._check_compression_level()
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UserError("--until must be later than --since")
        if (self.topic is None) != (self.partition is None):
            raise UserError(
                "--topic and --partition are given together, to name the segments of a folder; "
                "--topics selects topics"
            )
        if self.topic is not None and self.from_raw:
            raise UserError("--topic and --partition are for files: what was landed has its own")
        if self.include_swap and self.from_raw:
            raise UserError("--include-swap is for files: what was landed are segments")
        self._check_catalog()

    def _check_catalog(self) -> None:
        """Raises a UserError for a lake that no schema of a catalog can be."""
        if self.sink == CATALOG and self.catalog_schema is not None:
            raise UserError("--catalog-schema: with --sink catalog, --lake names the schema")
        if self.sink == CATALOG and self.lake is not None:
            try:
                identifier(self.lake)
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
        """The records to decode."""
        low, _, high = (self.offsets or ":").partition(":")
        offsets = Bounds(int(low) if low else None, int(high) if high else None)
        return Scope(offsets, Bounds(self.since, self.until))

    def require_lake(self) -> str:
        """The lake. Raises a UserError if it is not set."""
        if self.lake is None:
            raise UserError("--lake is missing: name the folder of the lake, such as --lake ./lake")
        return self.lake


SETTING_NAMES = tuple(field.name for field in dataclasses.fields(Settings))


def help_of(field: dataclasses.Field[Any]) -> str:
    """What ``--help`` says of a setting, with its default."""
    text: str = field.metadata["help"]
    return text if field.default in (None, (), False) else f"{text} (default {_shown(field, field.default)})"


def _shown(field: dataclasses.Field[Any], value: Any) -> Any:
    """The value of a setting as a person writes it."""
    return byte_text(value) if field.metadata["parse"] is byte_count else value


def metavar_of(field: dataclasses.Field[Any]) -> str:
    """The placeholder of a setting's value in ``--help``."""
    return field.metadata["metavar"] or field.name.rpartition("_")[2].upper()


def option(name: str) -> str:
    """``one_copy`` as the command line writes it: ``--one-copy``."""
    return "--" + name.replace("_", "-")


def nearest(word: str, words: Iterable[str]) -> str:
    """``; did you mean x?``, to end a message about an unknown name; empty if no word is similar."""
    similar = difflib.get_close_matches(word, list(words), n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def make_settings(values: Mapping[str, Any], allowed: Iterable[str] = SETTING_NAMES) -> Settings:
    """Settings from names and values of a notebook or a YAML file. Raises a UserError for an unknown name."""
    allowed = tuple(allowed)
    for name in values:
        if name not in allowed:
            hint = nearest(str(name).replace("-", "_"), allowed) or f"; known settings: {', '.join(allowed)}"
            raise UserError(f"unknown setting {name!r}{hint}")
    return Settings(**values)


def read_yaml(path: str, named_by: str = "--config") -> dict[str, Any]:
    """The mapping in a settings file; {} for an empty file. named_by: the option, for messages."""
    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{named_by}: cannot read {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{named_by}: {path} is not valid YAML: {' '.join(str(error).split())}") from None
    if loaded is None:
        return {}
    if isinstance(loaded, list):
        raise UserError(f"{named_by}: {path} is a list: write `name: value` lines, without the dashes")
    if not isinstance(loaded, dict):
        raise UserError(f"{named_by}: {path} must consist of `name: value` lines")
    return loaded


def to_yaml(settings: Settings, names: Iterable[str] = SETTING_NAMES) -> str:
    """The text of a file for ``--config`` with these settings, each below its help text."""
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    lines = []
    for name in names:
        value = getattr(settings, name)
        plain = list(value) if isinstance(value, tuple) else _shown(fields[name], value)
        lines.append(f"# {fields[name].metadata['help']}")
        lines.append(yaml.safe_dump({name: plain}, allow_unicode=True, width=10_000).rstrip())
    return "\n".join(lines)

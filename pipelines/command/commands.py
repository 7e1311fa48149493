"""Every command, declared once: its names, the settings it takes, its help text.

``python -m pipelines.<module>`` and ``kafka-log-lake <name>`` take the same options: ``options`` parses them
for both, ``kafka_log_lake.__main__`` adds help and completion.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.command.settings import SETTING_NAMES


@dataclass(frozen=True)
class Argument:
    """An argument that is not a setting: an option if it has choices or a metavar, else positional.

    is_switch: an option without a value. many: whether it may be given several times. default: an option's
    value where it is not given; of choices it is the first.
    """

    name: str
    help: str
    many: bool = False
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    default: str | None = None
    is_switch: bool = False

    @property
    def is_option(self) -> bool:
        return bool(self.choices or self.metavar or self.is_switch)


@dataclass(frozen=True)
class Command:
    """A command of the project.

    name: the word after ``kafka-log-lake``. module: a module of ``pipelines`` with ``main(argv)``. settings:
    names of the fields of ``Settings`` that it takes. is_configurable: whether ``--config`` may name a file
    of them. extra: the extra of the wheel that brings the packages it needs.
    """

    name: str
    module: str
    help: str
    settings: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()
    is_configurable: bool = False
    extra: str = "spark"


_ONLY_FOR_DECODING = (
    "from_raw",
    "since",
    "until",
    "offsets",
    "redecode",
    "verify_content",
    "max_batch_uncompressed",
    "quarantine_content_bytes",
    "fail_on_damage",
    "include_swap",
    "watch",
    "interval",
    "commit_bytes",
    "commit_lag",
)

_ONLY_FOR_REPORTS = (
    "codec_levels",
    "sample_batches",
    "price_per_gb_month",
    "replication_factor",
    "retention_days",
)

SCAN = Command(
    "scan",
    "scan",
    "Show what a log directory holds: formats, damage, open transactions. Needs no Java, writes nothing.",
    (
        *(
            "topic",
            "partition",
            "topics",
            "exclude_topics",
            "follow_symlinks",
            "include_swap",
            "max_batch_uncompressed",
            "slice_bytes",
        ),
        *("cores", "fail_on_damage", "json"),
    ),
    (Argument("path", "log directory, partition folder, .log file or glob", many=True),),
)
DECODE = Command(
    "decode",
    "decode_batches",
    "Decode Kafka log segments into Delta tables.",
    tuple(name for name in SETTING_NAMES if name not in _ONLY_FOR_REPORTS),
    is_configurable=True,
)
INGEST = Command(
    "ingest",
    "ingest_raw",
    "Land the bytes of Kafka log segments in a Delta table.",
    tuple(name for name in DECODE.settings if name not in _ONLY_FOR_DECODING),
    is_configurable=True,
)
QUERY = Command(
    "query",
    "query",
    "Run one SQL statement over the tables and views of a lake.",
    ("lake", "cores", "driver_memory"),
    (
        Argument("statement", "one SQL statement, in quotes"),
        Argument("format", "how rows are printed", choices=("table", "json", "csv")),
        Argument("full", "print long values whole", is_switch=True),
        Argument("output", "write the rows to a file, .csv or .parquet, and print none", metavar="FILE"),
        Argument("writes", "a statement that changes tables", choices=("refuse", "allow")),
        Argument(
            "engine",
            "who answers; auto: DuckDB, without Java, wherever it is known to give the rows of Spark",
            choices=("auto", "duckdb", "spark"),
        ),
    ),
)
SQL = Command(
    "sql",
    "sql_shell",
    "Open a SQL shell over the tables and views of a lake.",
    ("lake", "cores", "driver_memory"),
)
QUALITY_REPORT = Command(
    "quality-report",
    "quality_report",
    "Check the data quality of a lake: a table of metrics and one HTML page. Needs no Java.",
    ("lake", "cores", "json"),
    (
        Argument(
            "output", "folder of the page and its other forms", metavar="FOLDER", default="quality-report"
        ),
        Argument("thresholds", "YAML file: check to threshold and severity", metavar="FILE.yml"),
        Argument(
            "fail_on",
            "exit with code 3 if a check of this severity, or of a higher one, fails",
            choices=("none", "warning", "error"),
        ),
    ),
    extra="report",
)
FORMAT_REPORT = Command(
    "format-report",
    "format_report",
    "Measure what the records of a lake take in each message format and codec, and what that costs.",
    ("lake", "topics", "exclude_topics", *_ONLY_FOR_REPORTS, "cores", "driver_memory", "json"),
)
MAINTAIN = Command(
    "maintain",
    "maintain",
    "Keep the tables of a lake small: merge small files, delete files and old rows that are not needed.",
    ("lake", "cores", "driver_memory", "json"),
    (
        Argument(
            "vacuum_hours",
            "delete files that no version of the last hours needs; a reader that began earlier may fail",
            metavar="HOURS",
            default="168",
        ),
        Argument(
            "keep_days",
            "drop the rows of segments whose file is gone and whose newest record is older",
            metavar="DAYS",
        ),
    ),
)
COMMANDS = (SCAN, DECODE, INGEST, QUERY, SQL, QUALITY_REPORT, FORMAT_REPORT, MAINTAIN)

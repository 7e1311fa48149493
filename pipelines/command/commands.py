"""Every command, declared once: its names, the settings it takes, its help text.

``python -m pipelines.<module>`` and ``kafka-log-lake <name>`` take the same options: ``options`` parses them
for both, ``kafka_log_lake.__main__`` adds help and completion.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.command.settings import SETTING_NAMES


@dataclass(frozen=True)
class Argument:
    """An argument that is not a setting: positional without choices, an option with them.

    many: whether it may be given several times.
    """

    name: str
    help: str
    many: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command of the project.

    name: the word after ``kafka-log-lake``. module: a module of ``pipelines`` with ``main(argv)``. settings:
    names of the fields of ``Settings`` that it takes. is_configurable: whether ``--config`` may name a file
    of them.
    """

    name: str
    module: str
    help: str
    settings: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()
    is_configurable: bool = False


_ONLY_FOR_DECODING = (
    "from_raw",
    "redecode",
    "verify_content",
    "max_batch_uncompressed",
    "quarantine_content_bytes",
    "fail_on_damage",
)

SCAN = Command(
    "scan",
    "scan",
    "Show what a log directory holds: formats, damage, open transactions. Needs no Java, writes nothing.",
    (
        *("topics", "exclude_topics", "follow_symlinks", "max_batch_uncompressed", "slice_bytes"),
        *("cores", "fail_on_damage", "json"),
    ),
    (Argument("path", "log directory, partition folder, .log file or glob", many=True),),
)
DECODE = Command(
    "decode",
    "decode_batches",
    "Decode Kafka log segments into Delta tables.",
    SETTING_NAMES,
    is_configurable=True,
)
INGEST = Command(
    "ingest",
    "ingest_raw",
    "Land the bytes of Kafka log segments in a Delta table.",
    tuple(name for name in SETTING_NAMES if name not in _ONLY_FOR_DECODING),
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
    ),
)
SQL = Command(
    "sql",
    "sql_shell",
    "Open a SQL shell over the tables and views of a lake.",
    ("lake", "cores", "driver_memory"),
)
COMMANDS = (SCAN, DECODE, INGEST, QUERY, SQL)

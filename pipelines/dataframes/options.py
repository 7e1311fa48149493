"""Declares the options of a read, each once with default, check and meaning, and checks columns."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.values import (
    MIB,
    byte_count,
    key_files,
    nearest,
    pattern,
    texts,
    whole_number,
)
from kafka_log_lake.udfs.decoder.decoded import Bounds, Scope
from kafka_log_lake.udfs.format.schema import BATCHES, QUARANTINE, RECORDS, Column

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

PERMISSIVE, FAILFAST = "permissive", "failfast"
# What says by which run a row came into a lake: nothing without one
_OF_A_LAKE = ("run_id",)
TABLE_COLUMNS = {
    table.name: tuple(column for column in table.columns if column.name not in _OF_A_LAKE)
    for table in (RECORDS, BATCHES, QUARANTINE)
}
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def flag(value: object) -> bool:
    """Parses ``true`` or ``false``, in any letter case. Raises a ValueError."""
    if str(value).lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {value!r}")
    return str(value).lower() == "true"


def partition_ranges(value: object) -> tuple[tuple[int, int], ...]:
    """Parses ``0,3-5`` to ((0, 0), (3, 5)). Raises a ValueError."""
    matches = [_RANGE.fullmatch(part.strip()) for part in str(value).split(",")]
    ranges = tuple((int(m[1]), int(m[2] or m[1])) for m in matches if m is not None)
    if len(ranges) < len(matches) or any(first > last for first, last in ranges):
        raise ValueError(f"must be partitions and ranges of them, such as 0,3-5, not {value!r}")
    return ranges


def names(value: object) -> tuple[str, ...]:
    """Parses ``offset, value`` to ("offset", "value"). Raises a ValueError."""
    parts = tuple(name.strip() for name in str(value).split(","))
    if not all(parts):
        raise ValueError(f"must be names with commas between them, such as offset,value, not {value!r}")
    return parts


def _key_files(value: object) -> tuple[str, ...]:
    return key_files(names(value))


def one_of(*choices: str) -> Callable[[object], str]:
    """Returns a parser that takes one of these texts in any letter case, and returns it in small letters."""

    def parse(value: object) -> str:
        if str(value).lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
        return str(value).lower()

    return parse


def _option(default: object, parse: Callable[[object], Any], meaning: str) -> Any:
    """Declares a field of ``Options``. parse: checks and returns the value, or raises a ValueError."""
    return dataclasses.field(default=default, metadata={"parse": parse, "meaning": meaning})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The checked options of one read. A field is None where the option is not given, or has no limit."""

    path: tuple[str, ...] = _option((), texts, "log directory, partition folder, `.log` file or glob")
    topics: str | None = _option(None, pattern, "regular expression for the whole name of a topic")
    exclude_topics: str | None = _option(None, pattern, "the same, for topics to leave out")
    partitions: tuple[tuple[int, int], ...] | None = _option(
        None, partition_ranges, "partitions to read, such as `0,3-5`"
    )
    starting_offset: int | None = _option(None, whole_number, "the first offset to read")
    ending_offset: int | None = _option(None, whole_number, "the offset to stop before")
    starting_timestamp: int | None = _option(None, whole_number, "the lowest `timestamp_ms` to read")
    ending_timestamp: int | None = _option(None, whole_number, "the `timestamp_ms` to stay below")
    table: str = _option(
        RECORDS.name,
        one_of(*TABLE_COLUMNS),
        "the table whose rows are returned: `records`, `batches` or `quarantine`",
    )
    columns: tuple[str, ...] | None = _option(
        None, names, "the columns to decode, such as `offset,value`, in this order; else all"
    )
    mode: str = _option(
        PERMISSIVE,
        one_of(PERMISSIVE, FAILFAST),
        "`permissive` skips damaged ranges, `failfast` fails at the first",
    )
    max_batch_uncompressed: int = _option(
        256 * MIB, byte_count, "a batch that decompresses to more than this is damaged"
    )
    slice_bytes: int = _option(128 * MIB, byte_count, "a larger segment is read by several tasks")
    follow_symlinks: bool = _option(False, flag, "follow links inside the path")
    tier: tuple[str, ...] = _option((), names, "objects of tiered storage: folders or URIs, with commas")
    tier_key: tuple[str, ...] = _option(
        (), _key_files, "private keys of encrypted objects, `ID=FILE.pem,...`"
    )
    typed: bool = _option(
        False, flag, "keys and values of one topic by the schemas in `_schemas-0` next to its folders"
    )
    max_bytes_per_trigger: int | None = _option(
        None, byte_count, "stream: bytes of segments that a micro-batch reads, at least one batch of each log"
    )

    @property
    def scope(self) -> Scope:
        """Returns the bounds of offset and timestamp of the requested records."""
        timestamps = Bounds(self.starting_timestamp, self.ending_timestamp)
        return Scope(Bounds(self.starting_offset, self.ending_offset), timestamps)

    def takes(self, partition: int) -> bool:
        """Returns whether the option ``partitions`` asks for a partition."""
        return self.partitions is None or any(low <= partition <= high for low, high in self.partitions)


ROW_BOUNDS = ("starting_offset", "ending_offset", "starting_timestamp", "ending_timestamp")
# With these less is read than the path holds
PRUNING = ("topics", "exclude_topics", "partitions", *ROW_BOUNDS)
_FIELDS = tuple(field.name for field in dataclasses.fields(Options))


def option_name(field: str) -> str:
    """Returns the name of an option as a user writes it: ``sliceBytes`` for ``slice_bytes``."""
    first, *others = field.split("_")
    return first + "".join(word.capitalize() for word in others)


def parse_options(given: Mapping[str, str]) -> Options:
    """Parses the options of a read. Raises a UserError for an unknown one, a wrong value, or no path."""
    fields = {option_name(field.name).lower(): field for field in dataclasses.fields(Options)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        field = fields.get(name.lower())
        if name == "paths":  # load([a, b])
            field, value = fields["path"], json.loads(value)
        if field is None:
            raise UserError(f"unknown option {name}{_known(name, list(map(option_name, _FIELDS)))}")
        try:
            values[field.name] = field.metadata["parse"](value)
        except ValueError as error:
            raise UserError(f"option {option_name(field.name)} {error}") from None
    if "path" not in values:
        raise UserError("no path: load(path) takes one log directory, partition folder, .log file or glob")
    options = Options(**values)
    if options.typed and options.table != RECORDS.name:
        raise UserError(f"typed is for records; option table is {options.table}")
    if options.typed and options.columns:
        raise UserError("columns is not for typed, whose columns are the topic's: select from its rows")
    if options.table != RECORDS.name and options.scope.bounds:
        bounds = ", ".join(map(option_name, ROW_BOUNDS))
        raise UserError(f"{bounds} are for records; option table is {options.table}")
    return options


def _known(name: str, names: list[str]) -> str:
    """Returns a hint which option may be meant; Spark gives names in lower case."""
    spelled = {known.lower(): known for known in names}
    similar = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"; did you mean {spelled[similar[0]]}?" if similar else f"; known options: {', '.join(names)}"


def ddl(table: str, columns: Collection[str] | None = None) -> str:
    """Returns the requested columns of a table, or all that need no lake, as a DDL schema of Spark."""
    _, declared = requested_names(table, columns)
    return ", ".join(f"`{column.name}` {column.sql_type}" for column in declared)


def requested_columns(table: str, schema: StructType) -> tuple[tuple[str, ...], pa.Schema]:
    """Returns names of a table's columns and the Arrow schema of rows, in the order of the user's schema.

    Raises a UserError for a column that the table has not, another type, or a NOT NULL.
    """
    columns = {column.name.lower(): column for column in TABLE_COLUMNS[table]}
    if not schema.fields:
        raise UserError("the schema names no column")
    requested: list[Column] = []
    for field in schema.fields:
        column = columns.get(field.name.lower())
        if column is None:
            names = [known.name for known in columns.values()]
            hint = nearest(field.name, names) or f"; it has {', '.join(names)}"
            raise UserError(f"{table} has no column {field.name}{hint}")
        if field.dataType.simpleString() != column.sql_type:
            raise UserError(
                f"column {field.name} is {column.sql_type}, the schema says {field.dataType.simpleString()}"
            )
        if not field.nullable or not _holds_nulls(field.dataType):
            raise UserError(f"column {field.name} must be nullable in the schema: leave out NOT NULL")
        if column in requested:
            raise UserError(f"the schema names column {field.name} twice")
        requested.append(column)
    types = [(field.name, column.arrow_type) for field, column in zip(schema.fields, requested, strict=True)]
    return tuple(column.name for column in requested), pa.schema(types)


def requested_names(
    table: str, names: Collection[str] | None, *more: Column
) -> tuple[tuple[str, ...], list[Column]]:
    """Returns names and declarations of the requested columns of a table, in the order of ``names``.

    names: None for all that need no lake. more: columns of records that may be named besides. Raises a
    UserError for a table or a column that there is not.
    """
    if table not in TABLE_COLUMNS:
        raise UserError(f"table must be one of {', '.join(TABLE_COLUMNS)}, not {table!r}")
    known = {column.name: column for column in TABLE_COLUMNS[table]}
    if names is None:
        return tuple(known), list(known.values())
    known |= {column.name: column for column in more if table == RECORDS.name}
    if isinstance(names, str) or not isinstance(names, Collection) or not names:
        raise UserError(f"columns must be a list of one or more of {', '.join(known)}, not {names!r}")
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            hint = nearest(name, list(known)) or f"; it has {', '.join(known)}"
            raise UserError(f"{table} has no column {name}{hint}")
    return wanted, [known[name] for name in wanted]


def _holds_nulls(kind: DataType) -> bool:
    """Returns whether the elements of an array, and their fields, may be null."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, ArrayType):
        return kind.containsNull and _holds_nulls(kind.elementType)
    if isinstance(kind, StructType):
        return all(field.nullable for field in kind.fields)
    return True

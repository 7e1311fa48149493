"""Reads the declarations of a lake's views: one ``.sql`` file each, here and in ``pipelines.rules``.

The comment on top of a file says what the view gives, and names its parameters and columns. The SELECT below
uses the plain names of tables and of other views; ``$NAME`` is a constant of ``pipelines.rules.constants``.

A view with parameters is a table function too: ``SELECT * FROM retention_report`` takes the defaults,
``SELECT * FROM retention_report(retention_ms => 86400000)`` other values. Views and functions are temporary
in a session of Spark (``register``), permanent in a catalog (``catalog``), and those of a database of DuckDB
(``pipelines.sql``). Those in ``session/`` call functions in Python: no catalog has them.

A file is written once, in the SQL that both engines run:

- a lambda is ``x -> ...``, ``offset`` needs no quotes, other reserved words are in backticks;
- functions of Spark that DuckDB lacks are in ``pipelines/sql/macros.sql``;
- texts are joined by ``||``, as concat() leaves nulls out in DuckDB;
- no backslash is in a literal: ``chr(92)``;
- bytes are compared as hex(); octet_length() is their length, try_validate_utf8() their text;
- count(*) FILTER (WHERE ...) counts, as count_if() of nulls alone is null in DuckDB;
- a window or list that is ordered by a column with nulls says where they come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from importlib import resources

from kafka_log_lake.pipelines.lake.address import sql_name, sql_string
from kafka_log_lake.pipelines.rules.constants import with_constants
from kafka_log_lake.udfs.format.report_tables import READ_BY_VIEWS, REPORT_TABLES
from kafka_log_lake.udfs.format.schema import TABLES, Column

# What many views begin with. ``Columns: those of`` takes all columns of one of these, or of a table or view,
# ``column, column: as in`` some of a table or view
_OF_A_LOG = (
    Column("topic", "string", "Topic"),
    Column("partition", "int", "Partition"),
    Column("partition_dir", "string", "Canonical URI of the partition folder"),
)
_OF_A_SEGMENT = (*_OF_A_LOG, Column("segment", "string", "Canonical URI of the segment file"))
_BEGINS = {"a log": _OF_A_LOG, "a segment": _OF_A_SEGMENT}
_COLUMNS = {table.name: table.columns for table in (*TABLES, *REPORT_TABLES)}
_NAMED = re.compile(r"\b(?:FROM|JOIN|: as in|those of) (\w+)\b")
_PARAMETER = re.compile(r"  (\w+) (\w+)(?: DEFAULT (\S+))?: (.+)")
_COLUMN = re.compile(r"  (\w+) ([\w<>,:()]+): (.+)")
_COLUMNS_OF = re.compile(r"Columns: those of ([\w ]+)(, then)?")
_AS_IN = re.compile(r"  (\w+(?:, \w+)*): as in (\w+)")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a view. default: a SQL literal; None if the caller must give a value."""

    name: str
    sql_type: str
    default: str | None
    comment: str

    def declaration(self) -> str:
        default = "" if self.default is None else f" DEFAULT {self.default}"
        return f"{self.name} {self.sql_type}{default} COMMENT {sql_string(self.comment)}"


@dataclass(frozen=True)
class View:
    """A view: its comment, parameters and columns, and its SELECT over the plain names of tables and views.

    in_session_only: whether it calls functions in Python, which no catalog holds.
    """

    name: str
    comment: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    select: str
    in_session_only: bool

    @property
    def has_defaults(self) -> bool:
        """Returns whether it can be read without arguments; else it is a table function alone."""
        return all(parameter.default is not None for parameter in self.parameters)

    def reads(self, names: Iterable[str]) -> set[str]:
        """Returns which of these tables and views it reads itself."""
        return set(re.findall(r"\b(?:FROM|JOIN) (\w+)\b", self.select)).intersection(names)

    def statements(self, keyword: str, select: str, prefix: str = "") -> Iterator[str]:
        """Yields SQL that creates the function, if it has parameters, and the view, if none must be given.

        keyword: TEMPORARY or nothing. select: the SELECT, with the names that the session or catalog knows.
        """
        if self.parameters:
            yield self.function(keyword, select, prefix)
        if self.has_defaults:
            yield self.view(keyword, select, prefix)

    def function(self, keyword: str, select: str, prefix: str = "") -> str:
        """Returns SQL that creates the table function. The arguments are those of ``statements``."""
        listed = ", ".join(parameter.declaration() for parameter in self.parameters)
        columns = ", ".join(f"{sql_name(c.name)} {c.sql_type}" for c in self.columns)
        returned = f"RETURNS TABLE({columns}) COMMENT {sql_string(self.comment)} RETURN {select}"
        return f"CREATE OR REPLACE {keyword} FUNCTION {prefix}{self.name}({listed}) {returned}"

    def view(self, keyword: str, select: str, prefix: str = "") -> str:
        """Returns SQL that creates the view, with the defaults of parameters: see ``statements``."""
        # not FROM name(): Spark takes twice as long to analyze a function
        for given in self.parameters:
            select = re.sub(rf"\b{given.name}\b", f"CAST({given.default} AS {given.sql_type})", select)
        commented = ", ".join(f"{sql_name(c.name)} COMMENT {sql_string(c.comment)}" for c in self.columns)
        created = f"CREATE OR REPLACE {keyword} VIEW {prefix}{self.name} ({commented})"
        return f"{created} COMMENT {sql_string(self.comment)} AS {select}"


def _read(name: str, text: str, in_session_only: bool) -> View:
    """Parses a view's file. The comment on top has the parts: comment, ``Parameters:``, ``Columns:``."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    comment: list[str] = []
    parameters: list[Parameter] = []
    columns: list[Column] = []
    columns_of: tuple[Column, ...] = ()
    part = ""
    for line in (line.removeprefix("--").removeprefix(" ") for line in lines[:head]):
        if (of := _COLUMNS_OF.fullmatch(line)) is not None:
            columns_of = _COLUMNS.get(of[1], ())
            columns += columns_of or _BEGINS[of[1]]
            part = "Columns:"
        elif line in ("Parameters:", "Columns:"):
            part = line
        elif part == "Parameters:" and (parameter := _PARAMETER.fullmatch(line)) is not None:
            parameters.append(Parameter(parameter[1], parameter[2], parameter[3], parameter[4]))
        elif part == "Columns:" and (like := _AS_IN.fullmatch(line)) is not None:
            known = {column.name: column for column in _COLUMNS[like[2]]}
            columns += [known[column_name] for column_name in like[1].split(", ")]
        elif part == "Columns:" and (column := _COLUMN.fullmatch(line)) is not None:
            columns.append(Column(column[1], column[2], column[3]))
        else:
            comment.append(line)
    select = "\n".join(lines[head:])
    if columns_of:  # columns that somebody added to a table are the table's, not the view's
        listed = ", ".join(f"{{0}}.{column.name}" for column in columns_of)
        select = re.sub(r"\b(\w+)\.\*(?! EXCEPT)", lambda match: listed.format(match[1]), select)
    return View(name, " ".join(comment), tuple(parameters), tuple(columns), select, in_session_only)


def _read_all() -> tuple[View, ...]:
    """Reads every view, each after those that it reads or has columns of."""
    folder_of_views, rules = (
        resources.files("kafka_log_lake.pipelines.views"),
        resources.files("kafka_log_lake.pipelines.rules"),
    )
    files = {
        file.name.removesuffix(".sql"): (with_constants(file.read_text()), folder.name == "session")
        for folder in (folder_of_views, rules, folder_of_views / "session")
        for file in sorted(folder.iterdir(), key=lambda file_: file_.name)
        if file.name.endswith(".sql")
    }
    named = {name: sorted({*_NAMED.findall(text)} & files.keys()) for name, (text, _) in files.items()}
    views = []
    for name in TopologicalSorter(named).static_order():
        views.append(_read(name, *files[name]))
        _COLUMNS[name] = views[-1].columns
    return tuple(views)


SESSION_VIEWS = _read_all()
# The views for users, by task, as SHOW TABLES has them. The schema ``internal`` has the others
PUBLIC = {
    "topics": ("topic_overview", "topics", "logs", "topic_profile", "payload_profile"),
    "records": ("messages", "committed_records", "latest_by_key", "key_history"),
    "damage": ("lost_offsets", "offset_gaps", "crc_report", "damaged_keys"),
    "consumers": (
        *("consumer_groups", "consumer_offsets", "group_lag", "group_lag_at", "group_members", "group_seeks"),
        *("share_groups", "unused_topics"),
    ),
    "applications": (
        *("connect_connectors", "connect_tasks", "connect_states", "connect_offsets", "dead_letters"),
        *(
            "mm2_heartbeats",
            "mm2_checkpoints",
            "mm2_offset_syncs",
            "translate_offset",
            "streams_applications",
            "streams_stores",
            "store",
        ),
    ),
    "producers": ("producers", "hanging_transactions"),
    "space and time": ("retention_report", "compaction_report", "timestamp_anomalies"),
}
VIEWS = tuple(view for view in SESSION_VIEWS if not view.in_session_only)


def null_column(
    column: Column, quoted: Callable[[str], str] = sql_name, type_name: Callable[[str], str] = str
) -> str:
    """Returns the SQL of a column of nulls. quoted, type_name: an engine's form of a name and of a type."""
    return f"CAST(NULL AS {type_name(column.sql_type)}) AS {quoted(column.name)}"


def no_rows(
    columns: Iterable[Column],
    quoted: Callable[[str], str] = sql_name,
    type_name: Callable[[str], str] = str,
) -> str:
    """Returns a SELECT of these columns without a row. quoted, type_name: see ``null_column``."""
    nulls = ", ".join(null_column(column, quoted, type_name) for column in columns)
    return f"SELECT {nulls} WHERE false"


def needed_names(statement: str, tables: Iterable[str]) -> set[str]:
    """Returns the tables and views that a statement names, and those that they read.

    All of them for "", and where a name may be computed. tables: the names of the tables there are.
    """
    views = {view.name: view for view in SESSION_VIEWS}
    known = {*views, *tables}
    words = set(re.findall(r"\w+", statement.lower()))
    computed = words & {"identifier", "immediate"}  # IDENTIFIER('a' || 'b'), EXECUTE IMMEDIATE 'SELECT ...'
    needed = known if computed or not words else known & words
    for view in reversed(SESSION_VIEWS):
        if view.name in needed:
            needed |= view.reads(known)
    return needed


def planned(view: View, tables: Collection[str]) -> View:
    """Returns a view as a lake with these tables has it: it has no rows where none that it needs is there.

    To plan index_report takes Spark a quarter of the time of all views.
    """
    needed = view.reads(table.name for table in READ_BY_VIEWS)
    return replace(view, select=no_rows(view.columns)) if needed and needed.isdisjoint(tables) else view

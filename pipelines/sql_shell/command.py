"""``kafka-log-lake sql --lake L``: a SQL shell on the tables, views and functions of a lake.

A statement ends with ``;`` and may go over several lines. It reads from a terminal, with the keys and the
history of readline and with names completed by Tab, or statements from a pipe. DuckDB runs them in this
process.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kafka_log_lake.pipelines.cli.commands.sql import SQL
from kafka_log_lake.pipelines.cli.errors import JobError, RunFailed, UserError, one_line
from kafka_log_lake.pipelines.cli.settings import LakeSettings
from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable, room_of_lines
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.lake.address import open_log
from kafka_log_lake.pipelines.sql import answers
from kafka_log_lake.pipelines.sql.database import duckdb_reads, open_database
from kafka_log_lake.pipelines.sql.kept import KeptViews
from kafka_log_lake.pipelines.sql.statements import KEPT, LAKE, check_text, has_code, split_statements
from kafka_log_lake.pipelines.views.declared import PUBLIC, SESSION_VIEWS
from kafka_log_lake.udfs.format.schema import SEGMENTS
from kafka_log_lake.udfs.functions.declared import FUNCTIONS, TABLE_FUNCTIONS

if TYPE_CHECKING:
    pass

_PROMPT, _GOES_ON = "sql> ", "...> "
_LEAVE, _HELP = ("exit", "quit"), "help"  # a line alone, with ; or without


QUERIES = (
    "SELECT * FROM topic_overview;",
    "SELECT timestamp, topic, key_text, value_text FROM messages ORDER BY timestamp DESC LIMIT 10;",
    "SELECT topic, side, format, schema_ids, payloads, decoded_share FROM payload_profile;",
    "SELECT topic, partition, first_lost, last_lost, cause, next_offset FROM lost_offsets;",
)
_KEYS = "A statement ends with ;   DESCRIBE topics; names columns   Tab completes   quit leaves"


def banner(tables: Iterable[str], width: int) -> str:
    """Returns what an analyst sees first: the tables, the views, some queries, the keys. width: of a line."""
    listed = {**PUBLIC, "tables": sorted(tables), "more": ("SHOW TABLES;", "SHOW TABLES FROM internal;")}
    indent = max(map(len, listed)) + 2
    blocks = [
        textwrap.fill(
            ", ".join(names), width, initial_indent=title.ljust(indent), subsequent_indent=" " * indent
        )
        for title, names in listed.items()
    ]
    return "\n".join([*blocks, "try", *(f"  {query}" for query in QUERIES), _KEYS])


def read_statements(read: Callable[[str], str]) -> Iterator[str]:
    """Yields statements as the lines that ``read(prompt)`` gives complete them, until it raises EOFError.

    Ctrl-C while a statement is typed drops what was typed.
    """
    text = ""
    while True:
        try:
            text += read(_GOES_ON if text else _PROMPT) + "\n"
        except KeyboardInterrupt:
            print()
            text = ""
            continue
        except EOFError:
            break
        if text.strip().lower() in (*_LEAVE, _HELP):
            text = f"{text.strip()};"
        statements, text = split_statements(text)
        if not has_code(text) and "/*" not in text:
            text = ""
        yield from filter(has_code, statements)
    if has_code(text):  # the end of a pipe ends a statement too
        yield text.strip()


def _line_of_pipe(prompt: str) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


class Shell:
    """A shell that runs statements in DuckDB. What they make in memory ends with the shell.

    words: names that Tab completes. tables: those of the lake.
    """

    def __init__(self, settings: LakeSettings, at: str | None) -> None:
        self._database = open_database(settings.require_lake(), threads=settings.cores, at=at)
        listed = self._database.sql(f"""
            SELECT CASE schema_name WHEN 'main' THEN table_name
              ELSE schema_name || '."' || replace(table_name, '"', '""') || '"' END, column_name
            FROM duckdb_columns()
            WHERE NOT internal AND schema_name NOT IN ('internal', '{LAKE}', '{KEPT}')""")
        columns = listed.fetchall()
        self._kept = KeptViews(self._database)
        views = {view.name for view in SESSION_VIEWS}
        self.tables = sorted({table for table, _ in columns} - views)
        self.words = {name for pair in columns for name in pair}

    def lines(self, statement: str) -> Iterator[str]:
        """Returns lines that print the result of a statement."""
        self._kept.before(statement)
        return answers.answer(self._database, statement, "table", room_of_lines(), answers.IN_MEMORY)

    def cancel(self) -> None:
        """Stops the statement that is running."""
        self._database.interrupt()


def _set_up_terminal(words: set[str]) -> None:
    """Sets up line editing with history of this session alone, and completion of known names."""
    with suppress(ImportError):  # a Python without readline has plain input
        import readline

        known = words | {
            *(function.name for function in FUNCTIONS),
            *(function.name for function in TABLE_FUNCTIONS),
        }

        def complete(text: str, state: int) -> str | None:
            words = sorted(word for word in known if word.lower().startswith(text.lower()))
            return words[state] if text and state < len(words) else None

        readline.set_completer(complete)
        readline.set_completer_delims(" \t\n,;()=<>.+-*/'\"`")
        readline.parse_and_bind("tab: complete")


def run_statement(shell: Shell, statement: str) -> bool:
    """Prints the result of one statement, or one line that says why there is none. Returns whether one is.

    Ctrl-C stops the statement, and on a terminal not the shell.
    """
    try:
        check_text(statement)
        for line in shell.lines(statement):
            print(line)
    except KeyboardInterrupt:
        shell.cancel()
        if not sys.stdin.isatty():
            raise
        print("interrupted", file=sys.stderr)
        return False
    except BrokenPipeError:
        raise
    except Exception as error:
        message = str(error) if isinstance(error, JobError) else one_line(error)
        print(f"error: {printable(message)}", file=sys.stderr)
        return False
    finally:
        sys.stdout.flush()
    return True


def run(settings: LakeSettings, at: str | None = None, log: str | None = None) -> None:
    """Runs statements until the input ends. Raises a RunFailed if one of those from a pipe failed.

    log: one of several copies, by name, or healed.
    """
    lake = settings.require_lake()
    if "://" not in lake and not os.path.isdir(f"{lake.removeprefix('file:')}/{SEGMENTS.name}/_delta_log"):
        raise UserError(f"there is no lake at {lake}: name a folder that decode made")
    if log is not None:
        lake = open_log(lake, log)
    if not duckdb_reads(lake):
        raise UserError(
            f"DuckDB reads no lake at {lake}: use query --engine spark, or register() in a session"
        )
    _run(Shell(replace(settings, lake=lake), at))


def _run(shell: Shell) -> None:
    interactive = sys.stdin.isatty()
    shown = banner(shell.tables, shutil.get_terminal_size().columns)
    if interactive:
        _set_up_terminal(shell.words)
        print(shown)
    failed = 0
    read = input if interactive else _line_of_pipe
    for statement in read_statements(read):
        if statement.lower() in _LEAVE:
            break
        if statement.lower() == _HELP:
            print(shown)
            continue
        failed += not run_statement(shell, statement)
    if failed and not interactive:
        raise RunFailed(f"{counted_noun(failed, 'statement')} failed")


main = partial(run_command, SQL, run, with_spark=False)

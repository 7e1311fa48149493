"""What a person does next with a lake: the lines at the end of the summary of ``decode``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_log_lake.pipelines.cli.generated import command_line
from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names, invocation
from kafka_log_lake.udfs.values.internal.topics import TOPICS
from kafka_log_lake.udfs.values.schemas.registry import REGISTRY_TOPICS

# What ends a word in double quotes for a shell, or is replaced there
_ACTS_IN_QUOTES = frozenset('"$`\\!')


def typed_line(typed: Sequence[Mapping[str, Any]]) -> str:
    """Returns the line on typed tables, the largest first.

    typed: of each its ``table`` in SQL, rows and errors.
    """
    largest = sorted(typed, key=lambda row: (-row["rows"], row["table"]))
    names = [f"{row['table']} ({row['rows']:,})" for row in largest]
    records = counted_noun(sum(row["rows"] for row in typed), "record")
    return f"{counted_noun(len(typed), 'typed table')} ({records}): {first_names(names, 5)}"


def topic_query(records: Mapping[str, int], typed: Sequence[Mapping[str, Any]]) -> str:
    """Returns SQL that shows records of the user's largest topic, from its typed table where it has one.

    records: of this run, by topic. typed: see ``typed_line``. Without a topic: records of any.
    """
    counts = {topic: count for topic, count in records.items() if topic not in {*TOPICS, *REGISTRY_TOPICS}}
    tables = {row["topic"]: row for row in typed if row["rows"] > row["errors"]}
    largest = max(counts, key=lambda topic: (topic in tables, counts[topic], topic), default=None)
    if largest is None:
        return "SELECT topic, timestamp, key_text, value_text FROM messages LIMIT 10"
    if largest in tables:
        return f"SELECT * FROM {tables[largest]['table']} LIMIT 10"
    name = largest.replace("'", "''")
    return f"SELECT timestamp, key_text, value_text FROM messages WHERE topic = '{name}' LIMIT 10"


def query_line(lake: str, statement: str) -> str:
    """Returns the line for a shell that runs a statement over a lake."""
    head = f"{invocation()} query"
    if statement.isprintable() and _ACTS_IN_QUOTES.isdisjoint(statement):
        line = command_line(head, ("--lake", lake))
        return f'{line} "{statement}"'
    return command_line(head, ("--lake", lake), statement)

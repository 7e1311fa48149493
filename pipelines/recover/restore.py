"""Writes lost records again: decides what becomes of each, and makes the files and commands for it.

``restore.sh`` writes records of losing histories, committed, and not in the true log. Of a compacted topic it
holds back those whose key has a newer value in the true log. ``kafka-console-producer.sh`` reads a record a
line, as text. From the first record of a partition on that is no such line, all lie as JSON and Base64 for
``restore.py``, so that they are written in their order.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TextIO

import duckdb
import pyarrow as pa

from kafka_log_lake.pipelines.cli.generated import (
    base64_text,
    command_line,
    comment,
    header_pairs,
    shell_word,
)
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.cli.values import is_topic_name
from kafka_log_lake.pipelines.listing.cluster_state import ClusterState
from kafka_log_lake.pipelines.recover.losses import PARTED_AT
from kafka_log_lake.udfs.values.internal.topics import TOPICS

WRITTEN, HELD_BACK, IN_TRUTH, NOT_COMMITTED, DELETED, OTHER_ID, INTERNAL, NO_NAME = range(8)
# What restore.sh does with a lost record, by these numbers: a name, and words around how many there are
FATES = (
    ("written", "writes", "again"),
    ("held_back", "holds back", "of compacted topics: the true log has newer values of their keys"),
    ("in_truth", "leaves out", "that the true log has too, at another offset"),
    ("not_committed", "leaves out", "of transactions that were aborted, or that have no end"),
    ("deleted", "leaves out", "below the log start, which had been deleted"),
    ("other_topic_id", "leaves out", "of a deleted topic of the same name"),
    ("internal", "leaves out", "of Kafka's own internal topics"),
    ("no_name", "leaves out", "of topics whose names Kafka does not take"),
)


class Policy(NamedTuple):
    """Whether a topic is compacted (the log cleaner keeps the latest value of each key), and what says so."""

    is_compacted: bool
    witness: str


def policy_of(topic: str, state: ClusterState | None, was_cleaned: bool) -> Policy:
    """Finds the ``cleanup.policy`` of a topic: its own, the cluster's default, or what its log shows.

    state: what the metadata log says; None without one. was_cleaned: whether the log cleaner ran over a copy.
    """
    setting = state.setting(topic, "cleanup.policy") if state is not None else None
    if setting is not None:
        key, value = setting
        is_compacted = "compact" in value.replace(" ", "").split(",")
        return Policy(is_compacted, f"{key}={value} in __cluster_metadata")
    known = "__cluster_metadata has no setting" if state is not None else "no __cluster_metadata is here"
    return Policy(was_cleaned, f"{known}, {'a' if was_cleaned else 'no'} log cleaner ran over its log")


class Loss(NamedTuple):
    """How many records of a topic only losing histories have, for one reason, acknowledgement and fate.

    why: as in ``lost_records``. acknowledged: yes, likely or unknown. fate: an index of FATES. also: how many
    of these the true log has too.
    """

    topic: str
    why: str
    acknowledged: str
    fate: int
    records: int
    also: int


# One row a record, though several copies have it; those without leader epochs may have others at its offset.
# Where copies differ in what is known of a record, what speaks for writing it counts
_RECORDS = f"""
WITH parted AS (
  SELECT *, {PARTED_AT} AS parted_at FROM lost_records
)
SELECT topic, partition, "offset", leader_epoch, headers, key, value, why,
  CASE max(CASE acknowledged WHEN 'yes' THEN 2 WHEN 'likely' THEN 1 ELSE 0 END)
    WHEN 2 THEN 'yes' WHEN 1 THEN 'likely' ELSE 'unknown' END AS acknowledged,
  bool_or(also_in_truth IS NOT NULL) AS also,
  CASE WHEN min(fate) = {WRITTEN} AND bool_or(fate = {HELD_BACK}) THEN {HELD_BACK} ELSE min(fate) END AS fate
FROM (
  SELECT l.*, CASE
    WHEN l.why = 'before-log-start' THEN {DELETED}
    WHEN l.why = 'other-topic-id' THEN {OTHER_ID}
    WHEN t.is_internal THEN {INTERNAL}
    WHEN coalesce(l.transaction, 'committed') <> 'committed' THEN {NOT_COMMITTED}
    WHEN l.also_in_truth IS NOT NULL THEN {IN_TRUTH}
    WHEN NOT t.has_name THEN {NO_NAME}
    WHEN t.is_compacted AND coalesce(l.true_offset >= l.parted_at, false) THEN {HELD_BACK}
    ELSE {WRITTEN} END AS fate
  FROM parted l JOIN restored_topics t ON t.topic = l.topic
  WHERE l.control_type IS NULL
)
GROUP BY topic, partition, "offset", leader_epoch, headers, key, value, why
"""
_COUNTED = f"""
SELECT topic, why, acknowledged, fate, count(*), count(*) FILTER (WHERE also) FROM ({_RECORDS})
GROUP BY ALL ORDER BY ALL
"""
_FILED = f"""
SELECT topic, partition, fate, "offset", headers, key, value FROM ({_RECORDS})
WHERE fate IN ({WRITTEN}, {HELD_BACK}) ORDER BY topic, partition, "offset", leader_epoch
"""


def register_topics(database: duckdb.DuckDBPyConnection, policies: Mapping[str, Policy]) -> None:
    """Registers the table ``restored_topics``, which the functions below need in the database."""
    names = list(policies)
    columns = {
        "topic": pa.array(names, pa.string()),
        "is_compacted": pa.array([policies[name].is_compacted for name in names], pa.bool_()),
        "is_internal": pa.array([name in TOPICS for name in names], pa.bool_()),
        "has_name": pa.array([is_topic_name(name) for name in names], pa.bool_()),
    }
    database.register("restored_topics", pa.table(columns))


def count_losses(database: duckdb.DuckDBPyConnection) -> list[Loss]:
    """Counts the records of ``lost_records``, each one once. Needs ``register_topics`` before."""
    return [Loss(*row) for row in database.execute(_COUNTED).fetchall()]


def by_fate(losses: Iterable[Loss]) -> dict[int, int]:
    """Returns fate -> number of records, without fates of no record."""
    counts: Counter[int] = Counter()
    for loss in losses:
        counts[loss.fate] += loss.records
    return dict(sorted(counts.items()))


def restore_texts(losses: Sequence[Loss]) -> list[str]:
    """Says what ``restore.sh`` does with the lost records: a text for each fate, WRITTEN first."""
    counts = {WRITTEN: 0} | by_fate(losses)
    words = ((count, *FATES[fate][1:]) for fate, count in counts.items())
    return [f"{verb} {counted_noun(count, 'record')} {rest}" for count, verb, rest in words]


_LONGEST_NAME = 200
# --sync: without it the producer says that a record can't be written, goes on and ends as if it were
_NULL = "<null>"
_OPTIONS = f"--sync --property parse.headers=true --property parse.key=true --property null.marker='{_NULL}'"
_PRODUCER = """\
# Writes the records of .jsonl files again, one after the other, each acknowledged before the next one.
# usage: python3 restore.py HOST:PORT FILE ...; needs confluent-kafka
import base64, json, sys

from confluent_kafka import KafkaException, Producer


def data(text):
    return None if text is None else base64.b64decode(text)


def check(error, record):
    if error is not None:
        raise KafkaException(error)


producer = Producer({"bootstrap.servers": sys.argv[1], "partitioner": "murmur2_random"})  # as Kafka's own
for path in sys.argv[2:]:
    for row in map(json.loads, open(path, encoding="utf-8")):
        headers = [(name, data(value)) for name, value in row["headers"]]
        producer.produce(row["topic"], data(row["value"]), data(row["key"]), headers=headers, callback=check)
        producer.flush()
"""


class _File(NamedTuple):
    """A file with records of one partition; files sort in the order in which they are written to the broker.

    is_held: its records are held back. is_json: it is JSON, as not all records can be lines of text. The
    topic has a name that Kafka takes.
    """

    topic: str
    partition: int
    is_held: bool
    is_json: bool

    @property
    def path(self) -> str:
        ends = ("", ".held")[self.is_held] + (".txt", ".jsonl")[self.is_json]
        name = self.topic
        if len(name) > _LONGEST_NAME:  # a file's name has 255 bytes at most; no topic's name has a tilde
            name = f"{name[:_LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        return f"restore/{name}-{self.partition}{ends}"

    @property
    def command(self) -> str:
        if self.is_json:
            return command_line('python3 restore.py "$1"', self.path)
        producer = command_line('kafka-console-producer.sh --bootstrap-server "$1"', ("--topic", self.topic))
        return f"{producer} {_OPTIONS} < {quote(self.path)}"


def write_restore(
    database: duckdb.DuckDBPyConnection, folder: Path, losses: Sequence[Loss], policies: Mapping[str, Policy]
) -> None:
    """Writes ``restore.sh``, ``restore.py``, and ``restore/<topic>-<partition>.*`` with records.

    database: with the table lost_records, and its topics. losses: what ``count_losses`` gave. Raises OSError.
    """
    counts: Counter[_File] = Counter()
    batches = database.sql(_FILED).to_arrow_reader(1000)
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, of_partition in groupby(rows, itemgetter("topic", "partition")):
        with ExitStack() as stack:
            files: dict[_File, TextIO] = {}
            for row in of_partition:
                file = _File(row["topic"], row["partition"], row["fate"] == HELD_BACK, is_json=True)
                line = None if file in files else _line(row)
                file = file._replace(is_json=line is None)
                if file not in files:
                    path = folder / file.path
                    path.parent.mkdir(exist_ok=True)
                    files[file] = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
                files[file].write(f"{_json(row) if line is None else line}\n")
                counts[file] += 1
    (folder / "restore.py").write_text(_PRODUCER, encoding="utf-8")
    text = "".join(f"{line}\n" for line in _script(counts, losses, policies))
    (folder / "restore.sh").write_text(text, encoding="utf-8")


def _script(
    counts: Mapping[_File, int], losses: Sequence[Loss], policies: Mapping[str, Policy]
) -> Iterator[str]:
    """Yields the lines of ``restore.sh``. If a tool is missing the script ends before it writes anything."""
    yield from ("#!/bin/sh", "# Of the records on losing histories alone this script")
    yield from (comment(f"- {text}") for text in restore_texts(losses))
    yield from (
        "# usage: sh restore.sh HOST:PORT, with Kafka's bin in PATH. It stops at the first record that can't",
        "# be written; a second run writes what came before it a second time.",
        "set -e",
        ': "${1:?usage: sh restore.sh HOST:PORT}"',
        'cd "$(dirname "$0")"',
    )
    written = {file.is_json for file in counts if not file.is_held}
    if False in written:
        yield "command -v kafka-console-producer.sh"
    if True in written:
        yield "python3 -c 'import confluent_kafka'"
    for file, count in sorted(counts.items()):
        if file.is_held:
            words = (
                f"{counted_noun(count, 'record')} held back: they would replace newer values in the true log"
            )
            yield comment(f"{words} ({policies[file.topic].witness}):")
            yield comment(file.command)
        else:
            yield comment(counted_noun(count, "record"))
            yield file.command
    for loss in losses:
        if loss.fate == NO_NAME:
            words = f"{counted_noun(loss.records, 'record')} left out: Kafka takes no topic of the name"
            yield comment(f"{words} {shell_word(loss.topic)}")


def _line(row: dict[str, Any]) -> str | None:
    """Returns a record as a line for ``LineMessageReader``: headers, key, value; None if that can't be."""
    try:
        headers = [(header["key"], _text(header["value"], "\t,")) for header in row["headers"] or ()]
        key, value = _text(row["key"], "\t"), _text(row["value"], "")
    except ValueError:
        return None
    if any(set(name) & set("\t\r\n\0,:") or name == _NULL for name, _ in headers):
        return None
    listed = ",".join(f"{name}:{text}" for name, text in headers)
    return f"{listed or _NULL}\t{key}\t{value}"


def _text(data: bytes | None, separators: str) -> str:
    """Decodes bytes. Raises ValueError for no UTF-8, a separator, a line break, NUL or the null marker."""
    if data is None:
        return _NULL
    text = data.decode()
    if text == _NULL or set(text) & {"\r", "\n", "\0", *separators}:
        raise ValueError
    return text


def _json(row: dict[str, Any]) -> str:
    place = {name: row[name] for name in ("topic", "offset")}
    encoded = {name: base64_text(row[name]) for name in ("key", "value")}
    return json.dumps({**place, **encoded, "headers": header_pairs(row["headers"])})

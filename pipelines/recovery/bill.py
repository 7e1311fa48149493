"""The loss bill: the records of losing histories, and what the true history has in their place.

Files and commands write lost records again: of a losing history, committed, and not in the true log.
``kafka-console-producer.sh`` reads a record a line, as text. From the first record of a partition on that is
no such line, all lie as JSON and Base64 for ``restore.py``, so that they are written in their order.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TextIO

import duckdb
import pyarrow as pa

from pipelines.command.generated import command_line, comment, shell_word
from pipelines.command.terminal import counted_noun
from pipelines.command.values import is_topic_name
from pipelines.recovery.partition import LOST
from pipelines.sql.database import open_database
from udfs.format.recovery_tables import LOST_RECORDS
from udfs.replicas.acknowledged import ANSWERS

_ROWS = 1 << 14  # of the bill at a time


def bill(lake: str, files: Sequence[str]) -> pa.RecordBatchReader:
    """Rows of ``lost_records``, from the files of ``partition``. The lake holds the healed log."""
    schema = LOST_RECORDS.arrow_schema()
    if not files:
        return pa.RecordBatchReader.from_batches(schema, [])
    database = open_database(lake, "SELECT * FROM committed_records, records")
    import pyarrow.dataset as ds  # few bills need it

    database.register("lost", ds.dataset([os.fspath(one) for one in files], schema=LOST))
    words = " ".join(f"WHEN {i} THEN '{word}'" for i, (word, _) in enumerate(ANSWERS))
    reasons = " ".join(f"WHEN {i} THEN '{why}'" for i, (_, why) in enumerate(ANSWERS))
    query = _BILL.format(words=words, reasons=reasons, parted_at=PARTED_AT)
    reader = database.sql(query).to_arrow_reader(_ROWS)
    return pa.RecordBatchReader.from_batches(schema, (_cast(batch, schema) for batch in reader))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.Table.from_batches([batch]).select(schema.names).cast(schema).combine_chunks().to_batches()[0]


# Where the history of a lost record's copy parts from the true one: what the true log has before, the losing
# log has too, and no record there was sent in place of a lost one
PARTED_AT = 'min("offset") OVER (PARTITION BY topic, partition, copy, why)'
# Of what lies before the log's start the marker may be in the true log: its first one of the producer
_BILL = """
WITH first_markers AS (
  SELECT topic, partition, producer_id, arg_min(control_type, "offset") AS control_type
  FROM records WHERE control_type IN ('COMMIT', 'ABORT') GROUP BY ALL
), ended AS (
  SELECT l.*, CASE WHEN l.is_transactional AND l.control_type IS NULL THEN coalesce(
    CASE coalesce(first_value(l.control_type IGNORE NULLS) OVER (
      PARTITION BY l.topic, l.partition, l.copy, l.why, l.producer_id ORDER BY l."offset"
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), m.control_type)
    WHEN 'COMMIT' THEN 'committed' WHEN 'ABORT' THEN 'aborted' END, 'open') END AS transaction
  FROM lost l LEFT JOIN first_markers m ON l.why = 'before-log-start' AND m.topic = l.topic
    AND m.partition = l.partition AND m.producer_id = l.producer_id
), keys AS (
  SELECT DISTINCT topic, partition, key FROM lost WHERE key IS NOT NULL AND control_type IS NULL
), latest AS (
  SELECT c.topic, c.partition, c.key, max(c."offset") AS true_offset,
    arg_max(c.value, c."offset") AS true_value,
    arg_max(c.value IS NULL, c."offset") AS is_tombstone
  FROM committed_records c SEMI JOIN keys k
    ON k.topic = c.topic AND k.partition = c.partition AND k.key = c.key
  GROUP BY ALL
), parted AS (
  SELECT *, {parted_at} AS parted_at FROM lost
), twins AS (
  SELECT l.copy, l.topic, l.partition, l.why, l."offset", min(r."offset") AS also_in_truth
  FROM parted l JOIN records r ON r.topic = l.topic AND r.partition = l.partition
    AND r."offset" >= l.parted_at
    AND r.key IS NOT DISTINCT FROM l.key AND r.value IS NOT DISTINCT FROM l.value
    AND r.headers IS NOT DISTINCT FROM l.headers
  WHERE l.control_type IS NULL AND r.control_type IS NULL
  GROUP BY ALL
)
SELECT e.topic, e.partition, e."offset", e.leader_epoch, e.copy, e.why, e.timestamp_ms, e.key, e.value,
  e.headers, e.control_type, e.producer_id, e.producer_epoch, e.sequence, e.is_transactional, e.transaction,
  CASE WHEN e.control_type IS NOT NULL THEN NULL WHEN e.transaction = 'committed' AND e.answer < 2 THEN 'yes'
    ELSE CASE e.answer {words} END END AS acknowledged,
  CASE WHEN e.control_type IS NOT NULL THEN NULL WHEN e.transaction = 'committed' AND e.answer < 2
    THEN 'its transaction was committed, which a producer does once all of it is answered'
    ELSE CASE e.answer {reasons} END END AS acknowledged_why,
  t.also_in_truth, n.true_offset,
  CASE WHEN n.is_tombstone THEN NULL ELSE n.true_value END AS true_value, e.segment
FROM ended e
LEFT JOIN twins t ON t.topic = e.topic AND t.partition = e.partition AND t.copy = e.copy AND t.why = e.why
  AND t."offset" = e."offset"
LEFT JOIN latest n ON n.topic = e.topic AND n.partition = e.partition AND n.key = e.key
  AND e.control_type IS NULL
ORDER BY e.topic, e.partition, e."offset", e.copy
"""


# Lost records, to be written again

_NULL = "<null>"
_LONGEST_NAME = 200
# --sync: without it the producer says that a record can't be written, goes on and ends as if it were
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
# One row a record, though several copies have it; those without leader epochs may have others at its offset.
# Internal topics are brokers' own
_QUERY = f"""
WITH diverged AS (
  SELECT *, {PARTED_AT} AS parted_at
  FROM lost_records WHERE why = 'diverged'
)
SELECT topic, partition, coalesce(bool_or(true_offset >= parted_at), false) AS is_older, "offset",
  headers, key, value
FROM diverged
WHERE control_type IS NULL AND coalesce(transaction, 'committed') = 'committed' AND also_in_truth IS NULL
  AND topic NOT IN ('__consumer_offsets', '__transaction_state', '__share_group_state',
    '__remote_log_metadata')
GROUP BY topic, partition, "offset", leader_epoch, headers, key, value
ORDER BY topic, partition, "offset", leader_epoch
"""


class _File(NamedTuple):
    """Records of one partition, in the order in which files are written to the broker.

    is_older: the true log has a newer value of their keys. is_json: they are not all lines of text.
    """

    topic: str
    partition: int
    is_older: bool
    is_json: bool

    @property
    def path(self) -> str:
        ends = ("", ".older")[self.is_older] + (".txt", ".jsonl")[self.is_json]
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


def write_restore(database: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Writes ``restore.sh``, ``restore.py``, and ``restore/<topic>-<partition>.*`` with records.

    database: with the table lost_records. Raises OSError.
    """
    place = folder / "restore"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    counts: Counter[_File] = Counter()
    refused: Counter[str] = Counter()
    batches = database.sql(_QUERY).to_arrow_reader(1000)
    rows = (row for batch in batches for row in batch.to_pylist())
    for (topic, _), of_partition in groupby(rows, itemgetter("topic", "partition")):
        if not is_topic_name(topic):
            refused[topic] += sum(1 for _ in of_partition)
            continue
        with ExitStack() as stack:
            files: dict[_File, TextIO] = {}
            for row in of_partition:
                own = _File(row["topic"], row["partition"], row["is_older"], is_json=True)
                line = None if own in files else _line(row)
                own = own._replace(is_json=line is None)
                if own not in files:
                    path = folder / own.path
                    files[own] = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
                files[own].write(f"{_json(row) if line is None else line}\n")
                counts[own] += 1
    (folder / "restore.py").write_text(_PRODUCER, encoding="utf-8")
    (folder / "restore.sh").write_text(
        "".join(f"{line}\n" for line in _script(counts, refused)), encoding="utf-8"
    )


def _script(counts: Counter[_File], refused: Counter[str]) -> Iterator[str]:
    """A missing tool ends it before it has written anything. refused: records of names that Kafka forbids."""
    yield from (
        "#!/bin/sh",
        "# usage: sh restore.sh HOST:PORT, with Kafka's bin in PATH. It stops at the first record that can't",
        "# be written; a second run writes what came before it a second time.",
        "set -e",
        ': "${1:?usage: sh restore.sh HOST:PORT}"',
        'cd "$(dirname "$0")"',
    )
    written = {file.is_json for file in counts if not file.is_older}
    if False in written:
        yield "command -v kafka-console-producer.sh"
    if True in written:
        yield "python3 -c 'import confluent_kafka'"
    for file, count in sorted(counts.items()):
        if file.is_older:
            yield f"# {counted_noun(count, 'record')} that would replace a newer value in the true log:"
            yield f"# {file.command}"
        else:
            yield f"# {counted_noun(count, 'record')}"
            yield file.command
    for topic, count in sorted(refused.items()):
        words = f"{counted_noun(count, 'record')} left out: Kafka takes no topic of the name"
        yield comment(f"{words} {shell_word(topic)}")


def _line(row: dict[str, Any]) -> str | None:
    """A record as ``LineMessageReader`` reads it: headers, key, value; None where it can't."""
    try:
        headers = [(one["key"], _text(one["value"], "\t,")) for one in row["headers"] or ()]
        key, value = _text(row["key"], "\t"), _text(row["value"], "")
    except ValueError:
        return None
    if any(set(name) & set("\t\r\n\0,:") or name == _NULL for name, _ in headers):
        return None
    listed = ",".join(f"{name}:{text}" for name, text in headers)
    return f"{listed or _NULL}\t{key}\t{value}"


def _text(data: bytes | None, separators: str) -> str:
    """Raises ValueError for bytes that are no text, or that hold a separator, NUL or the word for null."""
    if data is None:
        return _NULL
    text = data.decode()
    if text == _NULL or set(text) & {"\r", "\n", "\0", *separators}:
        raise ValueError
    return text


def _json(row: dict[str, Any]) -> str:
    def encoded(data: bytes | None) -> str | None:
        return None if data is None else b64encode(data).decode()

    headers = [[one["key"], encoded(one["value"])] for one in row["headers"] or ()]
    own = {name: row[name] for name in ("topic", "offset")}
    return json.dumps({**own, "key": encoded(row["key"]), "value": encoded(row["value"]), "headers": headers})

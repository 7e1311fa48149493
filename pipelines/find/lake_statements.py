"""Holds the SQL with which a lake is searched: statements over whole logs, and conditions of a request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kafka_log_lake.pipelines.engine.delta import sql_literal
from kafka_log_lake.pipelines.find.conditions import Condition, InBounds, IsNull, OneOf, Prefix
from kafka_log_lake.pipelines.find.logs import LakeLog

_MOST_VALUES = 1000  # of a column in a statement
ORDER = 'file_base_offset, batch_position, "offset"'
IN_LOG = "topic = ? AND partition = ? AND partition_dir = ?"
IN_LOGS = "list_contains($topics, topic) AND list_contains($partitions, partition)"
# The damaged ranges of logs, each with the offsets around it: those of batches of its segment, of which
# a wrong base offset is none, else those in the names of files
DAMAGES = f"""WITH files AS (
  SELECT segment, lead(file_base_offset) OVER log AS following
  FROM segments WHERE {IN_LOGS} WINDOW log AS (PARTITION BY partition_dir ORDER BY file_base_offset)
)
SELECT q.partition_dir, q.segment, q.position, q.size_bytes, q.reason, q.detail,
  coalesce(max(s.last_offset) FILTER (s.position < q.position), q.file_base_offset - 1),
  coalesce(min(s.base_offset) FILTER (s.position > q.position), any_value(f.following))
FROM (FROM published_quarantine WHERE {IN_LOGS}) q
LEFT JOIN files f ON f.segment = q.segment
LEFT JOIN (FROM sound_batches WHERE {IN_LOGS} AND NOT is_misplaced) s ON s.segment = q.segment
GROUP BY q.partition_dir, q.segment, q.position, q.size_bytes, q.reason, q.detail, q.file_base_offset
ORDER BY q.file_base_offset, q.position"""
TRANSACTIONS = f"""SELECT partition_dir, producer_id, producer_epoch, first_offset, last_offset, outcome,
  NOT holds_last_stable_offset
FROM current_transactions WHERE {IN_LOGS} AND first_offset IS NOT NULL"""
# The last offset that the file names allow in a segment of which records were left out
LEFT_OUT_UNTIL = f"""SELECT max(coalesce(next_base - 1, {2**63 - 1})) FROM (
  SELECT left_out, lead(file_base_offset) OVER (ORDER BY file_base_offset) AS next_base
  FROM segments WHERE {IN_LOG}
) WHERE left_out <> 0"""
# The logs in which a segment does not end where the next begins, or offsets go back: only there may a segment
# be missing, or a base offset be wrong
SUSPECTS = """SELECT DISTINCT topic, partition_dir FROM segments
QUALIFY offset_regressions > 0 OR first_offset < file_base_offset
  OR coalesce(end_offset, file_base_offset - 1)
  <> lead(file_base_offset) OVER (PARTITION BY partition_dir ORDER BY file_base_offset) - 1"""
# What the last segment of each log ends in, if that is no batch, and the offset after its last batch
TAILS = f"""SELECT partition_dir, tail, tail_bytes,
  greatest(coalesce(end_offset + 1, 0), file_base_offset), batches
FROM segments WHERE {IN_LOGS}
QUALIFY tail_bytes > 0 AND file_base_offset = max(file_base_offset) OVER (PARTITION BY partition_dir)"""


def in_logs(logs: Iterable[LakeLog]) -> str:
    """Returns a condition of SQL for the topics and partitions of logs, which tells DuckDB the files to read.

    Views with windows get ``IN_LOGS``: DuckDB does not evaluate this one before a window.
    """
    partitions: dict[str, set[int]] = defaultdict(set)
    for log in logs:
        partitions[log.topic].add(log.partition)
    terms = [
        f"topic = {sql_literal(topic)} AND partition IN ({', '.join(map(str, sorted(numbers)))})"
        for topic, numbers in partitions.items()
    ]
    return f"({' OR '.join(terms)})"


def pushed(conditions: Iterable[Condition]) -> tuple[str, list[object]]:
    """Returns a condition of SQL that holds wherever all conditions do, and its values."""
    terms, values = ["true"], []
    for condition in conditions:
        if isinstance(condition, InBounds):
            ranges = [one_bounds(condition.column, *bounds) for bounds in condition.bounds]
            terms.append(f"({' OR '.join(ranges)})")
        elif isinstance(condition, OneOf) and len(condition.values) <= _MOST_VALUES:
            terms.append(f'"{condition.column}" IN (' + ", ".join("?" * len(condition.values)) + ")")
            values += condition.values.to_pylist()
        elif isinstance(condition, IsNull):
            terms.append(f'"{condition.column}" IS NULL')
        elif isinstance(condition, Prefix):
            terms.append('"key" >= ?')
            values.append(condition.text)
    return " AND ".join(terms), values


def one_bounds(column: str, low: int | None, high: int | None) -> str:
    """Returns bounds as a condition of SQL; None: unbounded."""
    terms = [f'"{column}" {sign} {bound}' for sign, bound in ((">=", low), ("<", high)) if bound is not None]
    return " AND ".join(terms) or "true"

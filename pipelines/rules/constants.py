"""Holds what Python and SQL share of Kafka's rules: ``$NAME`` in a view's file stands for the SQL here."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_log_lake.udfs.batches.clocks import (
    CERTAINTIES,
    FIRST_KAFKA_MS,
    LONGEST_LIKELY_MS,
    MAX_AHEAD_MS,
    TRANSACTION_TIMEOUT_MS,
    WITNESSES,
    WRONG_UNITS,
)
from kafka_log_lake.udfs.batches.decisions import as_sql, text
from kafka_log_lake.udfs.batches.hanging_transactions import (
    FLINK_IDS,
    NEVER_MS,
    PREPARE,
    REASONS,
    REMEDIES,
    STATES,
)
from kafka_log_lake.udfs.batches.retention import COMPACTED_TOPICS, DEFAULT_MS, KEEPING_TOPICS
from kafka_log_lake.udfs.values import sampling

_NAME = re.compile(r"\$([A-Z_]+)")


def _texts(values: Iterable[str]) -> str:
    return f"({', '.join(map(text, values))})"


CONSTANTS = {
    "FIRST_KAFKA_MS": str(FIRST_KAFKA_MS),
    "MAX_AHEAD_MS": str(MAX_AHEAD_MS),
    "TRANSACTION_TIMEOUT_MS": str(TRANSACTION_TIMEOUT_MS),
    "LONGEST_LIKELY_MS": str(LONGEST_LIKELY_MS),
    "NEVER_MS": str(NEVER_MS),
    "RETENTION_MS": str(DEFAULT_MS),
    "WRONG_UNITS": ", ".join(f"({text(unit)}, {lowest}, {highest})" for unit, lowest, highest in WRONG_UNITS),
    "COMPACTED_TOPICS": _texts(COMPACTED_TOPICS),
    "KEEPING_TOPICS": _texts(KEEPING_TOPICS),
    "INTERNAL_TOPICS": _texts((*COMPACTED_TOPICS, *KEEPING_TOPICS)),
    "PREPARE": _texts(PREPARE),
    "IS_OF_FLINK": " OR ".join(
        f"regexp_replace(transactional_id, '^{pattern}$', '') = ''" for pattern in FLINK_IDS
    ),
    "SAMPLED": str(sampling.SAMPLED),
    "HEAD_BYTES": str(sampling.HEAD_BYTES),
    "MOST_BYTES": str(sampling.MOST_BYTES),
    "WITNESS": as_sql(WITNESSES),
    "CLOCK_CERTAINTY": as_sql(CERTAINTIES),
    "STATE": as_sql(STATES),
    "CERTAINTY": as_sql(REASONS, 0),
    "WHY": as_sql(REASONS, 1),
    "REMEDY": as_sql(REMEDIES),
}


def with_constants(sql: str) -> str:
    """Replaces each ``$NAME`` in SQL. Raises a KeyError for an unknown one."""
    return _NAME.sub(lambda match: CONSTANTS[match[1]], sql)

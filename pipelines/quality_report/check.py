"""Declares the checks of data quality; the first line of each file in ``checks/`` describes its check.

A check measures one value for every partition, or for every topic, and passes where it is not above the
threshold. The SQL of a check over partitions gives what it found: columns file (a number of ``logs.sql``),
amount, detail, and whole for a share. The SQL of a check over topics gives the values: topic, amount, detail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib import resources

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.options import read_yaml
from kafka_log_lake.pipelines.cli.values import nearest

ERROR, WARNING, NONE = "error", "warning", "none"
SEVERITIES = (ERROR, WARNING, NONE)
TOPIC = "topic"
# How the amounts that a check found become the value of a partition
AGGREGATES = {
    "sum": "sum(f.amount)",
    "max": "max(f.amount)",
    "share": "CAST(sum(f.amount) AS DOUBLE) / sum(f.whole)",
}


@dataclass(frozen=True)
class Check:
    """A check of data quality, and the threshold up to which it passes.

    aggregate: sum, max, share (sum of amount / sum of whole) or topic (one value for each
    topic). unit: of value and threshold: bytes, ms, share, times, or what is counted, in the singular.
    severity: with none the check does not run.
    """

    name: str
    severity: str
    threshold: float
    aggregate: str
    unit: str
    measures: str

    @property
    def sql(self) -> str:
        return _sql(self.name)


def _sql(name: str) -> str:
    return (
        resources.files("kafka_log_lake.pipelines.quality_report")
        .joinpath("checks", f"{name}.sql")
        .read_text()
    )


_HEAD = re.compile(r"-- (\w+), (\w+), (\S+) (\w+): (.+)")
_NAMES = """
crc_failure_rate damaged_bytes invalid_batches offset_order metadata_contradictions hanging_transactions
suspect_batches value_errors torn_tails offset_gaps sequence_gaps timestamp_units timestamp_future
timestamp_order mixed_codecs old_formats header_size tiny_batches partition_skew
"""


def _read(name: str) -> Check:
    """Reads a check from the first line of its SQL, which names all its fields but the name."""
    head = _HEAD.match(_sql(name))
    if head is None:
        raise ValueError(f"{name}.sql does not begin with what the check is")
    severity, aggregate, threshold, unit, measures = head.groups()
    return Check(name, severity, float(threshold), aggregate, unit, measures)


CHECKS = tuple(map(_read, _NAMES.split()))


def with_thresholds(path: str | None) -> tuple[Check, ...]:
    """Returns the checks with the thresholds and severities of a YAML file, without those of severity none.

    path: None for the declared thresholds. Raises a UserError for an unknown check or a wrong value.
    """
    option = "--thresholds"
    configured = {check.name: check for check in CHECKS}
    for name, values in (read_yaml(path, option) if path else {}).items():
        if name not in configured:
            hint = nearest(str(name), configured) or f"; known checks: {', '.join(configured)}"
            raise UserError(f"{option}: unknown check {str(name)!r}{hint}")
        if not isinstance(values, dict) or not values or not set(values) <= {"threshold", "severity"}:
            raise UserError(f"{option}: {name} must have a threshold, a severity or both, and nothing else")
        threshold = values.get("threshold", configured[name].threshold)
        severity = values.get("severity", configured[name].severity)
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not threshold >= 0:
            raise UserError(
                f"{option}: the threshold of {name} must be a number from 0 up, not {threshold!r}"
            )
        if severity not in SEVERITIES:
            raise UserError(
                f"{option}: the severity of {name} must be one of {', '.join(SEVERITIES)}, not {severity!r}"
            )
        configured[name] = replace(configured[name], threshold=float(threshold), severity=severity)
    return tuple(check for check in configured.values() if check.severity != NONE)

"""The checks of data quality: name, severity, threshold and meaning; the SQL of each lies in ``checks/``.

A check measures one value for every partition, or for every topic, and passes where it is not above the
threshold. The SQL of a check over partitions gives what it found: columns file (a number of ``logs.sql``),
amount, detail, and whole for a share. The SQL of a check over topics gives the values: topic, amount, detail.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources

from pipelines.command.errors import UserError
from pipelines.command.settings import nearest
from pipelines.command.settings_file import read_yaml

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
    """A check. aggregate: sum, max, share (sum of amount / sum of whole) or topic (a value a topic).

    unit: of value and threshold: bytes, ms, share, times, or what is counted, in the singular. severity none:
    the check does not run.
    """

    name: str
    severity: str
    threshold: float
    aggregate: str
    unit: str
    measures: str

    @property
    def sql(self) -> str:
        return resources.files("pipelines.report.quality").joinpath("checks", f"{self.name}.sql").read_text()


_HOUR = 3_600_000

CHECKS = (
    Check("crc_failure_rate", ERROR, 0, "share", "share", "Batches whose checksum is wrong, of all batches"),
    Check("damaged_bytes", ERROR, 0, "sum", "bytes", "Bytes in quarantine"),
    Check("invalid_batches", ERROR, 0, "sum", "batch", "Batches with a right checksum that can't be decoded"),
    Check("offset_order", ERROR, 0, "sum", "batch", "Batches that begin at or before the last offset"),
    Check(
        "metadata_contradictions",
        ERROR,
        0,
        "sum",
        "batch",
        "Batches whose offsets, leader epoch or magic contradict their neighbours: no checksum covers them",
    ),
    Check(
        "hanging_transactions",
        ERROR,
        _HOUR / 4,  # transaction.max.timeout.ms of Kafka
        "max",
        "ms",
        "How far the log has moved on since a transaction began that holds back the last stable offset",
    ),
    Check("suspect_batches", WARNING, 0, "sum", "batch", "Batches whose header contradicts their content"),
    Check(
        "value_errors",
        WARNING,
        0,
        "sum",
        "payload",
        "Keys and values that their schemas do not decode, as far as decode-values has run",
    ),
    Check(
        "torn_tails",
        WARNING,
        0,
        "sum",
        "bytes",
        "Bytes of incomplete last batches, and of logs of zeros alone",
    ),
    Check(
        "offset_gaps",
        ERROR,
        0,
        "sum",
        "offset",
        "Offsets missing between batches, neither damaged nor removed by compaction or retention",
    ),
    Check(
        "sequence_gaps",
        WARNING,
        0,
        "sum",
        "batch",
        "Batches that do not go on where their producer's last batch ended",
    ),
    Check("timestamp_units", WARNING, 0, "sum", "batch", "Batches with timestamps not in milliseconds"),
    Check(
        "timestamp_future",
        WARNING,
        _HOUR,  # message.timestamp.after.max.ms of Kafka
        "max",
        "ms",
        "How far a timestamp lies after the file's modification",
    ),
    Check(
        "timestamp_order",
        WARNING,
        24 * _HOUR,
        "max",
        "ms",
        "How far a batch's timestamp lies before that of an earlier batch",
    ),
    Check(
        "mixed_codecs",
        WARNING,
        1,
        TOPIC,
        "codec",
        "Different codecs in one topic; no compression counts as one",
    ),
    Check("old_formats", WARNING, 0, "sum", "bytes", "Bytes of message formats 0 and 1"),
    Check("header_size", WARNING, 8192, "max", "bytes", "Bytes of headers a record, on average of a batch"),
    Check("tiny_batches", WARNING, 0.2, "share", "share", "Batch headers' part of the bytes on disk"),
    Check("partition_skew", WARNING, 3, TOPIC, "times", "Largest partition against the topic's average"),
)


def with_thresholds(path: str | None) -> tuple[Check, ...]:
    """The checks with thresholds and severities of a YAML file, without those of severity none.

    Raises a UserError for an unknown check, and for a value that is none.
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

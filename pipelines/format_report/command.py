"""``python -m pipelines.format_report --lake L``: what records take in each format and codec, and its cost.

Fills the table ``format_savings`` (``pipelines.format_report.format_savings``) and prints it by topic.
Changes no other table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.commands.format_report import FORMAT_REPORT
from kafka_log_lake.pipelines.cli.settings import CostSettings
from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable, shortened_to
from kafka_log_lake.pipelines.cli.text_tables import Section, text_lines
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.format_report import format_savings
from kafka_log_lake.pipelines.format_report.format_savings import SavingsReport
from kafka_log_lake.udfs.format.levels import CodecLevel

_SHOWN = 30
_WIDEST = 40

# Of each topic, with the batches on disk, and with the codec that makes the least of them as V2; keep: none
# makes less than what is stored. What no codec was tried on, as it is in no sample, stays as it is stored
_BY_TOPIC = """
WITH sums AS (
  SELECT topic, layout, codec, level, CAST(sum(records) AS BIGINT) AS records,
    CAST(sum(bytes) AS BIGINT) AS bytes, sum(monthly_cost) AS monthly_cost
  FROM report WHERE batch_records IS NULL GROUP BY ALL
), untried AS (
  SELECT topic, CAST(sum(bytes) AS BIGINT) AS bytes, sum(monthly_cost) AS monthly_cost FROM report r
  WHERE layout = 'stored' AND NOT EXISTS (FROM report e WHERE e.basis = 'estimated'
    AND e.topic = r.topic AND e.partition = r.partition AND e.magic = r.magic)
  GROUP BY topic
), best AS (
  SELECT sums.topic, codec, level, sums.bytes + coalesce(untried.bytes, 0) AS bytes,
    sums.monthly_cost + coalesce(untried.monthly_cost, 0) AS monthly_cost
  FROM sums LEFT JOIN untried USING (topic) WHERE layout = 'v2' AND codec <> 'none'
  QUALIFY row_number() OVER (PARTITION BY topic ORDER BY sums.bytes, codec, level) = 1
), plain AS (
  SELECT topic, any_value(records) FILTER (layout = 'stored') AS records,
    any_value(bytes) FILTER (layout = 'stored') AS stored,
    any_value(bytes) FILTER (layout = 'v0') AS v0, any_value(bytes) FILTER (layout = 'v1') AS v1,
    any_value(bytes) FILTER (layout = 'v2') AS v2, any_value(bytes) FILTER (layout = 'v3_proposal') AS v3,
    any_value(monthly_cost) FILTER (layout = 'stored') AS monthly_cost
  FROM sums WHERE codec IS NULL OR codec = 'none' GROUP BY topic
)
SELECT plain.topic, plain.records, stored, v0, v1, v2, v3,
  CASE WHEN best.bytes >= stored THEN 'keep' ELSE best.codec END AS codec,
  CASE WHEN best.bytes < stored THEN best.level END AS level,
  CASE WHEN best.bytes >= stored THEN stored ELSE best.bytes END AS best, plain.monthly_cost,
  CASE WHEN best.bytes >= stored THEN plain.monthly_cost ELSE best.monthly_cost END AS best_monthly_cost
FROM (FROM plain WHERE stored IS NOT NULL) plain LEFT JOIN best USING (topic) ORDER BY stored DESC, topic
"""
_HEAD = (
    *("topic", "records", "stored", "v0", "v1", "v2", "v3", "v2 vs v1", "best codec", "its bytes"),
    *("{} a month", "with it"),
)


def by_topic(report: SavingsReport) -> list[dict[str, object]]:
    """Returns the sums of each topic, the largest topic first."""
    with duckdb.connect(config={"threads": "2"}) as database:
        database.register("report", report.rows)
        rows: list[dict[str, Any]] = database.sql(_BY_TOPIC).to_arrow_table().to_pylist()
        return rows


def to_json(report: SavingsReport, seconds: float, currency: str) -> str:
    """Returns what ``--json`` prints: one object on one line."""
    object_ = {
        "run_id": report.run_id,
        "lake": report.lake,
        "written": report.is_new,
        "rows": report.rows.num_rows,
        "seconds": round(seconds, 3),
        "currency": currency,
        "topics": by_topic(report),
    }
    return json.dumps(object_)


def to_text(report: SavingsReport, seconds: float, currency: str) -> str:
    """Returns the printed text: one line for each of the largest topics, and where the other rows are."""
    topics = by_topic(report)
    head = tuple(name.format(currency) for name in _HEAD)
    table = Section("", head, [_cells(topic) for topic in topics[:_SHOWN]], tuple(range(1, len(head))))
    lines = [line.removeprefix("  ") for line in text_lines(table)]
    if len(topics) > _SHOWN:
        lines.append(f"and {counted_noun(len(topics) - _SHOWN, 'topic')} more")
    lines.append(
        "stored to v3 are bytes; v0 to v3: before compression, in the batches on disk; its bytes, with it: "
        "v2 with the best codec. v3 is an estimate: that proposal never became a format of Kafka"
    )
    rows = counted_noun(report.rows.num_rows, "row")
    done = f"{rows} in {seconds:.1f} s" if report.is_new else f"nothing changed since: {rows}"
    lines.append(f"run {report.run_id}, {done}: table format_savings in {printable(report.lake)}")
    lines.append(f"verdict: {counted_noun(len(topics), 'topic')} measured{_saving(topics, currency)}")
    return "\n".join(lines)


def _saving(topics: Sequence[dict[str, Any]], currency: str) -> str:
    """Returns what the best codec of each topic would save, as the end of a sentence."""
    known = [topic for topic in topics if topic["best_monthly_cost"] is not None]
    now, then = (sum(topic[name] for topic in known) for name in ("monthly_cost", "best_monthly_cost"))
    if not known or then >= now:
        return "; no codec that was tried makes them smaller"
    return f"; with the best codec of each {_money(then)} {currency} a month instead of {_money(now)}"


def _cells(topic: dict[str, Any]) -> tuple[str, ...]:
    sizes = [f"{topic[name]:,}" for name in ("records", "stored", "v0", "v1", "v2", "v3")]
    best = ["-", "-"] if topic["codec"] is None else [str(CodecLevel(topic["codec"], topic["level"]))]
    best += [] if topic["codec"] is None else [f"{topic['best']:,}"]
    then = topic["best_monthly_cost"]
    return (
        shortened_to(printable(topic["topic"]), _WIDEST),
        *sizes,
        f"{topic['v2'] / topic['v1'] - 1:+.1%}" if topic["v1"] else "-",
        *best,
        _money(topic["monthly_cost"]),
        "-" if then is None else _money(then),
    )


def _money(cost: float) -> str:
    return "<0.01" if 0 < cost < 0.005 else f"{cost:,.2f}"


def run(spark: SparkSession, settings: CostSettings) -> SavingsReport:
    """Computes the report and commits it, if the lake or the settings changed since the latest run."""
    return format_savings.run(SparkOnDemand(settings, given=spark), settings)


def _job(on_demand: SparkOnDemand, settings: CostSettings) -> None:
    began = time.monotonic()
    report = format_savings.run(on_demand, settings)
    seconds = time.monotonic() - began
    print((to_json if settings.json else to_text)(report, seconds, settings.currency))


main = partial(run_command, FORMAT_REPORT, _job)

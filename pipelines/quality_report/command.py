"""``python -m pipelines.quality_report --lake L``: checks the data quality of a lake.

Adds a run to the table ``quality_metrics`` and writes one HTML page, with Markdown and JSON next to it. Works
on the tables of a lake with deltalake and DuckDB in this process: no Spark, no Java, seconds.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from kafka_log_lake.pipelines.cli.commands.quality_report import QUALITY_REPORT
from kafka_log_lake.pipelines.cli.errors import ChecksFailed, UserError, writing
from kafka_log_lake.pipelines.cli.settings import LakeSettings
from kafka_log_lake.pipelines.cli.streams import replaced_file
from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.lake.address import open_lake
from kafka_log_lake.pipelines.lake.create import add_rows
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.quality_report import facts, metrics, render, words
from kafka_log_lake.pipelines.quality_report.check import ERROR, NONE, WARNING, with_thresholds
from kafka_log_lake.pipelines.quality_report.facts import QualityReport
from kafka_log_lake.pipelines.quality_report.render import with_batch_pages
from kafka_log_lake.udfs.format.report_tables import QUALITY_METRICS

_FOLDER = "quality-report"


@dataclass(frozen=True)
class ReportRun:
    """What one run did. page: path of the HTML page. rows: number of rows added to ``quality_metrics``."""

    report: QualityReport
    page: Path
    rows: int
    seconds: float


def run(
    settings: LakeSettings,
    output: str = _FOLDER,
    thresholds: str | None = None,
    fail_on: str = NONE,
    at: str | None = None,
) -> ReportRun:
    """Checks ``settings.lake``, and writes the metrics and the pages.

    output: folder of the pages. thresholds: a YAML file as ``conf/quality.yml``. at: the id of a run, or a
    time, for the state of the lake then; its metrics are not added to those of now. fail_on: error,
    warning, or none (never). Raises ChecksFailed if the verdict is "Not sound", or with warning if any check
    fails; all is written before.
    """
    began, created_at = time.monotonic(), datetime.now(UTC)
    address = open_lake(settings.require_lake())
    checks = with_thresholds(thresholds)
    folder = Path(output)
    with writing(f"--output {output}"):
        folder.mkdir(parents=True, exist_ok=True)
    run_id = uuid.uuid4().hex
    tables = published_tables(address, at)
    with metrics.opened(tables, settings.cores) as database:
        measured = metrics.measure(database, checks, run_id, created_at)
        if at is None:
            try:
                add_rows(address, QUALITY_METRICS, measured)
            except UserError as error:
                raise UserError(f"{error}; --at RUN reports on a lake without writing to it") from None
        report = facts.gather(database, address, tables, run_id, created_at, checks, measured, at)
    forms = {"html": render.html, "md": render.markdown, "json": render.to_json}
    with writing(f"--output {output}"):
        report = with_batch_pages(report, folder)
        for suffix, form in forms.items():
            with replaced_file(str(folder / f"quality.{suffix}"), "--output") as made:
                made.write(form(report).encode("utf-8", "backslashreplace"))
    rows = measured.num_rows if at is None else 0
    summary = ReportRun(report, folder / "quality.html", rows, time.monotonic() - began)
    _print(summary, settings.json)
    _judge(report, fail_on)
    return summary


def _print(summary: ReportRun, as_json: bool) -> None:
    report = summary.report
    kind, sentence = words.verdict(report)
    if as_json:
        said = {
            "run_id": report.run_id,
            "lake": report.lake,
            "verdict": kind,
            "sentence": sentence,
            "errors": [result.check.name for result in report.failed(ERROR)],
            "warnings": [result.check.name for result in report.failed(WARNING)],
            "page": str(summary.page),
            "rows": summary.rows,
            "seconds": round(summary.seconds, 3),
        }
        print(json.dumps(said))
        return
    width = max((len(result.check.name) for result in report.results), default=0)
    for result in report.results:
        if result.failed:
            where = words.place(result.worst_topic, result.worst_partition)
            print(
                f"  {result.check.severity:7}  {result.check.name:{width}}  {words.outcome(result)}; "
                f"most in {printable(where)}: {words.quantity(result.worst_value, result.check.unit)}"
            )
    print(
        f"{counted_noun(summary.rows, 'row')} in quality_metrics, the page is {printable(str(summary.page))}"
    )
    print(f"verdict: {sentence}")


def _judge(report: QualityReport, fail_on: str) -> None:
    """Raises ChecksFailed if the verdict is "Not sound", or if a check failed whose severity is fail_on."""
    if fail_on in (NONE, "never"):
        return
    severities = (ERROR, WARNING) if fail_on == WARNING else (ERROR,)
    failed = [result.check.name for severity in severities for result in report.failed(severity)]
    if failed:
        raise ChecksFailed(f"{counted_noun(len(failed), 'check')} failed: {', '.join(failed)}")
    if words.verdict(report)[0] == ERROR:
        raise ChecksFailed("not sound: offsets are lost")


main = partial(run_command, QUALITY_REPORT, run, with_spark=False)

"""Renders the report as one HTML page, as Markdown and as JSON, with the pages of ``inspect`` next to it.

All text from segments (topics, paths, details) is hostile: its unprintable characters are escaped first, then
the template engine escapes markup. The page holds no script and loads nothing; its policy forbids both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable, time_text
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.pipelines.quality_report import charts, words
from kafka_log_lake.pipelines.quality_report.charts import SHOWN
from kafka_log_lake.pipelines.quality_report.facts import PartitionCounts, QualityReport, Worst
from kafka_log_lake.pipelines.quality_report.words import size
from kafka_log_lake.udfs.values.schemas.profile import PayloadFormat

_CHARTS: tuple[Callable[[QualityReport], charts.Chart | None], ...] = (
    *(charts.topics, charts.growth, charts.failures, charts.formats, charts.compression, charts.trend),
)
_MARKDOWN = str.maketrans({**{c: f"\\{c}" for c in "\\`*_[]|~"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"})


def _shown(value: object) -> object:
    """Returns what a template prints for a value: text without control characters, "" for None."""
    if value is None:
        return ""
    return value if isinstance(value, Markup) or not isinstance(value, str) else printable(value)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kafka_log_lake.pipelines.quality_report"),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"size": size, "share": words.share, "number": words.number, "time": time_text}
    environment.globals |= {"quantity": words.quantity, "place": words.place, "extent": words.extent}
    return environment


def html(report: QualityReport) -> str:
    """Returns the whole HTML page."""
    kind, sentence = words.verdict(report)
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            kind=kind,
            verdict=sentence,
            charts={draw.__name__: draw(report) for draw in _CHARTS},
            shown=SHOWN,
        )
    )


def markdown(report: QualityReport) -> str:
    """Returns the verdict, checks, damage and last runs as Markdown, for a wiki or a chat."""
    lines = [
        f"# Data quality of {_escaped(report.lake)}",
        "",
        f"**{_escaped(words.verdict(report)[1])}**",
        "",
        f"Run {report.run_id}, {report.created_at:%Y-%m-%d %H:%M:%S} UTC"
        f"{f', of the state of the lake at {_escaped(report.at)}' if report.at else ''}.",
        *("", "## Checks", ""),
        *_check_lines(report),
    ]
    if report.unreadable:
        lines += ["", "## Not read", "", *(f"- {_escaped(name)}" for name in report.unreadable)]
    damaged = [partition for partition in report.partitions if partition.damaged or partition.tail]
    if damaged:
        lines += ["", "## Damage", "", *_damage_lines(damaged)]
    if report.payloads:
        lines += ["", "## Keys and values", "", *_payload_lines(report.payloads)]
    if report.unread:
        rows = ((unread.what, unread.reason, f"{unread.count:,}") for unread in report.unread)
        lines += ["", "## What could not be read", "", *_table(("what", "reason", "count"), rows)]
    if len(report.runs) > 1:
        lines += ["", "## Runs", "", *_run_lines(report)]
    return "\n".join(lines) + "\n"


def _check_lines(report: QualityReport) -> Iterator[str]:
    head = ("check", "severity", "result", "highest value", "threshold", "where", "detail")
    rows = (
        (
            *(r.check.name, r.check.severity, words.outcome(r)),
            words.quantity(r.worst_value, r.check.unit),
            words.quantity(r.check.threshold, r.check.unit),
            words.place(r.worst_topic, r.worst_partition) if r.failed else "",
            r.detail or "",
        )
        for r in report.results
    )
    return _table(head, rows)


def _damage_lines(damaged: Sequence[PartitionCounts]) -> Iterator[str]:
    head = ("partition", "bytes", "damaged", "ranges", "tail")
    rows = (
        (words.place(p.topic, p.partition), size(p.bytes), size(p.damaged), str(p.ranges), size(p.tail))
        for p in damaged[:SHOWN]
    )
    yield from _table(head, rows)
    if len(damaged) > SHOWN:
        yield from ("", f"And {counted_noun(len(damaged) - SHOWN, 'more partition')}.")


def _payload_lines(payloads: Sequence[PayloadFormat]) -> Iterator[str]:
    rows = ((kind.topic, kind.side, kind.words, f"{kind.payloads:,}") for kind in payloads[:SHOWN])
    yield from _table(("topic", "side", "format", "looked at"), rows)
    if len(payloads) > SHOWN:
        yield from ("", f"And {counted_noun(len(payloads) - SHOWN, 'more format')}.")


def _run_lines(report: QualityReport) -> Iterator[str]:
    rows = (
        (f"{run.created_at:%Y-%m-%d %H:%M:%S}", str(run.errors), str(run.warnings), size(run.damaged or 0))
        for run in report.runs
    )
    return _table(("run", "errors", "warnings", "damaged"), rows)


def _escaped(text: str) -> str:
    return printable(text).translate(_MARKDOWN)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(map(_escaped, row)) + " |"


def to_json(report: QualityReport) -> str:
    """Returns the whole report as one JSON object; times in ISO 8601, UTC. Text is as it was found."""
    kind, sentence = words.verdict(report)
    head = {"verdict": kind, "sentence": sentence}

    def plain(value: datetime) -> str:
        return value.isoformat().replace("+00:00", "Z")

    return json.dumps({**head, **asdict(report)}, default=plain, indent=1) + "\n"


_RECORDS = 20
_EXPANDED = 256 << 20  # bytes that a batch may expand to


def with_batch_pages(report: QualityReport, folder: Path) -> QualityReport:
    """Writes a page of ``inspect`` for each worst segment. Returns the report with the names of these pages.

    A segment gets no page if this machine has it no more, or if another batch is at the position now.
    """
    return replace(
        report,
        worst=[_with_page(batch, folder / f"batch-{i}.html") for i, batch in enumerate(report.worst, 1)],
    )


def _with_page(worst: Worst, page: Path) -> Worst:
    path = local_path(worst.segment)
    if path is None or not os.path.isfile(path):
        return worst
    from kafka_log_lake.pipelines.inspect_batch import (
        page as inspected,  # the decoder: a lake without damage needs none
    )
    from kafka_log_lake.pipelines.inspect_batch.batch import inspect
    from kafka_log_lake.pipelines.inspect_batch.locate import Locator
    from kafka_log_lake.udfs.storage.byte_source import SourceError

    try:
        locator = Locator(path)
        try:
            place = locator.at_position(worst.position)
            inspection = inspect(
                locator.source, locator.length, place, lambda number, _: number < _RECORDS, _EXPANDED
            )
        finally:
            locator.close()
    except (OSError, SourceError, UserError):
        return worst
    page.write_text(inspected.page(path, inspection), encoding="utf-8", errors="backslashreplace")
    return replace(worst, page=page.name)

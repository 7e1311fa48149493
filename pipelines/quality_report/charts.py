"""Draws the charts of the page: Vega-Lite specifications that vl-convert turns into SVG in this process.

The SVG is static: no script, no network, no fonts. Colours are variables of the page's style sheet, so that
one drawing serves light, dark and print. Every chart has a table of its numbers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import vl_convert
from markupsafe import Markup, escape

from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable
from kafka_log_lake.pipelines.quality_report.facts import QualityReport

SHOWN = 15  # bars of a chart, rows of its table
_POINTS = 500
_SERIES = 6  # topics of the chart of growth that have a colour
_MS = {
    unit: 3_600_000 * hours
    for unit, hours in (("hour", 1), ("day", 24), ("week", 168), ("month", 672), ("year", 8760))
}
_WIDTH = 700
_LINEAR = 50  # compression ratios from here on have a logarithmic axis
_VERSION = "6.4"  # of Vega-Lite: vl-convert holds several
_INK = "currentColor"
_CONFIG: dict[str, object] = {
    "background": None,
    "padding": {"left": 56, "top": 4, "right": 24, "bottom": 4},  # browsers have wider fonts than vl-convert
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _INK,
        "titleColor": _INK,
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "gridColor": "var(--grid)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 200,
        "titlePadding": 8,
    },
    "legend": {
        "labelColor": _INK,
        "titleColor": _INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "orient": "top",
        "columnPadding": 16,
        "symbolType": "square",
        "titleFontWeight": "normal",
    },
    "bar": {"stroke": "var(--page)", "strokeWidth": 1},
}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_UTC: dict[str, object] = {"scale": {"type": "utc"}, "axis": {"tickCount": 6}}

Row = Mapping[str, str | int | float | None]


@dataclass(frozen=True)
class Chart:
    """A drawing as inline SVG, with a label: one sentence that describes it for screen readers."""

    svg: Markup
    label: str


def _safe(row: Row) -> dict[str, str | int | float | None]:
    """Returns a row with printable texts: at a character that XML forbids vl-convert ends the process."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}


def _draw(label: str, rows: Sequence[Row], spec: dict[str, object]) -> Chart:
    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": [_safe(row) for row in rows]},
        "width": _WIDTH,
        "config": _CONFIG,
        **spec,
    }
    drawn: str = vl_convert.vegalite_to_svg(whole, vl_version=_VERSION, allowed_base_urls=[])
    named = f'<svg role="img" aria-label="{escape(printable(label))}" '
    return Chart(Markup(drawn.replace("<svg ", named, 1)), label)  # vl-convert escapes its text


def _colours(names: Sequence[str]) -> dict[str, object]:
    """Returns the colour encoding: each name has the colour of its style sheet variable, as ``--sound``."""
    scale = {"domain": list(names), "range": [f"var(--{name})" for name in names]}
    return {"field": "kind", "type": "nominal", "title": None, "scale": scale}


def _names(rows: Sequence[Row]) -> dict[str, object]:
    """Returns the encoding of an axis with the places of the rows, in the order of the rows."""
    order = list(dict.fromkeys(printable(str(row["place"])) for row in rows))
    return {"field": "place", "type": "nominal", "title": None, "sort": order}


def _number(title: str, **more: Any) -> dict[str, object]:
    axis = {"format": "~s", "tickCount": 6, **more.pop("axis", {})}
    return {"field": "value", "type": "quantitative", "title": title, "axis": axis, **more}


def _bars(
    label: str, rows: Sequence[Row], value: dict[str, object], kinds: Sequence[str], **more: object
) -> Chart:
    """Draws one bar for each place, stacked of the values of its kinds, in the order that the rows name."""
    encoding = {
        "y": _names(rows),
        "x": value,
        "color": _colours(kinds),
        "order": {"field": "order", "type": "quantitative"},
    }
    return _draw(label, rows, {"mark": "bar", "encoding": encoding, **more})


def topics(report: QualityReport) -> Chart | None:
    """Draws the bytes of the largest topics: sound, damaged, tail; None without any byte."""
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    for partition in report.partitions:
        sizes[partition.topic].update(
            {"sound": partition.sound, "damaged": partition.damaged, "tail": partition.tail}
        )
    largest = sorted(sizes, key=lambda topic: (-sizes[topic].total(), topic))[:SHOWN]
    rows: list[Row] = [
        {"place": topic, "kind": kind, "value": sizes[topic][kind], "order": order}
        for topic in largest
        for order, kind in enumerate(("sound", "damaged", "tail"))
    ]
    if not any(row["value"] for row in rows):
        return None
    shown = f"{counted_noun(len(sizes), 'topic')}" + (f", the {SHOWN} largest" if len(sizes) > SHOWN else "")
    label = f"Bars: bytes on disk of {shown}; sound, damaged and in tails"
    return _bars(label, rows, _number("bytes on disk"), ("sound", "damaged", "tail"))


def growth(report: QualityReport) -> Chart | None:
    """Draws what was written over time, by topic: those with most bytes, and the others as one.

    None without a batch of a credible time.
    """
    if not report.growth:
        return None
    sizes: Counter[str] = Counter()
    for part in report.growth:
        sizes[part.topic] += part.bytes
    largest = [topic for topic, _ in sizes.most_common(_SERIES)]
    names = [*largest, *(["other topics"] if len(sizes) > len(largest) else [])]
    written: Counter[tuple[int, str]] = Counter()
    for part in report.growth:
        written[part.begin_ms, part.topic if part.topic in largest else names[-1]] += part.bytes
    unit = report.growth[0].unit
    rows: list[Row] = []
    tops: Counter[int] = Counter()
    for (at, name), size in sorted(written.items(), key=lambda item: names.index(item[0][1])):
        below, tops[at] = tops[at], tops[at] + size
        rows.append({"at": at, "to": at + _MS[unit], "kind": name, "below": below, "value": tops[at]})
    colours = [f"var(--series-{at})" for at in range(1, len(largest) + 1)] + ["var(--none)"]
    scale = {"domain": [printable(name) for name in names], "range": colours[: len(names)]}
    encoding = {
        "x": {"field": "at", "type": "temporal", "title": f"{unit} (UTC)", **_UTC},
        "x2": {"field": "to"},
        "y": _number("bytes written"),
        "y2": {"field": "below"},
        "color": {"field": "kind", "type": "nominal", "title": None, "scale": scale},
    }
    label = f"Bars: bytes written by {unit}, of {counted_noun(len(sizes), 'topic')}"
    return _draw(label, rows, {"mark": "bar", "encoding": encoding, "height": 220})


def failures(report: QualityReport) -> Chart | None:
    """Draws a point for each batch with a wrong checksum: its position against its time; None without any."""
    timed = [failure for failure in report.failures if failure.at_ms is not None][:_POINTS]
    if not timed:
        return None
    rows: list[Row] = [
        {"at": failure.at_ms, "value": failure.position, "place": f"{failure.topic}-{failure.partition}"}
        for failure in timed
    ]
    at = {"field": "at", "type": "temporal", "title": "time of the batch before (UTC)", **_UTC}
    mark = {"type": "point", "filled": True, "size": 70, "opacity": 0.7, "color": "var(--damaged)"}
    encoding = {"x": at, "y": _number("position in the segment, bytes")}
    what = f"{counted_noun(len(timed), 'batch')} with a wrong checksum"
    label = f"Points: {what}, by time and by position in the segment"
    return _draw(label, rows, {"mark": mark, "encoding": encoding, "height": 220})


def formats(report: QualityReport) -> Chart | None:
    """Draws the bytes of each message format, by codec; None without batches."""
    rows: list[Row] = [
        {
            "place": f"magic {format_count.magic}",
            "kind": format_count.codec,
            "value": format_count.bytes,
            "order": _CODECS.index(format_count.codec),
        }
        for format_count in report.formats
        if format_count.codec in _CODECS
    ]
    if not rows:
        return None
    label = "Bars: bytes of each message format, by codec"
    return _bars(label, rows, _number("bytes on disk"), _CODECS, height={"step": 34})


def compression(report: QualityReport) -> Chart | None:
    """Draws the compression ratios of the topics with most bytes; None where nothing is compressed."""
    packed = [codec for codec in report.compression if codec.codec != "none" and codec.ratio is not None]
    rows: list[Row] = [
        {"place": f"{codec.topic} ({codec.codec})", "kind": codec.codec, "value": codec.ratio}
        for codec in packed[:SHOWN]
    ]
    if not rows:
        return None
    title = "expanded bytes for one stored"
    encoding = {"y": _names(rows), "color": _colours(_CODECS[1:])}
    mark: dict[str, Any] = {"type": "bar"}
    if max(float(row["value"] or 0) for row in rows) < _LINEAR:
        encoding["x"] = _number(title)
    else:  # one file of zeros would hide all others; bars need a zero, which a logarithm has not
        axis = {"values": [10**power for power in range(8)]}
        encoding["x"] = _number(f"{title}, logarithmic", scale={"type": "log"}, axis=axis)
        mark = {"type": "point", "filled": True, "size": 90}
    label = (
        f"Compression ratio of {counted_noun(len(rows), 'pair')} of topic and codec, those with most bytes"
    )
    return _draw(label, rows, {"mark": mark, "encoding": encoding})


def trend(report: QualityReport) -> Chart | None:
    """Draws the number of failed checks by run; None where there is only one run."""
    if len(report.runs) < 2:
        return None
    rows: list[Row] = [
        {"at": int(run.created_at.timestamp() * 1000), "kind": kind, "value": value}
        for run in report.runs
        for kind, value in (("errors", run.errors), ("warnings", run.warnings))
    ]
    at = {"field": "at", "type": "temporal", "title": "run (UTC)", **_UTC}
    shape = {"field": "kind", "type": "nominal", "title": None}
    encoding = {
        "x": at,
        "y": _number("failed", scale={"zero": True}),
        "color": _colours(("errors", "warnings")),
        "shape": {**shape, "scale": {"domain": ["errors", "warnings"], "range": ["circle", "triangle-up"]}},
    }
    mark = {"type": "line", "point": {"size": 60, "filled": True}}
    label = f"Lines: failed errors and warnings of the last {counted_noun(len(report.runs), 'run')}"
    return _draw(label, rows, {"mark": mark, "encoding": encoding, "height": 180})

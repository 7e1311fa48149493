"""Puts numbers and the verdict into words, for every form of the report."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names
from kafka_log_lake.pipelines.quality_report.check import ERROR, TOPIC, WARNING
from kafka_log_lake.pipelines.quality_report.facts import LossCounts, QualityReport, Result
from kafka_log_lake.udfs.words import plural

_NAMED = 3  # checks that the verdict names
_DAY = 86_400_000
_TIMES = ((365 * _DAY, "years"), (_DAY, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))
_SIZES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def size(count: float) -> str:
    """Returns a number of bytes as text: ``4,000 B`` below 10 kB, else as ``4.2 MB``."""
    for unit, name in _SIZES:
        if abs(count) >= (10 * unit if unit == 1000 else unit):
            return f"{count / unit:,.1f} {name}"
    return f"{count:,.0f} B"


def duration(ms: float) -> str:
    """Returns milliseconds as text in the largest unit that they fill: ``15 min``, ``2.5 h``."""
    unit, name = next((u for u in _TIMES if abs(ms) >= u[0]), _TIMES[-1])
    return f"{number(round(ms / unit, 1))} {name}"


def number(value: float) -> str:
    """Returns a number as text with thousands separators; a fraction has at most four digits below 1000."""
    return (
        f"{value:,.0f}" if value == int(value) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"
    )


def share(part: float) -> str:
    """Returns a part (0 to 1) as text: ``16.7%``; only 0 itself is shown as ``0%``."""
    return "0%" if not part else "under 0.01%" if 0 < part < 0.0001 else f"{100 * part:.3g}%"


def quantity(value: float | None, unit: str) -> str:
    """Returns the value of a check as text with its unit."""
    if value is None:
        return "nothing to measure"
    match unit:
        case "bytes":
            return size(value)
        case "ms":
            return duration(value)
        case "share":
            return share(value)
    return f"{number(value)} {unit if value == 1 or unit == 'times' else plural(unit)}"


def place(topic: str | None, partition: int | None) -> str:
    """Returns ``topic-0``; the topic alone without a partition, "" without a topic."""
    return "" if topic is None else topic if partition is None else f"{topic}-{partition}"


def extent(result: Result) -> str:
    """Returns where a check failed, or else where it passed, as text: ``in 3 of 20 partitions``."""
    if not result.places:
        return "nothing to measure"
    places = counted_noun(result.places, "topic" if result.check.aggregate == TOPIC else "partition")
    return f"in {result.failed:,} of {places}" if result.failed else f"in {places}"


def outcome(result: Result) -> str:
    """Returns how a check ended, as text: ``failed in 3 of 20 partitions``."""
    ended = "failed " if result.failed else "passed " if result.places else ""
    return ended + extent(result)


def verdict(report: QualityReport) -> tuple[str, str]:
    """Returns (sound, warning, error or empty; the sentence on top of the report)."""
    kind, sentence = _verdict(report)
    sentence += _lost(report.lost)
    if report.in_part:
        many = "is" if report.in_part == 1 else "are"
        sentence += f" {counted_noun(report.in_part, 'segment')} {many} not in the lake, or only in part."
    if report.unreadable:
        sentence += f" Not checked, as the last job could not read them: {first_names(report.unreadable, 3)}."
        kind = "warning" if kind == "sound" else kind
    return kind, sentence


def _verdict(report: QualityReport) -> tuple[str, str]:
    partitions = report.partitions
    if not partitions:
        return "empty", "Nothing to judge: the lake holds no segments."
    total, damaged = sum(p.bytes for p in partitions), sum(p.damaged for p in partitions)
    over = f"{counted_noun(len(partitions), 'partition')} with {size(total)}"
    hit = sum(p.damaged > 0 for p in partitions)
    if not damaged:
        damage = f"no byte of {over} is damaged"
    else:
        part = share(min(1.0, damaged / max(total, 1)))
        where = f"in {hit:,} of {counted_noun(len(partitions), 'partition')}"
        damage = f"{size(damaged)} of {size(total)} ({part}) are damaged, {where}"
    errors, warnings = report.failed(ERROR), report.failed(WARNING)
    if errors:
        also = f" and {counted_noun(len(warnings), 'warning')}" if warnings else ""
        return "error", f"Not sound: {counted_noun(len(errors), 'error')}{also} ({_names(errors)}); {damage}."
    also = f"{counted_noun(len(warnings), 'warning')} ({_names(warnings)})" if warnings else ""
    if report.lost.is_any:
        zeros = f"{counted_noun(report.lost.zeros, 'log')} of nothing but zeros" if report.lost.zeros else ""
        parts = filter(None, (zeros or "offsets are lost", also, damage))
        return "error", f"Not sound: {'; '.join(parts)}."
    if report.lost.torn:
        torn = f"{counted_noun(report.lost.torn, 'log')} with an incomplete last batch"
        return "warning", f"Incomplete: {'; '.join(filter(None, (torn, also, damage)))}."
    if warnings:
        return "warning", f"Sound, with {also}; {damage}."
    return "sound", f"Sound: {counted_noun(len(report.results), 'check')} passed; {damage}."


def _lost(lost: LossCounts) -> str:
    misplaced = f"at most {counted_noun(lost.misplaced, 'offset')} whose records are under wrong offsets"
    parts = [
        f"at most {counted_noun(lost.offsets, 'offset')}" if lost.offsets else "",
        f"the end of {counted_noun(lost.ends, 'log')}, of unknown length" if lost.ends else "",
        misplaced if lost.misplaced else "",
    ]
    text = ", ".join(filter(None, parts))
    tier = (
        f" {lost.at_start:,} of them may be in tiered storage: decode --tier reads it."
        if lost.at_start
        else ""
    )
    return f" Lost: {text} (view lost_offsets).{tier}" if text else ""


def _names(results: list[Result]) -> str:
    return first_names([result.check.name.replace("_", " ") for result in results], _NAMED)

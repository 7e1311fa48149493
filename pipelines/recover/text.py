"""Formats what ``recover`` found as lines and as JSON. The last line says what is lost or not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable
from kafka_log_lake.pipelines.cli.text_tables import size_text
from kafka_log_lake.pipelines.recover.entries import DELETED
from kafka_log_lake.pipelines.recover.history import Certainty
from kafka_log_lake.pipelines.recover.job import Recovered
from kafka_log_lake.pipelines.recover.restore import FATES, by_fate, restore_texts
from kafka_log_lake.udfs.format.recovery_tables import LOST_RANGES, REPLICA_REPORT

_SHOWN = 4  # partitions whose leaders are printed
_BLANK = " " * 13


def to_json(done: Recovered, lake: str | None) -> dict[str, Any]:
    """Returns the results of a run as an object of JSON. lake: the one that is kept; None for none."""
    lost_ranges = done.rows(LOST_RANGES)
    named = done.placements
    return {
        "lake": done.lake if lake else None,
        "cluster_id": done.inventory.cluster_id,
        "copies": len(done.rows(REPLICA_REPORT)),
        "partitions": len(done.logs),
        "certainty": dict(done.certainty),
        "batches": done.total("batches"),
        "bytes": done.total("bytes"),
        "batches_of_other_copies": done.total("from_others"),
        "mended": done.total("mended"),
        "lost_ranges": len(lost_ranges),
        "lost_offsets": sum(row["possible_records"] or 0 for row in lost_ranges),
        "lost_records": done.lost_records,
        "distinct_lost_records": done.losing,
        "acknowledged": _counted(done, "acknowledged"),
        "also_in_truth": sum(loss.also for loss in done.losses),
        "restore": {FATES[fate][0]: count for fate, count in by_fate(done.losses).items()},
        "missing_copies": {str(node): count for node, count in sorted(named.missing.items())},
        "missing_partitions": named.absent,
        "leaders": [row._asdict() for row in named.rows.values()],
        "metadata_unread": dict(+named.state.unread) if named.state is not None else None,
        "passed_over": done.inventory.passed_over,
        "is_whole": not any(not_known(done)),
        "doubts": done.doubts,
        "warnings": done.inventory.warnings,
    }


def _counted(done: Recovered, name: str) -> dict[str, int]:
    """Counts the records of losing histories by a field of ``Loss``."""
    counts: Counter[str] = Counter()
    for loss in done.losses:
        counts[getattr(loss, name)] += loss.records
    return dict(counts)


def lines(done: Recovered, lake: str | None, has_report: bool = False) -> list[str]:
    """Returns what was found, as lines. has_report: whether ``restore.sh`` is written."""
    replicas, lost_ranges, doubts = done.rows(REPLICA_REPORT), done.rows(LOST_RANGES), done.doubts
    damaged = sum(row["damaged_ranges"] for row in replicas)
    certain, possible, unknown = lost_counts(lost_ranges)
    more = f", and more after {counted_noun(unknown, 'log')}" if unknown else ""
    why, answers = (_counts_text(_counted(done, name)) for name in ("why", "acknowledged"))
    also = sum(loss.also for loss in done.losses)
    sure = ", ".join(f"{count:,} {name}" for name, count in sorted(done.certainty.items()))
    missing = done.placements.missing_text
    batches, from_others, mended = (
        counted_noun(done.total(name), "batch") for name in ("batches", "from_others", "mended")
    )
    return [
        f"copies       {_copies_text(done)}",
        *_leader_lines(done),
        f"true log     {batches}, {size_text(done.total('bytes'))}; history: {sure}"
        + (f"; {missing}" if missing else ""),
        f"damage       {counted_noun(damaged, 'range')} in all copies; "
        f"{from_others} taken from another copy than the first one",
        f"corrected    base offset, leader epoch or length of {mended}",
        f"lost         at least {counted_noun(certain, 'record')}, at most {possible:,}{more}, in "
        f"{counted_noun(len(lost_ranges), 'range')} that no copy has (lost_ranges)",
        f"losing side  {counted_noun(done.losing, 'record')} on losing histories alone: "
        f"{why or 'none'} (lost_records)",
        f"{_BLANK}acknowledged: {answers or 'none'}; {also:,} of them are in the true log too, at another "
        "offset",
        *(_restore_lines(done) if has_report else ()),
        f"doubts       {printable(doubts[0]) if doubts else 'none'}"
        + (f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""),
        f"tables       {lake or 'not kept: no --lake'}: healed_records, healed_batches, replica_report, "
        "divergence, lost_ranges, lost_records",
    ]


def lost_counts(lost_ranges: Iterable[dict[str, Any]]) -> tuple[int, int, int]:
    """Counts records that no copy has: those for sure, those at most, and logs that may have lost more."""
    rows = list(lost_ranges)
    return (
        sum(row["certain_records"] for row in rows),
        sum(row["possible_records"] or 0 for row in rows),
        sum(row["possible_records"] is None for row in rows),
    )


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _copies_text(done: Recovered) -> str:
    replicas, cluster = done.rows(REPLICA_REPORT), done.inventory.cluster_id or "(no id)"
    deleted = sum(row["state"] == DELETED for row in replicas)
    text = (
        f"{len(replicas) - deleted:,} of {counted_noun(len(done.partitions), 'partition')}, on "
        f"{counted_noun(len(done.inventory.log_dirs), 'disk')} of cluster {cluster}"
    )
    text += f"; {counted_noun(deleted, '.log.deleted file')}" if deleted else ""
    passed = len(done.inventory.passed_over)
    return text + (
        f"; {counted_noun(passed, '.log.deleted file')} not read (--include-deleted reads them)"
        if passed
        else ""
    )


def _leader_lines(done: Recovered) -> list[str]:
    head, *rest = map(printable, done.placements.lines(_SHOWN))
    return [f"led last     {head}", *(f"{_BLANK}{line}" for line in rest)]


def _restore_lines(done: Recovered) -> list[str]:
    head, *rest = restore_texts(done.losses)
    return [f"restore.sh   {head}", *(f"{_BLANK}{line}" for line in rest)]


def verdict(done: Recovered) -> str:
    """Returns the last line: what is lost, and what these sources can't tell."""
    certain, possible, unknown = lost_counts(done.rows(LOST_RANGES))
    lost = []
    if possible:
        lost.append(
            f"{certain:,} to {counted_noun(possible, 'record')} in no copy"
            if certain != possible
            else f"{counted_noun(possible, 'record')} in no copy"
        )
    if unknown:
        lost.append(f"damaged bytes after {counted_noun(unknown, 'log')} may have been records")
    if done.losing:
        lost.append(f"{counted_noun(done.losing, 'record')} on losing histories alone")
    reasons = [*filter(None, not_known(done))]
    if not lost and not reasons:
        return "nothing is lost: the copies hold the whole true log"
    words = "; ".join(lost) or "no loss was found in what was read"
    return f"{words}; more may be lost: {'; '.join(reasons)}" if reasons else words


def not_known(done: Recovered) -> list[str]:
    """Returns reasons why more may be lost than was found; "" for a reason that does not apply."""
    named, replicas = done.placements, done.rows(REPLICA_REPORT)
    absent = named.absent
    unsure = [sure for sure in (Certainty.UNCERTAIN, Certainty.LIKELY) if done.certainty[sure]]
    histories = ", ".join(f"{sure} in {counted_noun(done.certainty[sure], 'partition')}" for sure in unsure)
    unread = named.state.unread_text if named.state is not None else ""
    hurt = sum(bool(row["damaged_ranges"]) and row["diverged_from"] is not None for row in replicas)
    unreadable = done.total("unreadable")
    passed = len(done.inventory.passed_over)
    return [
        named.missing_text,
        f"no source has a copy of {printable(absent[0])}"
        + (f" and {counted_noun(len(absent) - 1, 'other partition')}" if len(absent) > 1 else "")
        if absent
        else "",
        f"the history is {histories}" if histories else "",
        f"__cluster_metadata has {unread}" if unread else "",
        f"{counted_noun(hurt, 'copy')} with a losing history {'is' if hurt == 1 else 'are'} damaged"
        if hurt
        else "",
        f"{counted_noun(unreadable, 'segment')} can't be read" if unreadable else "",
        f"{counted_noun(passed, '.log.deleted file')} not read (--include-deleted)" if passed else "",
    ]


def sure_lines(done: Recovered) -> list[str]:
    """Returns how certain the history is, and what is missing or was not read."""
    sure = [
        f"the history is {name} in {counted_noun(count, 'partition')}"
        for name, count in done.certainty.items()
    ]
    return [*sure, *(line for line in not_known(done) if line and not line.startswith("the history is"))]

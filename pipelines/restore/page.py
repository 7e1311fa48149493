"""``restore --report``: a page that begins with whether all is there, CSV files, and what is left to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path

from kafka_log_lake.pipelines.cli.generated import comment, html_text
from kafka_log_lake.pipelines.cli.pages import Columns, data_cell, html_list, html_table, page_head
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.recover.report_folder import report_folder
from kafka_log_lake.pipelines.restore.cluster import SecurityDone
from kafka_log_lake.pipelines.restore.groups import SHARE, GroupDone
from kafka_log_lake.pipelines.restore.summary import Summary

PAGE, BY_HAND = "restore.html", "by_hand.sh"
_SHOWN = 500  # rows of a table on the page; the CSV files have all


@dataclasses.dataclass(frozen=True)
class _Held:
    topic: str
    target: str
    reason: str
    records: int


def write_page(folder: str, summary: Summary) -> None:
    """Writes ``restore.html``, a CSV file of each of its tables, and ``by_hand.sh`` into a folder.

    Files of an earlier report are replaced. Raises a UserError for a folder with other files, and where they
    can't be written.
    """
    held = [
        _Held(topic.topic, topic.target, reason, count)
        for topic in summary.topics
        for reason, count in sorted(topic.held_back.items())
    ]
    with report_folder(folder, "restore") as place:
        (place / PAGE).write_text(_page(summary, held), encoding="utf-8")
        for name, columns, rows in (
            ("restored", _TOPICS, summary.topics),
            ("held_back", _HELD, held),
            ("groups", _GROUPS, summary.groups),
            ("schemas", _SCHEMAS, summary.schemas),
            ("security", _SECURITY, summary.security),
        ):
            _write_csv(place / f"{name}.csv", columns, rows)
        if commands := list(_by_hand(summary)):
            text = "".join(f"{line}\n" for line in ("#!/bin/sh", "set -e", *commands))
            (place / BY_HAND).write_text(text, encoding="utf-8")


def verdict(summary: Summary) -> str:
    """Returns one sentence: whether all that was asked for is in the target."""
    records = counted_noun(sum(topic.verified for topic in summary.topics), "record")
    held = sum(bool(row.held_back) for row in summary.others)
    if summary.is_whole and not held:
        return f"All is there: {records} restored and read back equal."
    missing = sum(topic.asked - topic.verified for topic in summary.topics)
    parts = [f"{counted_noun(missing, 'record')} of the topics"] if missing else []
    parts += [f"{counted_noun(held, 'position')} of groups, schemas or security"] if held else []
    if not parts:
        parts = ["what the sources have lost"]
    return f"Not all is there: {records} restored and read back equal; missing: {', and '.join(parts)}."


def _page(summary: Summary, held: Sequence[_Held]) -> str:
    parts = [page_head("Restore"), f'<p class="verdict">{html_text(verdict(summary))}</p>']
    where = f"Restore {summary.restore_id} into {summary.target}, {summary.seconds:,.0f} s."
    parts.append(f"<p>{html_text(where)}</p>")
    if summary.wrong:
        parts += ["<h2>Read back otherwise</h2>", *html_list(summary.wrong)]
    if summary.warnings:
        parts += ["<h2>Warnings</h2>", *html_list(summary.warnings)]
    for title, explained, columns, rows in (
        ("Restored", _RESTORED_TEXT, _TOPICS, summary.topics),
        ("Held back, by reason", _HELD_TEXT, _HELD, held),
        ("Groups, before and after", _GROUPS_TEXT, _GROUPS, summary.groups),
        ("Schemas", "What became of each version in the registry.", _SCHEMAS, summary.schemas),
        ("Security", f"What is left is in {BY_HAND}, as commands.", _SECURITY, summary.security),
    ):
        if rows or title in ("Restored", "Held back, by reason"):
            more = f" The first {_SHOWN} of {len(rows):,} rows." if len(rows) > _SHOWN else ""
            parts += [f"<h2>{title}</h2><p>{explained}{more}</p>", *html_table(rows[:_SHOWN], columns)]
    return "\n".join([*parts, "</body></html>\n"])


def _write_csv(path: Path, columns: Columns, rows: Iterable[object]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(map(data_cell, columns)) + "\n")
        for row in rows:
            file.write(",".join(data_cell(value(row)) for value in columns.values()) + "\n")


def _by_hand(summary: Summary) -> Iterable[str]:
    """Yields commands and comments for what the restore could not write."""
    security: list[SecurityDone] = summary.security
    for row in security:
        if row.held_back:
            yield comment(f"{row.kind} {row.name}: {row.held_back}")
            if row.command:
                yield row.command
    groups: list[GroupDone] = summary.groups
    for position in groups:
        if position.kind == SHARE and position.offset is not None:
            place = f"{position.target}-{position.target_partition}"
            yield comment(f"share group {position.group}: start offset {position.offset} in {place}")


_RESTORED_TEXT = (
    "Verified: read back from the target and found equal. Left out: records that no READ_COMMITTED consumer "
    "got. Lost: ranges of offsets of which the sources have no records."
)
_HELD_TEXT = "The table held_back in the state folder has the offset of each."
_GROUPS_TEXT = (
    "Committed: in the source. Offset: its translation by the map of offsets. Before and after: what the "
    "target had, and what it gave back. Commits have no leader epoch: epochs count anew in the target."
)
_TOPICS: Columns = {
    **{name: attrgetter(name) for name in ("topic", "target", "partitions", "asked", "restored", "verified")},
    "held back": lambda topic: sum(topic.held_back.values()),
    "left out": attrgetter("left_out"),
    "lost": attrgetter("lost"),
    "bytes": attrgetter("bytes"),
}
_HELD: Columns = {name: attrgetter(name) for name in ("topic", "target", "reason", "records")}
_GROUPS: Columns = {
    **{name: attrgetter(name) for name in ("group", "kind", "topic", "partition", "committed", "target")},
    "target partition": lambda position: position.target_partition if position.target else None,
    **{name: attrgetter(name) for name in ("offset", "before", "after", "note")},
    "held back": attrgetter("held_back"),
}
_SCHEMAS: Columns = {
    "subject": attrgetter("subject"),
    "version": lambda schema: schema.version if schema.version >= 0 else None,
    "id": lambda schema: schema.id if schema.id >= 0 else None,
    **{name: attrgetter(name) for name in ("kind", "state")},
    "held back": attrgetter("held_back"),
}
_SECURITY: Columns = {
    **{name: attrgetter(name) for name in ("kind", "name")},
    "held back": attrgetter("held_back"),
    "command": attrgetter("command"),
}

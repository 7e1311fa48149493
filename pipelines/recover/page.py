"""``recover --report``: writes a page that begins with what is lost, a CSV, and ``restore.sh``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from kafka_log_lake.pipelines.cli.generated import csv_cell, html_text
from kafka_log_lake.pipelines.cli.pages import Columns, Row, data_cell, html_list, html_table, page_head
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.recover import text
from kafka_log_lake.pipelines.recover.job import Recovered
from kafka_log_lake.pipelines.recover.report_folder import report_folder
from kafka_log_lake.pipelines.recover.restore import (
    FATES,
    HELD_BACK,
    WRITTEN,
    Loss,
    register_topics,
    restore_texts,
    write_restore,
)
from kafka_log_lake.pipelines.sql.database import open_database
from kafka_log_lake.udfs.format.recovery_tables import DIVERGENCE, LOST_RANGES, REPLICA_REPORT

if TYPE_CHECKING:
    import duckdb

_SHOWN = 500  # rows of a table on the page


def write_report(done: Recovered, folder: str, lake: str | None) -> None:
    """Writes ``recovery.html``, ``lost_records.csv`` and the files that write these records again.

    lake: the one that is kept; None for none. Raises a UserError where that fails, and for a folder with
    files that ``recover`` did not write.
    """
    with report_folder(folder) as place:
        database = open_database(done.lake, "FROM lost_records")
        rows = database.execute('SELECT * FROM lost_records ORDER BY topic, partition, "offset", copy')
        names = [column[0] for column in rows.description or []]
        with (place / "lost_records.csv").open("w", encoding="utf-8", newline="") as file:
            file.write(",".join(map(csv_cell, names)) + "\n")
            while some := rows.fetchmany(1000):
                file.writelines(",".join(map(data_cell, row)) + "\n" for row in some)
        register_topics(database, done.policies)
        write_restore(database, place, done.losses, done.policies)
        (place / "recovery.html").write_text(_page(done, database, lake), encoding="utf-8")


def _page(done: Recovered, database: duckdb.DuckDBPyConnection, lake: str | None) -> str:
    parts = [
        page_head("Recovery"),
        f'<p class="verdict">{html_text(text.verdict(done))}</p>',
        *_lost_by_topic(done),
    ]
    parts += ["<h2>What restore.sh does</h2>", *html_list(restore_texts(done.losses)), *_held_back(done)]
    parts += ["<h2>How sure this is</h2>", *html_list(text.sure_lines(done))]
    if done.doubts:
        parts += ["<h3>Doubts</h3>", *html_list(done.doubts)]
    parts += ["<h3>Who led last</h3>", *html_list(done.placements.lines(_SHOWN))]
    parts += ["<h2>Summary</h2><pre>", *map(html_text, text.lines(done, lake and done.lake)), "</pre>"]
    for name, explained, rows, columns in (
        ("lost_ranges", "Offsets of the true history that no copy has.", done.rows(LOST_RANGES), _RANGES),
        ("divergence", "Ranges of copies that are not of the true history.", done.rows(DIVERGENCE), _PARTED),
        ("replica_report", "What each copy holds.", done.rows(REPLICA_REPORT), _COPIES),
    ):
        parts += [
            f"<h2>{name}</h2><p>{explained}{_first_of(len(rows))}</p>",
            *html_table(rows[:_SHOWN], columns),
        ]
    answer = database.execute(
        f'SELECT * FROM lost_records ORDER BY topic, partition, "offset", copy LIMIT {_SHOWN}'
    )
    names = [column[0] for column in answer.description or []]
    lost = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
    explained = "Records that only a losing history has; lost_records.csv has all of them, with all columns."
    parts += [
        f"<h2>lost_records</h2><p>{explained}{_first_of(done.lost_records)}</p>",
        *html_table(lost, _LOST),
    ]
    return "\n".join([*parts, "</body></html>\n"])


def _first_of(count: int) -> str:
    return f" The first {_SHOWN} of {count:,} rows." if count > _SHOWN else ""


def _held_back(done: Recovered) -> list[str]:
    """Lists the topics whose records are held back, with the cleanup policy that is why."""
    held: Counter[str] = Counter()
    for loss in done.losses:
        if loss.fate == HELD_BACK:
            held[loss.topic] += loss.records
    policies = done.policies
    return html_list(
        f"{topic}: {counted_noun(count, 'record')} held back, as commands in restore.sh that are comments; "
        f"compacted by {policies[topic].witness}"
        for topic, count in held.items()
    )


def _lost_by_topic(done: Recovered) -> list[str]:
    by_topic: dict[str, list[Loss]] = defaultdict(list)
    for loss in done.losses:
        by_topic[loss.topic].append(loss)
    ranges: dict[str, list[Row]] = defaultdict(list)
    for row in done.rows(LOST_RANGES):
        ranges[row["topic"]].append(row)
    rows = [_topic_row(name, ranges[name], by_topic[name]) for name in {*by_topic, *ranges}]
    rows.sort(key=lambda pair: (-pair[0], pair[1]["topic"]))
    explained = (
        "In no copy: records of the true log that no copy has. Losing history: records that a leader wrote "
        "whose history lost, or that had been deleted from the true log."
    )
    columns: Columns = {name: itemgetter(name) for _, row in rows[:1] for name in row}
    shown = html_table([row for _, row in rows], columns)
    return ["<h2>What is lost, by topic</h2>", f"<p>{explained}</p>", *shown]


def _topic_row(topic: str, ranges: Sequence[Row], losses: Sequence[Loss]) -> tuple[int, Row]:
    """Returns how many records of a topic are lost at most, and its row of the table."""
    certain, possible, unknown = text.lost_counts(ranges)
    in_no_copy = f"{possible:,}" if certain == possible else f"{certain:,} to {possible:,}"
    fates, acknowledged = dict.fromkeys(range(len(FATES)), 0), dict.fromkeys(("yes", "likely", "unknown"), 0)
    for loss in losses:
        fates[loss.fate] += loss.records
        acknowledged[loss.acknowledged] += loss.records
    total = sum(fates.values())
    return possible + total, {
        "topic": topic,
        "in no copy": in_no_copy + (", and more at the end" if unknown else ""),
        "losing history": total,
        "acknowledged": acknowledged["yes"],
        "likely acknowledged": acknowledged["likely"],
        "not known": acknowledged["unknown"],
        "restore.sh writes": fates[WRITTEN],
        "holds back": fates[HELD_BACK],
        "leaves out": total - fates[WRITTEN] - fates[HELD_BACK],
    }


def _log(row: Row) -> str:
    return f"{row['topic']}-{row['partition']}"


def _offsets(row: Row) -> str:
    last = "?" if row["last_offset"] is None else row["last_offset"]
    return f"{row['first_offset']} to {last}"


def _range_records(row: Row) -> str:
    certain, possible = row["certain_records"], row["possible_records"]
    return f"{certain} or more" if possible is None else f"{certain} to {possible}"


_RANGES: Columns = {
    "log": _log,
    "offsets": _offsets,
    "records": _range_records,
    "reason": itemgetter("reason"),
    "what each copy has": itemgetter("detail"),
}
_PARTED: Columns = {
    "log": _log,
    "offsets": _offsets,
    "copy": itemgetter("copy"),
    "epoch": itemgetter("leader_epoch"),
    "batches": itemgetter("batches"),
    "why": itemgetter("why"),
    "how sure": itemgetter("certainty"),
    "rule": itemgetter("rule"),
}
_COPIES: Columns = {
    "log": _log,
    "copy": itemgetter("copy"),
    "state, role": lambda row: f"{row['state']}, {row['role']}",
    "offsets": lambda row: f"{row['log_start_offset']} to {row['log_end_offset'] - 1}",
    "behind": itemgetter("behind"),
    "other history from": itemgetter("diverged_from"),
    "epochs": itemgetter("epochs"),
    "missing": itemgetter("missing"),
    "damage": itemgetter("damage"),
}
_LOST: Columns = {
    "log": _log,
    "offset": itemgetter("offset"),
    "copy": itemgetter("copy"),
    "epoch": itemgetter("leader_epoch"),
    "why": itemgetter("why"),
    "acknowledged": itemgetter("acknowledged"),
    "true log has it at": itemgetter("also_in_truth"),
    "key": itemgetter("key"),
    "value": itemgetter("value"),
}

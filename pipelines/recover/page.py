"""``recover --report``: writes a page that begins with what is lost, a CSV, and ``restore.sh``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from kafka_log_lake.pipelines.cli.generated import PAGE_POLICY, csv_cell, html_text
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

_SHOWN = 500  # rows of a table on the page
_MOST_TEXT = 300  # characters of a cell
_SHORT_WORD = 10  # characters of a word that is not broken: columns of such words fit beside each other
Row = dict[str, Any]
Columns = dict[str, Callable[[Row], object]]


def write_report(done: Recovered, folder: str, lake: str | None) -> None:
    """Writes ``recovery.html``, ``lost_records.csv`` and the files that write these records again.

    lake: the one that is kept; None for none. Raises a UserError where that fails, and for a folder with
    files that ``recover`` did not write.
    """
    with report_folder(folder) as place:
        database = open_database(done.lake, "FROM lost_records")
        rows = database.execute('SELECT * FROM lost_records ORDER BY topic, partition, "offset", copy')
        names = [one[0] for one in rows.description or []]
        with (place / "lost_records.csv").open("w", encoding="utf-8", newline="") as file:
            file.write(",".join(map(csv_cell, names)) + "\n")
            while some := rows.fetchmany(1000):
                file.writelines(",".join(map(_csv_cell, row)) + "\n" for row in some)
        register_topics(database, done.policies)
        write_restore(database, place, done.losses, done.policies)
        (place / "recovery.html").write_text(_page(done, database, lake), encoding="utf-8")


def _csv_cell(value: object) -> str:
    return csv_cell(value if value is None or isinstance(value, int | float) else _cell(value))


def _cell(value: object) -> str:
    """Returns a value as text; bytes that are no UTF-8, or have control characters, as 0x and hex digits."""
    if isinstance(value, bytes):
        try:
            found = value.decode()
        except UnicodeDecodeError:
            return "0x" + value.hex()
        return "0x" + value.hex() if any(c < " " and c not in "\t\r\n" for c in found) else found
    if isinstance(value, list):
        return ", ".join(
            f"{one['key']}={_cell(one['value'])}" if isinstance(one, dict) else str(one) for one in value
        )
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


# No table is wider than the page: long words are broken, on a narrow page all that have to be
_HEAD = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{PAGE_POLICY}">
<meta name="referrer" content="no-referrer"><title>Recovery</title><style>
body{{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 1em;color:#1b1b1f}}
table{{border-collapse:collapse;font-size:13px;width:100%}}
td,th{{border:1px solid #ccd;padding:.25em .5em;text-align:left;vertical-align:top}}
td,th,pre,li,p{{overflow-wrap:anywhere}}
td.n,td.s,th{{overflow-wrap:normal}}td.n{{text-align:right}}
@media(max-width:1000px){{td.n,td.s,th{{overflow-wrap:anywhere}}}}
th{{background:#f2f3f8}}h2{{margin-top:2em}}
pre{{background:#f6f6fa;padding:1em;white-space:pre-wrap}}.verdict{{font-size:18px;font-weight:600}}
</style></head><body><h1>Recovery</h1>
"""


def _page(done: Recovered, database: Any, lake: str | None) -> str:
    parts = [_HEAD, f'<p class="verdict">{html_text(text.verdict(done))}</p>', *_lost_by_topic(done)]
    parts += ["<h2>What restore.sh does</h2>", *_list(restore_texts(done.losses)), *_held_back(done)]
    parts += ["<h2>How sure this is</h2>", *_list(text.sure_lines(done))]
    if done.doubts:
        parts += ["<h3>Doubts</h3>", *_list(done.doubts)]
    parts += ["<h3>Who led last</h3>", *_list(done.placements.lines(_SHOWN))]
    parts += ["<h2>Summary</h2><pre>", *map(html_text, text.lines(done, lake and done.lake)), "</pre>"]
    for name, explained, rows, columns in (
        ("lost_ranges", "Offsets of the true history that no copy has.", done.rows(LOST_RANGES), _RANGES),
        ("divergence", "Ranges of copies that are not of the true history.", done.rows(DIVERGENCE), _PARTED),
        ("replica_report", "What each copy holds.", done.rows(REPLICA_REPORT), _COPIES),
    ):
        parts += [f"<h2>{name}</h2><p>{explained}{_first_of(len(rows))}</p>", *_table(rows[:_SHOWN], columns)]
    found = database.execute(
        f'SELECT * FROM lost_records ORDER BY topic, partition, "offset", copy LIMIT {_SHOWN}'
    )
    names = [one[0] for one in found.description or []]
    lost = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    explained = "Records that only a losing history has; lost_records.csv has all of them, with all columns."
    parts += [f"<h2>lost_records</h2><p>{explained}{_first_of(done.lost_records)}</p>", *_table(lost, _LOST)]
    return "\n".join([*parts, "</body></html>\n"])


def _first_of(count: int) -> str:
    return f" The first {_SHOWN} of {count:,} rows." if count > _SHOWN else ""


def _list(texts: Iterable[str]) -> list[str]:
    return ["<ul>", *(f"<li>{html_text(one)}</li>" for one in texts), "</ul>"]


def _held_back(done: Recovered) -> list[str]:
    """Lists the topics whose records are held back, with the cleanup policy that is why."""
    held: Counter[str] = Counter()
    for loss in done.losses:
        if loss.fate == HELD_BACK:
            held[loss.topic] += loss.records
    policies = done.policies
    return _list(
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
    rows.sort(key=lambda found: (-found[0], found[1]["topic"]))
    explained = (
        "In no copy: records of the true log that no copy has. Losing history: records that a leader wrote "
        "whose history lost, or that had been deleted from the true log."
    )
    columns: Columns = {name: itemgetter(name) for _, row in rows[:1] for name in row}
    shown = _table([row for _, row in rows], columns)
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


def _table(rows: Sequence[Row], columns: Columns) -> list[str]:
    if not rows:
        return ["<p>None.</p>"]
    head = "".join(f"<th>{html_text(column)}</th>" for column in columns)
    shown = ("".join(_data(value(row)) for value in columns.values()) for row in rows)
    return ["<table><tr>", head, "</tr>", *(f"<tr>{row}</tr>" for row in shown), "</table>"]


def _data(value: object) -> str:
    found = _cell(value)
    found = f"{found[:_MOST_TEXT]}…" if len(found) > _MOST_TEXT else found
    is_short = max(map(len, found.split()), default=0) <= _SHORT_WORD
    kind = " class=n" if isinstance(value, int) else " class=s" if is_short else ""
    return f"<td{kind}>{html_text(found)}</td>"

"""The bill of ``recover`` in ten lines, as JSON, as CSV and as one page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipelines.command.errors import writing
from pipelines.command.generated import PAGE_POLICY, csv_cell, html_text
from pipelines.command.tables import size_text
from pipelines.command.terminal import counted_noun, printable
from pipelines.recovery.bill import write_restore
from pipelines.recovery.job import Recovered
from pipelines.recovery.rows import REPORTED
from pipelines.sql.database import open_database
from udfs.format.recovery_tables import DIVERGENCE, LOST_RANGES, LOST_RECORDS, REPLICA_REPORT

_SHOWN = 500  # rows of a table on the page


def to_json(done: Recovered, lake: str | None) -> dict[str, Any]:
    """What a run came to. lake: the one that is kept; None for none."""
    bill, lost_ranges = done.bill, done.rows(LOST_RANGES)
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
        "distinct_lost_records": bill["distinct"],
        "acknowledged": bill["acknowledged"],
        "also_in_truth": bill["also"],
        "doubts": done.doubts,
        "warnings": done.inventory.warnings,
    }


def lines(done: Recovered, seconds: float, lake: str | None) -> list[str]:
    """The bill in ten lines."""
    bill, doubts = done.bill, done.doubts
    replicas, lost_ranges = done.rows(REPLICA_REPORT), done.rows(LOST_RANGES)
    damaged = sum(row["damaged_ranges"] for row in replicas)
    certain = sum(row["certain_records"] for row in lost_ranges)
    possible = sum(row["possible_records"] or 0 for row in lost_ranges)
    unknown = sum(row["possible_records"] is None for row in lost_ranges)
    more = f", and more behind {counted_noun(unknown, 'log')}" if unknown else ""
    why = ", ".join(f"{count:,} {name}" for name, count in sorted(bill["why"].items())) or "none"
    answers = ", ".join(f"{name} {count:,}" for name, count in sorted(bill["acknowledged"].items()))
    sure = ", ".join(f"{count:,} {name}" for name, count in sorted(done.certainty.items()))
    cluster = done.inventory.cluster_id or "(no id)"
    batches, from_others, mended = (
        counted_noun(done.total(name), "batch") for name in ("batches", "from_others", "mended")
    )
    return [
        f"copies       {len(replicas):,} of {counted_noun(len(done.partitions), 'partition')}, on "
        f"{counted_noun(len(done.inventory.log_dirs), 'disk')} of cluster {cluster}",
        f"true log     {batches}, {size_text(done.total('bytes'))}; history: {sure}",
        f"damage       {counted_noun(damaged, 'range')} in all copies; "
        f"{from_others} taken from another copy than the first one",
        f"corrected    base offset, leader epoch or length of {mended}",
        f"lost         {counted_noun(certain, 'record')} for sure, {possible:,} at most{more}, in "
        f"{counted_noun(len(lost_ranges), 'range')} that no copy has (lost_ranges)",
        f"losing side  {counted_noun(bill['distinct'], 'record')} on losing histories alone: "
        f"{why} (lost_records)",
        f"             acknowledged: {answers or 'none'}; {bill['also']:,} of them are in the true "
        "log too, at another offset",
        f"doubts       {printable(doubts[0]) if doubts else 'none'}"
        + (f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""),
        f"tables       {lake or 'not kept: no --lake'}: healed_records, healed_batches, replica_report, "
        "divergence, lost_ranges, lost_records",
        verdict(certain, possible, unknown, bill, seconds),
    ]


def verdict(certain: int, possible: int, unknown: int, bill: dict[str, Any], seconds: float) -> str:
    """The last line: whether anything is lost. unknown: logs with damaged bytes behind them."""
    parts = []
    if possible:
        parts.append(
            f"{certain:,} to {counted_noun(possible, 'record')} in no copy"
            if certain != possible
            else f"{counted_noun(possible, 'record')} in no copy"
        )
    if unknown:
        parts.append(f"damaged bytes behind {counted_noun(unknown, 'log')} may have been records")
    if bill["distinct"]:
        parts.append(f"{counted_noun(bill['distinct'], 'record')} on losing histories alone")
    words = "; ".join(parts) or "nothing is lost: the copies hold the whole true log"
    return f"{words} ({seconds:.1f} s)"


def write_report(done: Recovered, folder: str, lake: str | None) -> None:
    """Writes ``recovery.html``, ``lost_records.csv`` and what writes these records again.

    lake: the one that is kept; None for none. Raises a UserError where that fails.
    """
    place = Path(folder)
    with writing(f"--report {folder}"):
        place.mkdir(parents=True, exist_ok=True)
        database = open_database(done.lake, "FROM lost_records")
        rows = database.execute('SELECT * FROM lost_records ORDER BY topic, partition, "offset", copy')
        names = [one[0] for one in rows.description or []]
        with (place / "lost_records.csv").open("w", encoding="utf-8", newline="") as file:
            file.write(",".join(map(csv_cell, names)) + "\n")
            while some := rows.fetchmany(1000):
                file.writelines(",".join(map(_csv_cell, row)) + "\n" for row in some)
        write_restore(database, place)
        (place / "recovery.html").write_text(_page(done, database, lake), encoding="utf-8")


def _csv_cell(value: Any) -> str:
    return csv_cell(None if value is None else _cell(value), is_data=isinstance(value, int | float))


def _cell(value: Any) -> str:
    """A value as text; bytes that are not UTF-8, or hold controls other than tab and line breaks, as 0x."""
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return "0x" + value.hex()
        return "0x" + value.hex() if any(c < " " and c not in "\t\r\n" for c in text) else text
    if isinstance(value, list):
        return ", ".join(
            f"{one['key']}={_cell(one['value'])}" if isinstance(one, dict) else str(one) for one in value
        )
    return "" if value is None else str(value)


_HEAD = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{PAGE_POLICY}">
<meta name="referrer" content="no-referrer"><title>Recovery</title><style>
body{{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 1em;color:#1b1b1f}}
table{{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}}
td,th{{border:1px solid #ccd;padding:.25em .5em;text-align:left;vertical-align:top;max-width:24em}}
td{{overflow-wrap:anywhere}}
th{{background:#f2f3f8}}pre{{background:#f6f6fa;padding:1em;overflow-x:auto}}h2{{margin-top:2em}}
</style></head><body><h1>Recovery</h1>
"""
_EXPLAINED = {
    REPLICA_REPORT.name: "What each copy holds, and what is wrong with it.",
    DIVERGENCE.name: "Ranges of copies that are not of the true history, and the rule by which they lost.",
    LOST_RANGES.name: "Offsets of the true history that no copy has.",
    LOST_RECORDS.name: "Records that only a losing history has. lost_records.csv has all of them.",
}


def _page(done: Recovered, database: Any, lake: str | None) -> str:
    parts = [_HEAD, "<pre>", "\n".join(map(html_text, lines(done, 0.0, lake and done.lake)[:-1])), "</pre>"]
    if done.doubts:
        parts += ["<h2>Doubts</h2><ul>", *(f"<li>{html_text(one)}</li>" for one in done.doubts), "</ul>"]
    for table in REPORTED:
        found = done.rows(table)
        columns = list(found[0]) if found else []
        parts += _table(table.name, columns, ([row[one] for one in columns] for row in found), len(found))
    rows = database.execute(f"SELECT * FROM lost_records LIMIT {_SHOWN}")
    names = [one[0] for one in rows.description or []]
    parts += _table(LOST_RECORDS.name, names, rows.fetchall(), done.lost_records)
    return "\n".join([*parts, "</body></html>"])


def _table(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int) -> list[str]:
    shown = [
        "<tr>" + "".join(f"<td>{html_text(_cell(one))}</td>" for one in row) + "</tr>"
        for row, _ in zip(rows, range(_SHOWN), strict=False)
    ]
    more = f" The first {_SHOWN} of {count:,} rows." if count > _SHOWN else ""
    head = "".join(f"<th>{html_text(one)}</th>" for one in columns)
    table = ["<table><tr>", head, "</tr>", *shown, "</table>"] if shown else ["<p>None.</p>"]
    return [f"<h2>{name}</h2><p>{_EXPLAINED[name]}{more}</p>", *table]

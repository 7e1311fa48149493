"""Writes a page of HTML that is one file: tables and lists of what a command found.

Names and values in it are from disks that anybody may have written: all are escaped (``generated``). The page
has no script and loads nothing; its policy forbids both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka_log_lake.pipelines.cli.generated import PAGE_POLICY, csv_cell, html_text

_MOST_TEXT = 300  # characters of a cell
_SHORT_WORD = 10  # characters of a word that is not broken: columns of such words fit beside each other
Row = Any
Columns = dict[str, Callable[[Row], object]]
# No table is wider than the page: long words are broken, on a narrow page all that have to be
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 1em;color:#1b1b1f}
table{border-collapse:collapse;font-size:13px;width:100%}
td,th{border:1px solid #ccd;padding:.25em .5em;text-align:left;vertical-align:top}
td,th,pre,li,p{overflow-wrap:anywhere}
td.n,td.s,th{overflow-wrap:normal}td.n{text-align:right}
@media(max-width:1000px){td.n,td.s,th{overflow-wrap:anywhere}}
th{background:#f2f3f8}h2{margin-top:2em}
pre{background:#f6f6fa;padding:1em;white-space:pre-wrap}.verdict{font-size:18px;font-weight:600}
"""


def page_head(title: str) -> str:
    """Returns the HTML with which a page begins, its first heading included."""
    title = html_text(title)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{PAGE_POLICY}">
<meta name="referrer" content="no-referrer"><title>{title}</title><style>{_STYLE}</style></head><body>
<h1>{title}</h1>
"""


def data_cell(value: object) -> str:
    """Returns a cell of a CSV file: a number as it is, anything else as text that is no formula."""
    return csv_cell(value if value is None or isinstance(value, int | float) else cell_text(value))


def cell_text(value: object) -> str:
    """Returns a value as text; bytes that are no UTF-8, or have control characters, as 0x and hex digits."""
    if isinstance(value, bytes):
        try:
            decoded = value.decode()
        except UnicodeDecodeError:
            return "0x" + value.hex()
        return "0x" + value.hex() if any(c < " " and c not in "\t\r\n" for c in decoded) else decoded
    if isinstance(value, list):
        return ", ".join(
            f"{item['key']}={cell_text(item['value'])}" if isinstance(item, dict) else str(item)
            for item in value
        )
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def html_list(texts: Iterable[str]) -> list[str]:
    """Returns a list of HTML."""
    return ["<ul>", *(f"<li>{html_text(text)}</li>" for text in texts), "</ul>"]


def html_table(rows: Sequence[Row], columns: Columns) -> list[str]:
    """Returns a table of HTML: a column is a heading and what it shows of a row."""
    if not rows:
        return ["<p>None.</p>"]
    head = "".join(f"<th>{html_text(column)}</th>" for column in columns)
    shown = ("".join(_data(value(row)) for value in columns.values()) for row in rows)
    return ["<table><tr>", head, "</tr>", *(f"<tr>{row}</tr>" for row in shown), "</table>"]


def _data(value: object) -> str:
    text = cell_text(value)
    text = f"{text[:_MOST_TEXT]}…" if len(text) > _MOST_TEXT else text
    is_short = max(map(len, text.split()), default=0) <= _SHORT_WORD
    kind = " class=n" if isinstance(value, int) else " class=s" if is_short else ""
    return f"<td{kind}>{html_text(text)}</td>"

"""Formats an inspected batch as one page of HTML that loads nothing, so that it can be sent.

Bytes and fields are linked by the number of the field: if the pointer or the focus is on one, the other is
marked too. All text of the segment is escaped, and the page's policy forbids it to load anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from kafka_log_lake.pipelines.cli.generated import html_text
from kafka_log_lake.pipelines.cli.terminal import counted_noun
from kafka_log_lake.pipelines.inspect_batch.batch import Inspection
from kafka_log_lake.pipelines.inspect_batch.fields import FILE, PAYLOAD, InspectedField
from kafka_log_lake.pipelines.inspect_batch.mended import as_text
from kafka_log_lake.pipelines.inspect_batch.text import facts, mended_title, raw_bytes, title, words_of

_ROW = 16
_SHOWN = 8  # bytes of a field in the table
_PAYLOAD = "the payload, expanded"
_MOST_BYTES = 1 << 16  # of each of both panes
_MOST_FIELDS = 4000


def page(path: str, inspection: Inspection) -> str:
    """Returns the page as HTML. path: of the segment, as it is shown."""
    template = (
        resources.files("kafka_log_lake.pipelines.inspect_batch")
        .joinpath("page.html")
        .read_text(encoding="utf-8")
    )
    fields = inspection.fields[:_MOST_FIELDS]
    spans = _spans(fields)
    panes = [
        _pane(
            "the file", inspection.content, inspection.position, _owners(inspection, fields, FILE), inspection
        )
    ]
    if inspection.payload is not None:
        panes.append(_pane(_PAYLOAD, inspection.payload, 0, _owners(inspection, fields, PAYLOAD), inspection))
    left = len(inspection.fields) - len(fields)
    parts = {
        "path": html_text(path),
        "title": html_text(title(inspection)),
        "status": html_text(words_of(inspection.status)),
        "problem": f'<p class="problem">{html_text(inspection.problem)}</p>' if inspection.problem else "",
        "causes": _causes(inspection),
        "facts": "".join(f"<li>{html_text(fact)}</li>" for fact in facts(inspection)),
        "rows": "".join(_rows(inspection, fields, spans)),
        "more": html_text(_more(inspection.left_out, left)),
        "panes": "".join(panes),
    }
    for name, text in parts.items():
        template = template.replace(f"<!--{name}-->", text)
    return template


def _more(records: int, fields: int) -> str:
    words = [f"{counted_noun(records, 'record')} more not shown (--records N)"] if records else []
    words += [f"{counted_noun(fields, 'field')} more not shown"] if fields else []
    return "; ".join(words)


def _causes(inspection: Inspection) -> str:
    items = [f"<li><b>{html_text(c.certainty)}</b>: {html_text(c.text)}</li>" for c in inspection.causes]
    if not items:
        return ""
    words = (
        f"With the first mended {counted_noun(inspection.mended, 'record')} can be read."
        if inspection.mended >= 0
        else ""
    )
    if not words and inspection.status not in ("ok", "tail"):
        words = "The batch can't be read by mending that."
    return f"<h2>What most likely happened</h2><ol>{''.join(items)}</ol><p>{words}</p>{_mended(inspection)}"


def _mended(inspection: Inspection) -> str:
    """Lists the records with the first cause undone, apart from those that are stored."""
    if not inspection.mended_records:
        return ""
    items = "".join(f"<li>{html_text(as_text(record))}</li>" for record in inspection.mended_records)
    return f"<details><summary>{html_text(mended_title(inspection))}</summary><ul>{items}</ul></details>"


def _spans(fields: list[InspectedField]) -> list[tuple[int, int]]:
    """Returns for each field (first, last) index of the fields in it: of a record all of its fields."""
    spans = []
    for i, field in enumerate(fields):
        last = i
        if field.level == 1:
            while last + 1 < len(fields) and fields[last + 1].level > 1:
                last += 1
        spans.append((i, last))
    return spans


def _rows(
    inspection: Inspection, fields: list[InspectedField], spans: list[tuple[int, int]]
) -> Iterator[str]:
    place = FILE
    for i, field in enumerate(fields):
        if field.place != place:
            place = field.place
            yield f'<tr class="place"><th colspan="6">{_PAYLOAD}; positions count from its start</th></tr>\n'
        yield _row(inspection, i, field, spans[i])


def _row(inspection: Inspection, i: int, field: InspectedField, span: tuple[int, int]) -> str:
    state = ' class="bad"' if field.problem else ""
    problem = f' <span class="problem">{html_text(field.problem)}</span>' if field.problem else ""
    begin, end = span
    raw = b"" if field.level == 1 else raw_bytes(inspection, field)
    shown = raw[:_SHOWN].hex(" ") + (" …" if len(raw) > _SHOWN else "")
    return (
        f'<tr data-f="{begin}" data-e="{end}" data-l="{field.level}" tabindex="{0 if i == 0 else -1}"{state}>'
        f"<td>{field.at}</td><td>{field.size}</td><td>{shown}</td><td>{html_text(field.name)}</td>"
        f"<td>{html_text(field.value)}</td><td>{html_text(field.meaning)}{problem}</td></tr>\n"
    )


def _owners(inspection: Inspection, fields: list[InspectedField], place: str) -> list[int]:
    """Returns for each byte of a pane the index of its field, the innermost one; -1 for none."""
    base = inspection.position if place == FILE else 0
    size = min(len(inspection.content if place == FILE else inspection.payload or b""), _MOST_BYTES)
    owners = [-1] * size
    for i, field in enumerate(fields):
        if field.place == place and field.level != 1:
            for at in range(max(0, field.at - base), min(size, field.at - base + field.size)):
                owners[at] = i
    return owners


def _pane(name: str, data: bytes, base: int, owners: list[int], inspection: Inspection) -> str:
    changed = (
        {cause.position for cause in inspection.causes if cause.bits} if base or name == "the file" else set()
    )
    rows = [_hex_row(data, base, owners, at, changed) for at in range(0, len(owners), _ROW)]
    left = len(data) - len(owners)
    more = f"<p>{counted_noun(left, 'byte')} more not shown</p>" if left else ""
    return f"<h3>{name}: {counted_noun(len(data), 'byte')}</h3><pre>{''.join(rows)}</pre>{more}"


def _hex_row(data: bytes, base: int, owners: list[int], begin: int, changed: set[int]) -> str:
    end = min(begin + _ROW, len(owners))
    cells = "".join(_runs(data, base, owners, begin, end, changed))
    blanks = "   " * (_ROW - (end - begin))
    text = html_text("".join(chr(b) if 32 <= b < 127 else "." for b in data[begin:end]))
    return f"<i>{base + begin:>10}</i>  {cells}{blanks} <s>{text}</s>\n"


def _runs(
    data: bytes, base: int, owners: list[int], begin: int, end: int, changed: set[int]
) -> Iterator[str]:
    """Yields an HTML element for each run of neighbouring bytes of one field; a changed byte is alone."""
    at = begin
    while at < end:
        stop = at + 1
        is_changed = base + at in changed
        while stop < end and owners[stop] == owners[at] and not is_changed and base + stop not in changed:
            stop += 1
        mark = ' class="flip"' if is_changed else ""
        blank = " " if stop == end or is_changed else ""
        shown = data[at:stop].hex(" ") + ("" if blank else " ")
        yield f'<b data-f="{owners[at]}"{mark}>{shown}</b>{blank}'
        at = stop

"""Formats an inspected batch as lines for a terminal or a pipe, and as an object of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from kafka_log_lake.pipelines.cli.terminal import aligned, counted_noun, printable, width_of
from kafka_log_lake.pipelines.inspect_batch.batch import Inspection
from kafka_log_lake.pipelines.inspect_batch.fields import FILE, InspectedField
from kafka_log_lake.pipelines.inspect_batch.mended import as_json, as_text
from kafka_log_lake.pipelines.inspect_batch.place import Neighbour
from kafka_log_lake.udfs.format import layout as f
from kafka_log_lake.udfs.words import count_of

_BYTES = 12  # that a line shows
_COLOURS = {"ok": "green", "suspect": "yellow", "tail": "yellow"}
_WORDS = {"tail": "no damage, if no other segment of the log follows"}
_WIDTHS = (10, 8, 3 * _BYTES + 1, 22, 24)


def print_inspection(console: Console, path: str, inspection: Inspection) -> None:
    """Prints the batch: what it is, what is wrong, its fields, its neighbours."""
    for line in lines(path, inspection):
        console.print(line, soft_wrap=True, highlight=False)


def lines(path: str, inspection: Inspection) -> Iterator[Text]:
    """Yields the lines with their styles."""
    yield Text(printable(path), "bold")
    yield from summary(inspection)
    yield from map(Text, facts(inspection))
    yield Text("")
    names = ("position", "length", "bytes", "field", "value")
    yield Text("  ".join(map(aligned, names, _WIDTHS)) + "  meaning", "bold")
    place = FILE
    for field in inspection.fields:
        if field.place != place:
            place = field.place
            yield from _payload(inspection)
        yield _line(inspection, field)
    if inspection.left_out:
        yield Text(
            f"{counted_noun(inspection.left_out, 'more record')} not shown (--records N shows N)", "dim"
        )
    if inspection.mended_records:
        yield Text("")
        yield Text(mended_title(inspection), "bold")
        yield from (Text(printable(as_text(record))) for record in inspection.mended_records)


def mended_title(inspection: Inspection) -> str:
    """Returns a title for mended records: what they are, and how many are given."""
    words = f"with the first cause corrected ({inspection.causes[0].certainty}), and not as they are stored"
    given = len(inspection.mended_records)
    return f"mended records, {words}: {given} of {inspection.mended}" + (
        " (--records N gives N)" if given < inspection.mended else ""
    )


def summary(inspection: Inspection) -> Iterator[Text]:
    """Yields what the batch is, what is wrong with it, and what most likely happened."""
    colour = _COLOURS.get(inspection.status, "red")
    yield Text.assemble(title(inspection) + ": ", (words_of(inspection.status), f"bold {colour}"))
    if inspection.problem:
        yield Text(f"problem: {printable(inspection.problem)}", colour)
    for i, cause in enumerate(inspection.causes):
        words = "most likely" if i == 0 else "or"
        yield Text(f"{words} ({cause.certainty}): {printable(cause.text)}", "yellow")
    if inspection.mended >= 0:
        yield Text(f"with that corrected {counted_noun(inspection.mended, 'record')} can be read", "green")
    elif inspection.causes and inspection.status not in ("ok", "tail"):
        yield Text("it is not readable even with that corrected", "red")


def words_of(status: str) -> str:
    """Returns the words for a status."""
    return _WORDS.get(status, status)


def title(inspection: Inspection) -> str:
    """Returns what the batch is, and where."""
    what = {f.MAGIC_V0: "message", f.MAGIC_V1: "message", f.MAGIC_V2: "record batch"}.get(inspection.magic)
    what = "damage" if what is None else f"{what} of magic {inspection.magic}"
    what = {"damaged": "damage", "tail": "tail"}.get(inspection.status, what)
    count = "" if what in ("damage", "tail") else f", {counted_noun(inspection.records, 'record')}"
    return f"{what} at position {inspection.position}, {count_of(inspection.size, 'byte')}{count}"


def facts(inspection: Inspection) -> Iterator[str]:
    """Yields sentences on the checksum and the neighbours."""
    checksum = inspection.checksum
    if checksum is not None:
        verdict = "right" if checksum.is_right else "wrong"
        numbers = f"stored {checksum.stored:#010x}, computed {checksum.computed:#010x}"
        covers = f"positions {checksum.begin} to {checksum.end - 1}"
        yield f"checksum: {checksum.name} of {covers}: {numbers}: {verdict}"
        if inspection.magic == f.MAGIC_V2:
            yield "not covered: baseOffset, batchLength, partitionLeaderEpoch, magic"
        else:
            yield "not covered: offset, messageSize"
    yield f"before: {_neighbour(inspection.before, 'nothing, it is the first batch')}"
    yield f"after: {_neighbour(inspection.after, 'nothing, the segment ends')}"


def _neighbour(batch: Neighbour | None, nothing: str) -> str:
    if batch is None:
        return nothing
    sound = "sound" if batch.is_sound else "its checksum is wrong"
    offsets = f"offsets {batch.base_offset} to {batch.last_offset}"
    return f"batch at position {batch.position}, {batch.size} bytes, magic {batch.magic}, {offsets}, {sound}"


def raw_bytes(inspection: Inspection, field: InspectedField) -> bytes:
    """Returns the bytes of a field, from the file or the expanded payload."""
    if field.place == FILE:
        at = field.at - inspection.position
        return inspection.content[at : at + field.size]
    return (inspection.payload or b"")[field.at : field.at + field.size]


def _line(inspection: Inspection, field: InspectedField) -> Text:
    raw = raw_bytes(inspection, field)
    is_title = field.level == 1
    shown = "" if is_title else raw[:_BYTES].hex(" ") + (" …" if len(raw) > _BYTES else "")
    name = "  " * max(0, field.level - 1) + printable(field.name)
    cells = (str(field.at), str(field.size), shown, name, printable(field.value))
    line = Text("  ".join(_cell(cell, width) for cell, width in zip(cells, _WIDTHS, strict=True)))
    if is_title:
        line.stylize("bold")
    else:
        begin = sum(_WIDTHS[:2]) + 4
        line.stylize("cyan", begin, begin + _WIDTHS[2])
    line.append("  " + printable(field.meaning), "dim")
    if field.problem:
        line.append(f"  <- {printable(field.problem)}", "bold red")
    return line


def _cell(text: str, width: int) -> str:
    return aligned(text, width) if width_of(text) <= width else text


def _payload(inspection: Inspection) -> Iterator[Text]:
    payload = inspection.payload or b""
    yield Text("")
    yield Text(f"the payload, expanded: {len(payload)} bytes; positions below count from its start", "bold")


def to_json(path: str, inspection: Inspection) -> dict[str, Any]:
    """Returns the inspection as an object of JSON.

    Bytes of fields are hexadecimal digits; a cause has the byte that was changed, and the bit, None for none.
    """
    return {
        "file": path,
        "position": inspection.position,
        "size_bytes": inspection.size,
        "magic": inspection.magic,
        "status": inspection.status,
        "problem": inspection.problem or None,
        "checksum": asdict(inspection.checksum) if inspection.checksum else None,
        "records": inspection.records,
        "causes": [
            {
                "kind": cause.kind,
                "certainty": cause.certainty,
                "text": cause.text,
                "position": cause.position if cause.position >= 0 else None,
                "size_bytes": cause.size,
                "changed_bits": cause.bits or None,
                "bit": cause.bit if cause.bit >= 0 else None,
            }
            for cause in inspection.causes
        ],
        "records_once_mended": inspection.mended if inspection.mended >= 0 else None,
        "mended_records": [as_json(record) for record in inspection.mended_records],
        "before": inspection.before._asdict() if inspection.before else None,
        "after": inspection.after._asdict() if inspection.after else None,
        "fields": [
            {
                "name": field.name,
                "place": field.place,
                "position": field.at,
                "size_bytes": field.size,
                "bytes": raw_bytes(inspection, field).hex(),
                "value": field.value,
                "meaning": field.meaning,
                "level": field.level,
                "problem": field.problem or None,
            }
            for field in inspection.fields
        ],
    }

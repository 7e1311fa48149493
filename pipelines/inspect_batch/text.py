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


def print_inspection(console: Console, path: str, found: Inspection) -> None:
    """Prints the batch: what it is, what is wrong, its fields, its neighbours."""
    for line in lines(path, found):
        console.print(line, soft_wrap=True, highlight=False)


def lines(path: str, found: Inspection) -> Iterator[Text]:
    """Yields the lines with their styles."""
    yield Text(printable(path), "bold")
    yield from summary(found)
    yield from map(Text, facts(found))
    yield Text("")
    names = ("position", "length", "bytes", "field", "value")
    yield Text("  ".join(map(aligned, names, _WIDTHS)) + "  meaning", "bold")
    place = FILE
    for field in found.fields:
        if field.place != place:
            place = field.place
            yield from _payload(found)
        yield _line(found, field)
    if found.left_out:
        yield Text(f"{counted_noun(found.left_out, 'more record')} not shown (--records N shows N)", "dim")
    if found.mended_records:
        yield Text("")
        yield Text(mended_title(found), "bold")
        yield from (Text(printable(as_text(record))) for record in found.mended_records)


def mended_title(found: Inspection) -> str:
    """Returns a title for mended records: what they are, and how many are given."""
    words = f"with the first cause corrected ({found.causes[0].certainty}), and not as they are stored"
    given = len(found.mended_records)
    return f"mended records, {words}: {given} of {found.mended}" + (
        " (--records N gives N)" if given < found.mended else ""
    )


def summary(found: Inspection) -> Iterator[Text]:
    """Yields what the batch is, what is wrong with it, and what most likely happened."""
    colour = _COLOURS.get(found.status, "red")
    yield Text.assemble(title(found) + ": ", (words_of(found.status), f"bold {colour}"))
    if found.problem:
        yield Text(f"problem: {printable(found.problem)}", colour)
    for i, cause in enumerate(found.causes):
        words = "most likely" if i == 0 else "or"
        yield Text(f"{words} ({cause.certainty}): {printable(cause.text)}", "yellow")
    if found.mended >= 0:
        yield Text(f"with that corrected {counted_noun(found.mended, 'record')} can be read", "green")
    elif found.causes and found.status not in ("ok", "tail"):
        yield Text("it is not readable even with that corrected", "red")


def words_of(status: str) -> str:
    """Returns the words for a status."""
    return _WORDS.get(status, status)


def title(found: Inspection) -> str:
    """Returns what the batch is, and where."""
    what = {f.MAGIC_V0: "message", f.MAGIC_V1: "message", f.MAGIC_V2: "record batch"}.get(found.magic)
    what = "damage" if what is None else f"{what} of magic {found.magic}"
    what = {"damaged": "damage", "tail": "tail"}.get(found.status, what)
    count = "" if what in ("damage", "tail") else f", {counted_noun(found.records, 'record')}"
    return f"{what} at position {found.position}, {count_of(found.size, 'byte')}{count}"


def facts(found: Inspection) -> Iterator[str]:
    """Yields sentences on the checksum and the neighbours."""
    checksum = found.checksum
    if checksum is not None:
        verdict = "right" if checksum.is_right else "wrong"
        numbers = f"stored {checksum.stored:#010x}, computed {checksum.computed:#010x}"
        covers = f"positions {checksum.begin} to {checksum.end - 1}"
        yield f"checksum: {checksum.name} of {covers}: {numbers}: {verdict}"
        if found.magic == f.MAGIC_V2:
            yield "not covered: baseOffset, batchLength, partitionLeaderEpoch, magic"
        else:
            yield "not covered: offset, messageSize"
    yield f"before: {_neighbour(found.before, 'nothing, it is the first batch')}"
    yield f"after: {_neighbour(found.after, 'nothing, the segment ends')}"


def _neighbour(one: Neighbour | None, nothing: str) -> str:
    if one is None:
        return nothing
    sound = "sound" if one.is_sound else "its checksum is wrong"
    offsets = f"offsets {one.base_offset} to {one.last_offset}"
    return f"batch at position {one.position}, {one.size} bytes, magic {one.magic}, {offsets}, {sound}"


def raw_bytes(found: Inspection, one: InspectedField) -> bytes:
    """Returns the bytes of a field, from the file or the expanded payload."""
    if one.place == FILE:
        at = one.at - found.position
        return found.content[at : at + one.size]
    return (found.payload or b"")[one.at : one.at + one.size]


def _line(found: Inspection, one: InspectedField) -> Text:
    raw = raw_bytes(found, one)
    is_title = one.level == 1
    shown = "" if is_title else raw[:_BYTES].hex(" ") + (" …" if len(raw) > _BYTES else "")
    name = "  " * max(0, one.level - 1) + printable(one.name)
    cells = (str(one.at), str(one.size), shown, name, printable(one.value))
    line = Text("  ".join(_cell(cell, width) for cell, width in zip(cells, _WIDTHS, strict=True)))
    if is_title:
        line.stylize("bold")
    else:
        begin = sum(_WIDTHS[:2]) + 4
        line.stylize("cyan", begin, begin + _WIDTHS[2])
    line.append("  " + printable(one.meaning), "dim")
    if one.problem:
        line.append(f"  <- {printable(one.problem)}", "bold red")
    return line


def _cell(text: str, width: int) -> str:
    return aligned(text, width) if width_of(text) <= width else text


def _payload(found: Inspection) -> Iterator[Text]:
    payload = found.payload or b""
    yield Text("")
    yield Text(f"the payload, expanded: {len(payload)} bytes; positions below count from its start", "bold")


def to_json(path: str, found: Inspection) -> dict[str, Any]:
    """Returns the inspection as an object of JSON.

    Bytes of fields are hexadecimal digits; a cause has the byte that was changed, and the bit, None for none.
    """
    return {
        "file": path,
        "position": found.position,
        "size_bytes": found.size,
        "magic": found.magic,
        "status": found.status,
        "problem": found.problem or None,
        "checksum": asdict(found.checksum) if found.checksum else None,
        "records": found.records,
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
            for cause in found.causes
        ],
        "records_once_mended": found.mended if found.mended >= 0 else None,
        "mended_records": [as_json(record) for record in found.mended_records],
        "before": found.before._asdict() if found.before else None,
        "after": found.after._asdict() if found.after else None,
        "fields": [
            {
                "name": field.name,
                "place": field.place,
                "position": field.at,
                "size_bytes": field.size,
                "bytes": raw_bytes(found, field).hex(),
                "value": field.value,
                "meaning": field.meaning,
                "level": field.level,
                "problem": field.problem or None,
            }
            for field in found.fields
        ],
    }

"""Prints tables for a person: aligned text for a pipe, ``rich`` on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_log_lake.pipelines.cli.terminal import aligned, wants_colour, width_of

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

SHOWN = 20
_NAME_WIDTH, _OF_BOX = 20, 3  # of a name before it is broken; of a column's borders and blanks


@dataclass(frozen=True)
class Section:
    """A table with a title.

    right: indexes of the right-aligned columns. more: how many rows are not shown.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: tuple[int, ...] = ()
    more: int = 0


def shortened(sections: Iterable[Section]) -> Iterator[Section]:
    """Yields the sections that have rows, each with its first SHOWN; ``more`` counts the others."""
    for section in sections:
        if section.rows:
            more = max(0, len(section.rows) - SHOWN)
            yield Section(section.title, section.columns, section.rows[:SHOWN], section.right, more)


def text_lines(section: Section, rest: str = "") -> Iterator[str]:
    """Yields the lines of a section for a pipe or a file: no colour, no box.

    rest: words that say where the rows are that are not shown.
    """
    if section.title:
        yield section.title
    widths = [max(map(width_of, column)) for column in zip(section.columns, *section.rows, strict=True)]
    for row in (section.columns, *section.rows):
        cells = [
            aligned(cell, width, at in section.right)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()
    if section.more:
        yield f"  and {section.more:,} more{rest}"


def open_console() -> Console:
    """Opens the terminal by ``rich``. If its reader goes away, that is a BrokenPipeError, as for ``print``.

    With NO_COLOR it gets no style either: bold text is an escape sequence too.
    """
    from rich import console

    class Console(console.Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Console(color_system="auto" if wants_colour() else None)


def print_table(console: Console, section: Section, rest: str = "") -> None:
    """Prints a section on a terminal: in a box, where that breaks no word but those of the first column."""
    from rich.table import Table
    from rich.text import Text

    widths = _box_widths(section, console.width)
    if widths is None:
        for line in text_lines(section, rest):
            console.print(Text(line), soft_wrap=True)
        return
    table = Table(title_justify="left", title_style="bold", caption_justify="left")
    table.title = section.title or None
    table.caption = f"and {section.more:,} more{rest}" if section.more else None
    for at, (column, width) in enumerate(zip(section.columns, widths, strict=True)):
        justify: JustifyMethod = "right" if at in section.right else "left"
        table.add_column(column, justify=justify, overflow="fold", width=width)
    for row in section.rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _box_widths(section: Section, most: int) -> list[int] | None:
    """Returns the width of each column in a box; None where a word or a number would be broken.

    most: columns of the whole box. A long name in the first column may be broken.
    """
    whole, least = [], []
    for at, (head, *cells) in enumerate(zip(section.columns, *section.rows, strict=True)):
        parts = map(width_of if at in section.right else _word_width, cells)
        least.append(max(_word_width(head), *parts))
        whole.append(max(map(width_of, (head, *cells))))
    least[0] = min(least[0], _NAME_WIDTH)
    room = most - sum(least) - _OF_BOX * len(least) - 1
    if room < 0:
        return None
    wanted = sum(whole) - sum(least)
    share = min(1.0, room / wanted) if wanted else 0.0
    return [at_least + int((full - at_least) * share) for at_least, full in zip(least, whole, strict=True)]


def _word_width(cell: str) -> int:
    """Returns the width in columns of the longest word."""
    return max(map(width_of, cell.split()), default=0)


def size_text(size: float) -> str:
    """Returns a number of bytes in a fitting unit: ``940 B``, ``25.9 kB``, ``1.2 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"

"""``inspect --browse``: browses topics, segments, batches, fields and bytes in a terminal, by keys.

The tree lists what is there; a batch is read when the cursor is on it. Nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar, NamedTuple, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Footer, Static, Tree
from textual.widgets.tree import TreeNode

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import counted_noun, printable
from kafka_log_lake.pipelines.inspect_batch.batch import Inspection, inspect
from kafka_log_lake.pipelines.inspect_batch.locate import Locator, Stretch
from kafka_log_lake.pipelines.inspect_batch.text import facts, raw_bytes, summary
from kafka_log_lake.pipelines.listing.list_segments import list_segments, no_segments_error
from kafka_log_lake.udfs.storage.byte_source import SourceError, path_of_uri

_BATCHES, _RECORDS = 500, 100  # that are added, or shown, at a time
_LINE, _LINES = 16, 256  # bytes of a line, and lines of a field
_COLUMNS = ("position", "bytes", "field", "value", "meaning")


@dataclass
class _SegmentNode:
    """A segment in the tree. left: its batches that are not in the tree yet."""

    path: str
    locator: Locator | None = None
    left: Iterator[Stretch] = field(default_factory=lambda: iter(()))


class _BatchNode(NamedTuple):
    """A batch, or a damaged range, in the tree."""

    locator: Locator
    stretch: Stretch

    @property
    def is_sound(self) -> bool:
        header = self.stretch.header
        return header is not None and self.locator.is_sound(header)

    @property
    def label(self) -> Text:
        header = self.stretch.header
        if header is None:
            size = counted_noun(self.stretch.end - self.stretch.position, "byte")
            return Text(f"{self.stretch.position}: damage, {size}", "red")
        first = f"{header.offset} to {header.last_offset}" if header.magic > 1 else f"up to {header.offset}"
        text = f"{header.position}: offsets {first}, {header.size} bytes"
        return Text(text) if self.is_sound else Text(f"{text}, damaged", "red")


class Browser(App[None]):
    """A browser of the segments of ``path``: a .log file, a partition folder or a log directory.

    limit: bytes that a batch may expand to.
    """

    CSS = """
    Tree { width: 40%; }
    DataTable { height: 1fr; }
    #batch { height: auto; max-height: 12; }
    #bytes { height: 10; border-top: solid $primary; overflow-y: auto; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [
        ("d", "next_damage", "next damage"),
        ("right_square_bracket", "records(1)", "next records"),
        ("left_square_bracket", "records(-1)", "records before"),
        ("tab", "app.focus_next", "tree, fields"),
        ("q", "quit", "quit"),
    ]

    def __init__(self, path: str, limit: int, include_deleted: bool = False) -> None:
        super().__init__()
        self._path, self._limit = path, limit
        self._logs = _logs_of(path, include_deleted)
        self._batch: _BatchNode | None = None
        self._opened: list[Locator] = []
        self._first = 0  # of the records that are shown
        self.found: Inspection | None = None

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Tree(Text(printable(self._path)), self._logs)
            with Vertical():
                yield Static("arrow keys move, Enter opens a partition, a segment or a batch", id="batch")
                yield DataTable(cursor_type="row")
                yield Static(id="bytes")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*_COLUMNS)
        self.query_one(Tree).root.expand()
        self.query_one(Tree).focus()

    # The tree

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[object]) -> None:
        self._fill(event.node)

    def _fill(self, node: TreeNode[object]) -> None:
        if node.children:
            return
        if isinstance(node.data, dict):  # topics, or the partition folders of one
            for name, under in node.data.items():
                node.add(Text(printable(name)), under)
        elif isinstance(node.data, list):
            for path in node.data:
                node.add(Text(printable(os.path.basename(path))), _SegmentNode(path))
        elif isinstance(node.data, _SegmentNode):
            self._add_batches(node)

    def _add_batches(self, node: TreeNode[object]) -> None:
        """Adds the next batches of a segment to its node."""
        segment = cast("_SegmentNode", node.data)
        try:
            if segment.locator is None:
                segment.locator = Locator(segment.path)
                segment.left = segment.locator.stretches()
                self._opened.append(segment.locator)
            batches = [_BatchNode(segment.locator, stretch) for stretch in islice(segment.left, _BATCHES)]
        except (OSError, SourceError) as error:
            self._say(Text(printable(str(error)), "red"))
            return
        for batch in batches:
            node.add_leaf(batch.label, batch)
        if len(batches) == _BATCHES:
            node.add_leaf(Text("more", "bold"), None)

    def on_tree_node_selected(self, event: Tree.NodeSelected[object]) -> None:
        if event.node.data is None and event.node.parent is not None:  # "more"
            segment = event.node.parent
            event.node.remove()
            self._add_batches(segment)

    def on_tree_node_highlighted(self, event: Tree.NodeHighlighted[object]) -> None:
        if isinstance(event.node.data, _BatchNode):
            self._batch, self._first = event.node.data, 0
            self._show()

    def action_next_damage(self) -> None:
        """Moves to the next batch in the tree, after the cursor, that is not sound."""
        tree = self.query_one(Tree)
        for line in range(tree.cursor_line + 1, tree.last_line + 1):
            node = tree.get_node_at_line(line)
            if node is not None and isinstance(node.data, _BatchNode) and not node.data.is_sound:
                tree.move_cursor(node)
                return
        self.notify("no damage below in what is open")

    # The batch

    def action_records(self, step: int) -> None:
        """Shows the next records of the batch (step 1), or those before (step -1)."""
        first = self._first + step * _RECORDS
        if self.found is not None and 0 <= first < self.found.records:
            self._first = first
            self._show()

    def _show(self) -> None:
        if self._batch is None:
            return
        locator, stretch = self._batch
        window = range(self._first, self._first + _RECORDS)
        try:
            place = locator.place(stretch)
            self.found = inspect(
                locator.source, locator.length, place, lambda number, _: number in window, self._limit
            )
        except (OSError, SourceError) as error:
            self._say(Text(printable(str(error)), "red"))
            return
        lines = [*summary(self.found), *map(Text, facts(self.found))]
        if self.found.left_out:
            shown = (
                f"records {self._first + 1} to {min(window.stop, self.found.records)} of {self.found.records}"
            )
            lines.append(Text(f"{shown}: ] and [ show others", "dim"))
        self._say(Text("\n").join(lines))
        table = self.query_one(DataTable)
        table.clear()
        for field_ in self.found.fields:
            style = "bold" if field_.level == 1 else "bold red" if field_.problem else ""
            name, value = "  " * max(0, field_.level - 1) + field_.name, field_.value
            meaning = f"{field_.meaning} <- {field_.problem}" if field_.problem else field_.meaning
            cells = (str(field_.at), str(field_.size), name, value, meaning)
            table.add_row(*(Text(printable(cell), style) for cell in cells))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if self.found is not None and event.cursor_row < len(self.found.fields):
            field_ = self.found.fields[event.cursor_row]
            shown = hex_lines(raw_bytes(self.found, field_), field_.at)
            self.query_one("#bytes", Static).update(Text("\n".join(shown)))

    def _say(self, text: Text) -> None:
        self.query_one("#batch", Static).update(text)

    def on_unmount(self) -> None:
        for locator in self._opened:
            locator.close()


def hex_lines(raw: bytes, at: int) -> Iterator[str]:
    """Yields bytes as lines: position, hexadecimal digits, ASCII characters."""
    for begin in range(0, min(len(raw), _LINE * _LINES), _LINE):
        part = raw[begin : begin + _LINE]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{at + begin:>12}  {part.hex(' '):<{3 * _LINE}} {shown}"
    if len(raw) > _LINE * _LINES:
        yield f"and {counted_noun(len(raw) - _LINE * _LINES, 'byte')} more"


def _logs_of(path: str, include_deleted: bool) -> object:
    """Returns the data of the tree's root: topic -> partition folder -> segments; of a file, its segment.

    Raises a UserError where there is no segment.
    """
    if os.path.isfile(path):
        return _SegmentNode(path)
    listing = list_segments((path,), include_deleted=include_deleted)
    if not listing.segments.num_rows:
        raise no_segments_error((path,), listing)
    logs: dict[str, dict[str, list[str]]] = {}
    for row in listing.segments.select(["topic", "partition_dir", "segment", "wanted"]).to_pylist():
        file = path_of_uri(row["segment"])
        if not row["wanted"]:
            continue
        if file is None:
            raise UserError("--browse is for local folders: copy the segment first")
        folder = os.path.basename(os.path.dirname(file))
        logs.setdefault(row["topic"], {}).setdefault(folder, []).append(file)
    return logs

"""Makes the pictures of docs/how_kafka_stores.md from real bytes: ``python -m tools.pictures``.

Each picture is drawn from what the decoder, the inspector or ``recover`` read of a bundled log, and lies in
``docs/images``. Nothing in them is typed by hand but words.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any

from kafka_log_lake import connect, decode_segment
from kafka_log_lake.pipelines.cli.program import main as command
from tools.drawing import DIM, INK, WIDTH, Drawing

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "images"
DATA = ROOT / "tests" / "data"
CORPUS = DATA / "corpus"
SEGMENT = "00000000000000000000.log"

# Colours by what a byte, or an offset, is for
PLACE, SIZE, CHECK, KIND, TIME, WRITER, KEY, VALUE, HEADER = (
    *("#cfe2ff", "#e4e7eb", "#ffe08a", "#d9c8f5", "#c9ecd0"),
    *("#b5e3e0", "#ffd1a6", "#a9d6ff", "#f3c6dd"),
)
BAD, GONE, HELD = "#f4a09a", "#f4f5f7", "#fbe3b5"
COLOURS = (
    ("header", HEADER),
    ("length", SIZE),
    ("size", SIZE),
    ("count", SIZE),
    ("crc", CHECK),
    ("magic", KIND),
    ("attributes", KIND),
    ("timestamp", TIME),
    ("epoch", WRITER),
    ("producer", WRITER),
    ("sequence", WRITER),
    ("offset", PLACE),
    ("key", KEY),
    ("value", VALUE),
)
EPOCHS = ("#cfe2ff", "#b5e3e0", "#c9ecd0", "#ffe08a", "#ffd1a6", "#d9c8f5", "#f3c6dd")


def said(*arguments: str) -> str:
    """Runs a command of kafka-log-lake in this process. Returns what it prints."""
    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(StringIO()):
        if code := command(list(arguments)):
            raise RuntimeError(f"{arguments[0]} ended with {code}")
    return printed.getvalue()


def colour_of(field: str) -> str:
    words = field.lower()
    ends = [(words.rfind(word), colour) for word, colour in COLOURS if word in words]
    return max(ends)[1]


# --- Bytes ---

_CELL, _IN_A_ROW = 21, 32


def inspected(file: str, position: int = 0) -> dict[str, Any]:
    """Returns the batch at a position, as ``inspect --json`` prints it."""
    found = said("inspect", str(CORPUS / file / SEGMENT), "--position", str(position), "--json")
    return dict(json.loads(found))


def _bytes(drawing: Drawing, y: float, batch: dict[str, Any]) -> float:
    """Draws each byte in its field's colour, underlined where the checksum covers it. Returns the end."""
    begin = batch["position"]
    fields = [f for f in batch["fields"] if f["size_bytes"] and not f["name"].startswith("record ")]
    covered = batch["checksum"]["begin"]
    for field in fields:
        for i in range(field["size_bytes"]):
            at = field["position"] + i
            row, column = divmod(at - begin, _IN_A_ROW)
            x, top = 24 + column * _CELL, y + row * 26
            drawing.box(x, top, _CELL, 18, colour_of(field["name"]))
            drawing.text(x + _CELL / 2, top + 13, field["bytes"][2 * i : 2 * i + 2], "m", "middle")
            if at >= covered:
                drawing.line(x, top + 20.5, x + _CELL, top + 20.5, INK, 2)
    rows = -(-batch["size_bytes"] // _IN_A_ROW)
    return y + rows * 26


def _fields(drawing: Drawing, y: float, batch: dict[str, Any]) -> float:
    """Names the fields in their order, in columns. Returns where they end."""
    shown = [f for f in batch["fields"] if f["level"] < 3 and not f["name"].startswith("record ")]
    rows = -(-len(shown) // 3)
    for i, field in enumerate(shown):
        column, row = divmod(i, rows)
        x, top = 24 + column * 305, y + row * 19
        drawing.box(x, top - 10, 11, 11, colour_of(field["name"]))
        value = field["value"] if len(field["value"]) <= 24 else field["value"][:23] + "…"
        size = field["size_bytes"]
        drawing.text(x + 18, top, f"{field['name']} = {value}", "s")
        drawing.text(x + 292, top, f"{size} B" if size else "", "s", "end", DIM)
    return y + rows * 19


def formats() -> str:
    """The three formats: a message of magic 0 and 1, a record batch of magic 2."""
    drawing = Drawing("The three message formats, byte by byte")
    y = 34.0
    for title, file, position in (
        ("Magic 0: a message of Kafka 0.8 and 0.9", "v0-single/v0-singles-0", 0),
        ("Magic 1: a message of Kafka 0.10, with a timestamp", "v1-single/v1-singles-0", 0),
        ("Magic 2: a record batch of Kafka 0.11 and later", "v2-txn-abort/tx-aborted-0", 596),
    ):
        batch = inspected(file, position)
        words = f"{batch['size_bytes']} bytes, {batch['records']} record{'s' * (batch['records'] > 1)}"
        drawing.text(24, y, title, "b")
        drawing.text(WIDTH - 24, y, words, "s", "end", DIM)
        y = _fields(drawing, _bytes(drawing, y + 12, batch) + 22, batch) + 26
    drawing.line(24, y - 10, 24 + 3 * _CELL, y - 10, INK, 2)
    drawing.text(24 + 3.5 * _CELL, y - 6, "covered by the checksum", "s", colour=DIM)
    return drawing.svg(y + 14)


def checksum() -> str:
    """What the checksum of a record batch covers: the fields of its header, and its records."""
    drawing = Drawing("What the checksum of a record batch covers")
    batch = inspected("v2-txn-abort/tx-aborted-0", 596)
    header = [f for f in batch["fields"] if f["level"] == 0]
    base, covered = batch["position"], batch["checksum"]["begin"]
    drawing.text(24, 34, "The header of a record batch (magic 2)", "b")
    y = split = 52.0
    for field in header:
        first, last = field["position"] - base, field["position"] - base + field["size_bytes"] - 1
        drawing.box(24, y, 300, 22, colour_of(field["name"]))
        drawing.text(32, y + 15, field["name"], "s")
        drawing.text(316, y + 15, field["value"], "m", "end")
        drawing.text(
            336, y + 15, f"bytes {first} to {last}" if last > first else f"byte {first}", "s", colour=DIM
        )
        y += 22
        split = y if field["position"] < covered else split
    drawing.box(24, y, 300, 44, VALUE)
    drawing.text(32, y + 26, f"{batch['records']} records", "s")
    drawing.text(336, y + 26, f"bytes {last + 1} to {batch['size_bytes'] - 1}", "s", colour=DIM)
    for top, bottom, colour, lines in (
        (
            52,
            split,
            BAD,
            (
                "Not covered: a changed bit here is found only",
                "where neighbours or the file's name contradict it.",
            ),
        ),
        (
            split,
            y + 44,
            "#7cc496",
            (
                f"Covered by {batch['checksum']['name']}: any accidental change is found.",
                "The batch is refused as a whole.",
            ),
        ),
    ):
        drawing.line(470, top + 3, 470, bottom - 3, colour, 6)
        for i, words in enumerate(lines):
            drawing.text(486, (top + bottom) / 2 + i * 18 - 4, words)
    return drawing.svg(y + 62)


# --- Offsets ---

KINDS = {
    "committed": ("data that every consumer gets", VALUE),
    "aborted_transaction": ("data of an aborted transaction", HELD),
    "open_transaction": ("data of a transaction that is open", HEADER),
    "after_open_transaction": ("held back by the open transaction", WRITER),
    "transaction_marker": ("marker of a transaction", CHECK),
    "compaction": ("removed by compaction", GONE),
    "damage": ("lost in damaged bytes", BAD),
}
_SPAN, _OFFSET = 48, 19


def _kinds_of(lake: str, topic: str, partition: int, first: int) -> Iterator[str]:
    """Yields what became of each offset from ``first`` on."""
    database = connect(lake)
    where = f"topic = '{topic}' AND partition = {partition}"
    gaps = database.sql(f"SELECT first_offset, last_offset, cause FROM offset_gaps WHERE {where}").fetchall()
    rows = database.sql(f"SELECT offset FROM records WHERE {where} AND NOT is_control").fetchall()
    data = {offset for (offset,) in rows}
    for offset in range(first, first + _SPAN):
        causes = [cause for low, high, cause in gaps if low <= offset <= high]
        lost = [cause for cause in causes if cause not in ("compaction", "damage") or offset not in data]
        yield lost[0] if lost else "committed"


def offsets(lake: str) -> str:
    """A line of offsets of four logs: what each offset became."""
    drawing = Drawing("What becomes of offsets")
    y = 32.0
    for topic, partition, first, words in (
        ("payments", 0, 560, "transactions: committed and aborted ones, each with its marker"),
        ("payments", 0, 619, "a transaction that nobody ended: what follows it is held back"),
        ("customers", 0, 250, "a compacted log: of each key the last record is left"),
        ("orders", 1, 82, "one changed bit: the whole batch is lost"),
    ):
        drawing.text(24, y, f"{topic}-{partition}", "b")
        drawing.text(150, y, words, "s", colour=DIM)
        kinds = list(_kinds_of(lake, topic, partition, first))
        for i, kind in enumerate(kinds):
            drawing.box(24 + i * _OFFSET, y + 10, _OFFSET, 24, KINDS[kind][1])
        changes = [i for i in range(_SPAN) if i == 0 or kinds[i] != kinds[i - 1]]
        shown = [i for n, i in enumerate(changes) if n == 0 or i - changes[n - 1] > 1]
        for i in shown:
            drawing.text(24 + i * _OFFSET + 1, y + 48, str(first + i), "m", colour=DIM)
        y += 82
    for i, (words, colour) in enumerate(KINDS.values()):
        x, top = 24 + (i % 3) * 300, y + (i // 3) * 22
        drawing.box(x, top - 11, 14, 14, colour)
        drawing.text(x + 22, top, words, "s")
    return drawing.svg(y + 64)


def _batches(folder: Path) -> list[dict[str, Any]]:
    """Returns the batches of a log, each as its first record's columns and its last offset."""
    columns = ["offset", "leader_epoch", "producer_id", "is_transactional", "is_control", "control_type"]
    rows = [
        row
        for file in sorted(folder.glob("*.log"))
        for part in decode_segment(str(file), columns=["batch_position", *columns])
        for row in part.to_pylist()
    ]
    found = []
    for _, group in groupby(rows, key=lambda row: row["batch_position"]):
        batch = list(group)
        found.append({**batch[0], "last": batch[-1]["offset"]})
    return found


def transactions() -> str:
    """The batches of a log by producer, the markers that end transactions, and the last stable offset."""
    drawing = Drawing("Transactions of one log")
    batches = _batches(CORPUS / "v2-txn-open" / "tx-open-0")
    lanes = sorted({batch["producer_id"] for batch in batches})
    markers = {(batch["producer_id"], batch["offset"]) for batch in batches if batch["is_control"]}
    open_ones = {
        batch["offset"]
        for batch in batches
        if batch["is_transactional"]
        and not any(who == batch["producer_id"] and at >= batch["offset"] for who, at in markers)
    }
    stable = min(open_ones)
    width = (WIDTH - 220) / (batches[-1]["last"] + 1)
    drawing.text(24, 34, "tx-open-0: who wrote which offsets", "b")
    for lane, producer in enumerate(lanes):
        y = 64 + lane * 50
        name = f"producer {producer}" if producer >= 0 else "no producer id"
        drawing.text(24, y + 20, name)
        for batch in (one for one in batches if one["producer_id"] == producer):
            x, size = 170 + batch["offset"] * width, (batch["last"] - batch["offset"] + 1) * width
            first, last = batch["offset"], batch["last"]
            colour = CHECK if batch["is_control"] else VALUE if first < stable else WRITER
            colour = HEADER if first in open_ones else colour
            drawing.box(x, y, size, 30, colour)
            span = f"{first} to {last}" if last > first else str(first)
            drawing.text(x + size / 2, y + 20, batch["control_type"] or span, "m", "middle")
    bottom = 64 + len(lanes) * 50
    x = 170 + stable * width
    drawing.line(x, 50, x, bottom + 8, "#b3261e", 2)
    drawing.text(
        x + 6,
        bottom + 8,
        f"last stable offset {stable}: consumers with read_committed stop here",
        colour="#b3261e",
    )
    legend = (
        (VALUE, "data that every consumer gets"),
        (CHECK, "marker"),
        (HEADER, "data without a marker"),
        (WRITER, "held back by it"),
    )
    for i, (colour, words) in enumerate(legend):
        drawing.box(24 + i * 235, bottom + 26, 14, 14, colour)
        drawing.text(46 + i * 235, bottom + 38, words, "s")
    return drawing.svg(bottom + 58)


# --- Copies ---


def copies(folder: Path) -> str:
    """Three copies of one partition after two unclean elections, by leader epoch, and the true log."""
    drawing = Drawing("Three copies of a partition, and the log that recover makes of them")
    with tarfile.open(DATA / "replicas" / "copies.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    disks = sorted((folder / "s04b-unclean-twice").glob("broker-*"))
    sources = [word for disk in disks for word in ("--source", f"{disk.name}={disk}")]
    lake = str(folder / "recovered")
    said("recover", *sources, "--lake", lake, "--topics", "audit-headers", "--cores", "1")
    losing = connect(lake).sql("SELECT copy, first_offset, last_offset FROM divergence").fetchall()
    rows = {disk.name: _batches(next(disk.rglob("audit-headers-0"))) for disk in disks}
    healed = connect(lake).sql("SELECT base_offset, last_offset, leader_epoch FROM healed_batches ORDER BY 1")
    rows["true log"] = [
        {"offset": first, "last": last, "leader_epoch": epoch} for first, last, epoch in healed.fetchall()
    ]
    epochs = sorted({batch["leader_epoch"] for batches in rows.values() for batch in batches})
    width = (WIDTH - 160) / (max(batches[-1]["last"] for batches in rows.values()) + 1)
    drawing.text(24, 34, "audit-headers-0: offsets by the leader epoch that wrote them", "b")
    y = 56.0
    for name, batches in rows.items():
        drawing.text(24, y + 20, name, "b" if name == "true log" else "")
        for epoch, group in groupby(batches, key=lambda one: one["leader_epoch"]):
            of_epoch = list(group)
            first, last = of_epoch[0]["offset"], of_epoch[-1]["last"]
            x, size = 120 + first * width, (last - first + 1) * width
            drawing.box(x, y, size, 30, EPOCHS[epochs.index(epoch)])
            drawing.text(x + size / 2, y + 13, f"epoch {epoch}", "s", "middle")
            drawing.text(x + size / 2, y + 26, f"{first} to {last}", "m", "middle")
        for _, first, last in (one for one in losing if one[0] == name):
            x, size = 120 + first * width, (last - first + 1) * width
            drawing.line(x, y + 33, x + size, y + 33, "#b3261e", 4)
        y += 48
    drawing.line(120, y + 6, 150, y + 6, "#b3261e", 4)
    drawing.text(158, y + 10, "on the losing side: recover lists each of these records", "s")
    return drawing.svg(y + 30)


def commits(lake: str) -> str:
    """The commits of one run of decode, in their order."""
    drawing = Drawing("The commits of a run")
    entries = []
    for table in sorted(Path(lake).glob("*/_delta_log")):
        for log in sorted(table.glob("*.json")):
            info = next(
                line for line in map(json.loads, log.read_text().splitlines()) if "commitInfo" in line
            )
            metrics = json.loads(info["commitInfo"].get("userMetadata") or "{}").get("metrics", {})
            if added := metrics.get("rows_added") or metrics.get("segments"):
                entries.append((log.stat().st_mtime_ns, table.parent.name, added))
    drawing.text(24, 34, "decode over the shop's logs: one commit a table, the ledger last", "b")
    drawing.box(24, 56, 150, 60, GONE)
    drawing.text(99, 82, "_runs", "m", "middle")
    drawing.text(99, 102, "what will be committed", "s", "middle")
    step = (WIDTH - 48 - 150) / len(entries)
    for i, (_, name, added) in enumerate(sorted(entries)):
        x = 174 + i * step
        drawing.line(x, 86, x + 12, 86, INK, 2)
        drawing.box(x + 12, 56, step - 12, 60, CHECK if name == "segments" else VALUE)
        drawing.text(x + 12 + (step - 12) / 2, 82, name, "m", "middle")
        drawing.text(x + 12 + (step - 12) / 2, 102, f"{added:,} row{'s' * (added != 1)}", "s", "middle")
    drawing.text(
        24,
        144,
        "Killed before the ledger: readers see the state before. The next run finishes these commits.",
        "s",
    )
    drawing.text(24, 164, "After the ledger: readers see all tables of the run at once.", "s")
    return drawing.svg(184)


def pictures() -> dict[str, str]:
    """Returns the pictures by their file's name."""
    with tempfile.TemporaryDirectory() as scratch, chdir(scratch):
        lake = str(Path(scratch) / "lake")
        said("decode", "--source", str(DATA / "shop"), "--lake", lake, "--no-typed", "--cores", "1")
        of_a_lake: dict[str, Callable[[str], str]] = {"offsets": offsets, "commits": commits}
        made = {name: draw(lake) for name, draw in of_a_lake.items()}
        made["copies"] = copies(Path(scratch))
    made |= {"formats": formats(), "checksum": checksum(), "transactions": transactions()}
    return {f"{name}.svg": text for name, text in made.items()}


def main() -> None:
    for name, text in pictures().items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name)


if __name__ == "__main__":
    main()

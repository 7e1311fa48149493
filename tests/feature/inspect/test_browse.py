"""``inspect --browse``: what a person sees who walks with the keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static, Tree

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.inspect_batch import command as inspect_batch
from kafka_log_lake.pipelines.inspect_batch.browse import Browser
from tests.support.segment_maker import SNAPPY, Batch, Record

LIMIT = 1 << 20
NAME = f"{0:020d}.log"


def put(folder: Path, *batches: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_bytes(b"".join(batches))
    return path


def walk(path: Path, steps: Callable[[Pilot[Any]], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Browser(str(path), LIMIT).run_test(size=(140, 50)) as pilot:
            await pilot.pause()
            await steps(pilot)

    asyncio.run(run())


def tree_of(pilot: Pilot[Any]) -> list[str]:
    tree = pilot.app.query_one(Tree)
    found = [tree.get_node_at_line(line) for line in range(tree.last_line + 1)]
    return [str(node.label) for node in found if node is not None]


def said(pilot: Pilot[Any], name: str) -> str:
    return str(pilot.app.query_one(f"#{name}", Static).content)


def rows_of(pilot: Pilot[Any]) -> list[tuple[str, str]]:
    """Name and value of each field that is shown."""
    table = pilot.app.query_one(DataTable)
    rows = [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]
    return [(row[2].strip(), row[3]) for row in rows]


def fields_of(pilot: Pilot[Any]) -> dict[str, str]:
    return dict(rows_of(pilot))


async def press(pilot: Pilot[Any], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


def test_from_topic_to_byte(tmp_path: Path) -> None:
    put(tmp_path / "orders-0", Batch((Record(b"k", b"v\x1b[2J"),)).encode())
    put(tmp_path / "orders-1", Batch((Record(b"one", b"1"),), base_offset=7, codec=SNAPPY).encode())

    async def steps(pilot: Pilot[Any]) -> None:
        assert tree_of(pilot)[1:] == ["orders"]
        await press(pilot, "down", "enter")
        assert tree_of(pilot)[2:] == ["orders-0", "orders-1"]
        await press(pilot, "down", "enter", "down", "enter", "down")
        size = (tmp_path / "orders-0" / NAME).stat().st_size
        assert tree_of(pilot)[3:5] == [NAME, f"0: offsets 0 to 0, {size} bytes"]
        assert "record batch of magic 2 at position 0" in said(pilot, "batch")
        assert fields_of(pilot)["value"] == "76 1b 5b 32 4a"
        await press(pilot, "tab", *["down"] * [name for name, _ in rows_of(pilot)].index("value"))
        assert "76 1b 5b 32 4a" in said(pilot, "bytes")
        assert "v.[2J" in said(pilot, "bytes")
        await press(pilot, "q")

    walk(tmp_path, steps)


def test_the_next_damage_is_a_key_away(tmp_path: Path) -> None:
    good, wrong = (Batch((Record(value=b"x" * 50),), base_offset=i).encode() for i in (0, 5))
    damaged = bytearray(wrong)
    damaged[80] ^= 4
    path = put(tmp_path, good * 5, bytes(damaged), good)

    async def steps(pilot: Pilot[Any]) -> None:
        await press(pilot, "d")
        assert f"position {5 * len(good)}" in said(pilot, "batch")
        assert "bit 2" in said(pilot, "batch")

    walk(path, steps)


def test_all_records_of_a_batch_can_be_shown(tmp_path: Path) -> None:
    path = put(tmp_path, Batch([Record(key=b"k%d" % i) for i in range(250)]).encode())

    async def steps(pilot: Pilot[Any]) -> None:
        await press(pilot, "down")
        assert "records 1 to 100 of 250" in said(pilot, "batch")
        await press(pilot, "right_square_bracket", "right_square_bracket", "right_square_bracket")
        assert "records 201 to 250 of 250" in said(pilot, "batch")
        assert fields_of(pilot)["key"] == '"k249"'
        await press(pilot, "left_square_bracket")
        assert fields_of(pilot)["key"] == '"k199"'

    walk(path, steps)


def test_many_batches_come_in_parts(tmp_path: Path) -> None:
    one = Batch((Record(value=b"v"),)).encode()
    path = put(tmp_path, one * 700)

    async def steps(pilot: Pilot[Any]) -> None:
        assert len(tree_of(pilot)) == 502
        await press(pilot, "end", "enter")
        assert len(tree_of(pilot)) == 701

    walk(path, steps)


def test_what_can_not_be_browsed_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no segment"):
        Browser(str(tmp_path), LIMIT)
    assert inspect_batch.main([str(put(tmp_path / "a-0", b"")), "--browse"]) == 2
    assert capsys.readouterr().err == "error: --browse needs a terminal\n"

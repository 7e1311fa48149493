"""A segment of pieces of other files: the bytes that it stands for, wherever reading begins and ends."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from kafka_log_lake.udfs.storage.byte_source import SourceChanged, SourceUnreadable
from kafka_log_lake.udfs.storage.opening import open_source
from kafka_log_lake.udfs.storage.pieces import Piece, pieces_text


def listed(folder: Path, *pieces: Piece) -> str:
    (folder / "0.log.pieces").write_text(pieces_text(pieces))
    return f"file://{folder}/0.log.pieces"


def read(uri: str, position: int, size: int) -> bytes:
    source, view = open_source(uri), np.zeros(size, dtype=np.uint8)
    try:
        return view[: source.read_into(position, view)].tobytes()
    finally:
        source.close()


def test_every_range_holds_the_bytes_of_the_pieces(tmp_path: Path) -> None:
    draw = random.Random(20)
    contents = [draw.randbytes(draw.randrange(1, 400)) for _ in range(7)]
    for number, content in enumerate(contents):
        (tmp_path / f"é {number}.log").write_bytes(content)
    pieces, whole = [], b""
    for _ in range(60):
        number = draw.randrange(len(contents))
        position = draw.randrange(len(contents[number]))
        size = draw.randrange(1, len(contents[number]) - position + 1)
        head = draw.randbytes(min(size, 16)) if draw.random() < 0.3 else b""
        pieces.append(Piece(f"file://{tmp_path}/é {number}.log", position, size, head))
        whole += head + contents[number][position + len(head) : position + size]
    uri = listed(tmp_path, *pieces)
    assert open_source(uri).size() == len(whole)
    for _ in range(500):
        position, size = draw.randrange(len(whole) + 5), draw.randrange(300)
        assert read(uri, position, size) == whole[position : position + size], (position, size)


def test_a_copy_that_has_changed_since_is_no_end_of_the_segment(tmp_path: Path) -> None:
    one, two = tmp_path / "one.log", tmp_path / "two.log"
    one.write_bytes(b"abc")
    two.write_bytes(b"def")
    uri = listed(tmp_path, Piece(f"file://{one}", 0, 3), Piece(f"file://{two}", 1, 2))
    assert read(uri, 0, 9) == b"abcef"
    one.write_bytes(b"ab")
    with pytest.raises(SourceChanged, match=r"one\.log ends at byte 2"):
        read(uri, 0, 9)
    one.unlink()
    with pytest.raises(SourceChanged, match="No such file"):
        read(uri, 0, 9)
    assert read(uri, 3, 9) == b"ef"


@pytest.mark.parametrize("text", ["", "[]", '{"files": [], "pieces": [[0, 0, 1, null]]}', '{"files": []}'])
def test_a_list_that_cannot_be_read_says_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "0.log.pieces"
    path.write_text(text)
    with pytest.raises(SourceUnreadable, match="its list of pieces can't be read"):
        open_source(str(path))
    path.unlink()
    with pytest.raises(SourceChanged, match="its list of pieces is gone"):
        open_source(str(path))

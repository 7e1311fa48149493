"""Where the data source cuts a segment: where a batch begins, as its headers and its index tell."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from kafka_log_lake.pipelines.dataframes.slices import boundaries
from kafka_log_lake.pipelines.plan.headers import headers, read_index
from kafka_log_lake.udfs.storage.byte_source import FileSource
from tests.support import corpus
from tests.support.logs import batch, put


def _found(path: Path, index: np.ndarray, cuts: list[int]) -> list[int]:
    source = FileSource(str(path))
    try:
        return boundaries(source, index, int(path.stem), path.stat().st_size, cuts)
    finally:
        source.close()


def _indexed(folder: Path) -> tuple[Path, list[int]]:
    """A segment of 100 batches with an index entry for every tenth, and where its batches begin."""
    made = [batch(1000 + 3 * i, 3) for i in range(100)]
    path = put(folder, 1000, *made)
    begins = [sum(map(len, made[:i])) for i in range(100)]
    entries = [(3 * i + 2, begins[i]) for i in range(10, 100, 10)]
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *e) for e in entries) + bytes(80))
    return path, begins


def test_boundaries_are_the_first_batches_at_or_past_each_cut(tmp_path: Path) -> None:
    path, begins = _indexed(tmp_path / "a-0")
    index, cuts = read_index(f"file://{path}"), [begins[10], begins[33] + 1, begins[57] - 1, begins[99]]
    expected = [begins[10], begins[34], begins[57], begins[99]]
    assert len(index) == 9
    assert _found(path, index, cuts) == _found(path, index[:0], cuts) == expected


def test_an_index_saves_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "a-0", 0, *[batch(i, 1, text="x" * 5000) for i in range(100)])
    begins = [h.position for h in headers(FileSource(str(path)), 0, path.stat().st_size)]
    index = np.array([(i, begins[i]) for i in range(1, 100)])
    positions: list[int] = []
    read_into = FileSource.read_into

    def counted(self: FileSource, position: int, view: np.ndarray) -> int:
        positions.append(position)
        return read_into(self, position, view)

    monkeypatch.setattr(FileSource, "read_into", counted)
    assert _found(path, index, [begins[90]]) == [begins[90]]
    by_index = len(positions)
    assert _found(path, index[:0], [begins[90]]) == [begins[90]]
    assert by_index < 4 < 90 < len(positions) - by_index


@pytest.mark.parametrize("change", ["positions", "offsets", "other segment", "cut"])
def test_a_wrong_index_is_not_believed(tmp_path: Path, change: str) -> None:
    path, begins = _indexed(tmp_path / "a-0")
    index = read_index(f"file://{path}")
    if change == "positions":
        index[:, 1] += 1
    elif change == "offsets":
        index[:, 0] += 30
    elif change == "other segment":
        index[:, 1] = np.linspace(100, begins[99], len(index)).astype(int)
    else:
        path.with_suffix(".index").write_bytes(b"\x00\x01\x02")
        index = read_index(f"file://{path}")
    assert _found(path, index, [begins[41] + 1, begins[70]]) == [begins[42], begins[70]]


def test_after_a_header_that_is_none_there_is_no_boundary(tmp_path: Path) -> None:
    path, begins = _indexed(tmp_path / "a-0")
    data = bytearray(path.read_bytes())
    data[begins[50] + 16] = 9  # its magic
    path.write_bytes(data)
    path.with_suffix(".index").unlink()
    index = read_index(f"file://{path}")
    assert _found(path, index, [begins[20], begins[60], begins[80]]) == [begins[20]]


@pytest.mark.parametrize("path", corpus.segments()[::7], ids=corpus.identity)
def test_headers_of_real_segments_are_those_of_kafkas_library(path: Path) -> None:
    found = list(headers(FileSource(str(path)), 0, path.stat().st_size))
    expected = corpus.oracle_batches(path)
    assert [(h.position, h.size, h.magic) for h in found] == [
        (line["position"], line["sizeInBytes"], line["magic"]) for line in expected
    ]
    assert [h.timestamp for h in found if h.magic] == [
        line["maxTimestamp"] for line in expected if line["magic"]
    ]

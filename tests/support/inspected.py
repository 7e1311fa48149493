"""Runs ``inspect`` over files of a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_log_lake.pipelines.inspect_batch import command as inspect_batch
from kafka_log_lake.pipelines.inspect_batch.batch import Inspection, inspect
from kafka_log_lake.pipelines.inspect_batch.locate import Locator

SEGMENT = f"{0:020d}.log"


def put(folder: Path, content: bytes, name: str = SEGMENT) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def look(
    path: Path, position: int | None = None, offset: int | None = None, records: int = 1000
) -> Inspection:
    """The batch at a position or with an offset; the first damage without both."""
    locator = Locator(str(path))
    try:
        place = locator.first_damage()
        if position is not None:
            place = locator.at_position(position)
        elif offset is not None:
            place = locator.at_offset(offset)
        return inspect(locator.source, locator.length, place, lambda number, _: number < records)
    finally:
        locator.close()


def batches(path: Path) -> list[tuple[int, int]]:
    """Position and end of every batch."""
    locator = Locator(str(path))
    try:
        return [(one.position, one.end) for one in locator.stretches() if one.header is not None]
    finally:
        locator.close()


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = inspect_batch.main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    return code, out, err

"""Questions to views over logs that a test makes, and batches for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.answers import answer
from tests.support.logs import batch
from tests.support.segment_maker import Batch, Record

Rows = list[dict[str, Any]]
Ask = Callable[[str], Rows]
NOW = 1_700_000_000_000  # 2023-11-14
HOUR = 3_600_000


def rows_of(lines: Any) -> Rows:
    return [json.loads(line) for line in lines]


def asking(lake: str) -> Ask:
    """What answers statements about a lake."""
    return lambda statement: rows_of(answer(lake, statement))


def sizes(partition_dir: Path) -> list[int]:
    """Bytes of the segments of a log, in their order."""
    return [path.stat().st_size for path in sorted(partition_dir.glob("*.log"))]


def written(base: int, at: int, *after: int, **values: Any) -> bytes:
    """A batch whose first record has the timestamp at, the others at + after."""
    records = tuple(Record(key=b"k", value=b"v", timestamp_delta=delta) for delta in (0, *after))
    return Batch(records=records, base_offset=base, base_timestamp=at, **values).encode()


def sent(base: int, sequence: int, records: int = 2, epoch: int = 0) -> bytes:
    return batch(base, records, producer_id=9, producer_epoch=epoch, base_sequence=sequence)

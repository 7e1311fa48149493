"""Decodes folders of logs into lakes with typed tables, and reads these."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches
from kafka_log_lake.pipelines.decode_values import command as decode_values


def decode(root: Path, *options: str) -> None:
    logs, lake = str(root / "logs"), str(root / "lake")
    assert decode_batches.main(["--source", logs, "--lake", lake, "--no-typed", *options]) == 0


def typed(root: Path, *options: str) -> int:
    return decode_values.main(["--lake", str(root / "lake"), *options])


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(root / "lake" / table).to_pyarrow_table().to_pylist()
    return found


def versions(root: Path, topics: Iterable[str]) -> dict[str, int]:
    paths = [*(f"typed/{topic}" for topic in topics), "value_errors", "schemas"]
    return {path: DeltaTable(root / "lake" / path).version() for path in paths}

"""Swap files are put in place as Kafka's own loader of logs does it."""

from __future__ import annotations

from pathlib import Path

from kafka_log_lake.pipelines.listing.list_segments import list_segments
from kafka_log_lake.pipelines.plan.headers import end_of_batches
from tests.kafka.loader import load
from tests.support.swap_cases import CASES


def test_a_folder_is_listed_as_kafka_loads_it(tmp_path: Path) -> None:
    folders = [tmp_path / f"{case.__name__}-0" for case in CASES]
    for case, folder in zip(CASES, folders, strict=True):
        case(folder)
    listed: dict[str, dict[str, bytes]] = {}
    for row in list_segments(str(tmp_path), read_end=end_of_batches).segments.to_pylist():
        content = Path((row["file"] or row["segment"]).removeprefix("file://")).read_bytes()
        listed.setdefault(row["topic"], {})[row["segment"].rpartition("/")[2]] = content
    assert len(load(folders)) == len(folders)
    assert listed == {
        folder.name[:-2]: {path.name: path.read_bytes() for path in folder.glob("*.log")}
        for folder in folders
    }

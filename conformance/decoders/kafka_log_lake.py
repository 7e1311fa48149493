"""This project's decoder: python -m conformance.decoders.kafka_log_lake."""

from __future__ import annotations

import tempfile
from pathlib import Path

from conformance.decoders.lines import Records, answer, record
from kafka_log_lake import decode_segment

COLUMNS = ["offset", "timestamp_ms", "key", "value", "headers", "control_type"]


def decode(data: bytes) -> Records:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{0:020d}.log")
        path.write_bytes(data)
        damage: list[object] = []
        for batch in decode_segment(str(path), columns=COLUMNS, on_damage=damage.append):
            for row in batch.to_pylist():
                if row["control_type"] is None:
                    headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
                    yield record(row["offset"], row["timestamp_ms"], row["key"], row["value"], headers)
        if damage:
            raise ValueError(str(damage[0]))


if __name__ == "__main__":
    answer(decode)

"""aiokafka's and kafka-python's decoders: python -m conformance.decoders.python_records aiokafka|kafka.

Both have the same classes. They have to be importable.
"""

from __future__ import annotations

import sys
from importlib import import_module

from conformance.decoders.lines import Records, answer, record


def main() -> None:
    memory_records = import_module(f"{sys.argv[1]}.record.memory_records").MemoryRecords

    def decode(data: bytes) -> Records:
        batches = memory_records(data)
        while batches.has_next():
            batch = batches.next_batch()
            if not batch.validate_crc():
                raise ValueError("the checksum is wrong")
            if getattr(batch, "is_control_batch", False):
                continue
            for one in list(batch):
                timestamp = -1 if one.timestamp is None else one.timestamp
                yield record(one.offset, timestamp, one.key, one.value, one.headers)

    answer(decode)


if __name__ == "__main__":
    main()

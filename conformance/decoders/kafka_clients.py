"""Kafka's own library, kafka-clients: python -m conformance.decoders.kafka_clients."""

from __future__ import annotations

import base64
import json
import sys

from tests.kafka.reader import read_segments
from tools.conformance import expected


def main() -> None:
    asked = [json.loads(line) for line in sys.stdin]
    read = read_segments(base64.b64decode(one["bytes"]) for one in asked)
    for one, batches in zip(asked, read, strict=True):
        found = expected(batches)
        error = "refused" if found["is_refused"] else None
        print(json.dumps({"name": one["name"], "records": found["records"], "error": error}))


if __name__ == "__main__":
    main()

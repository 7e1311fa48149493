"""Answers the runner's lines by a function that decodes the bytes of a log."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

Records = Iterator[dict[str, Any]]


def encoded(data: Any) -> str | None:
    return None if data is None else base64.b64encode(bytes(data)).decode()


def record(offset: int, timestamp: int, key: Any, value: Any, headers: Any) -> dict[str, Any]:
    """Returns a record as the runner compares it."""
    named = [[name, encoded(content)] for name, content in headers or ()]
    return {
        "offset": offset,
        "timestamp": timestamp,
        "key": encoded(key),
        "value": encoded(value),
        "headers": named,
    }


def answer(decode: Callable[[bytes], Records]) -> None:
    """Answers each line of standard input. decode: yields records, and raises where a batch is refused."""
    for line in sys.stdin:
        asked = json.loads(line)
        records: list[dict[str, Any]] = []
        error = None
        try:
            records.extend(decode(base64.b64decode(asked["bytes"])))  # keeps those before an error
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        print(json.dumps({"name": asked["name"], "records": records, "error": error}), flush=True)

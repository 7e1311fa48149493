"""Holds a decoder of Kafka's record batches to the vectors: python conformance/run.py COMMAND ...

The command gets a JSON object a line on standard input, {"name": ..., "bytes": Base64 of a log}, and answers
each with a line {"name": ..., "records": [...], "error": null or a text}. A record is {"offset", "timestamp",
"key", "value", "headers"}: bytes in Base64, headers as [name, value]. Control records are left out. A batch
that is refused gives "error", and none of its records. It needs Python alone.

Exit code 0: all vectors are read as Kafka's library reads them; 1: some are not.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).resolve().parent / "vectors"


def load() -> dict[str, dict[str, Any]]:
    """Returns the vectors by name, each with its ``bytes``."""
    found = {}
    for path in sorted(VECTORS.glob("*.json")):
        vector = json.loads(path.read_text())
        found[vector["name"]] = vector | {"bytes": path.with_suffix(".bin").read_bytes()}
    return found


def answers(command: Sequence[str], vectors: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns what a decoder answers, by the name of the vector."""
    lines = [
        json.dumps({"name": name, "bytes": base64.b64encode(vector["bytes"]).decode()})
        for name, vector in vectors.items()
    ]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, timeout=600, check=False
    )
    given = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {answer["name"]: answer for answer in given}


def difference(vector: dict[str, Any], answer: dict[str, Any] | None) -> str:
    """Returns what is wrong with an answer in words; "" for nothing."""
    if answer is None:
        return "no answer"
    error, records, wanted = answer.get("error"), answer.get("records", []), vector["records"]
    if vector["is_refused"] and not error:
        return "damage is not refused"
    if error and not vector["is_refused"]:
        return f"refused: {error}"
    if len(records) != len(wanted):
        return f"{len(records)} records, expected {len(wanted)}"
    for mine, theirs in zip(records, wanted, strict=True):
        for field, value in theirs.items():
            if mine.get(field) != value:
                return f"{field} of offset {theirs['offset']}: {mine.get(field)!r}, expected {value!r}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Holds a decoder of Kafka's record batches to the vectors.")
    parser.add_argument("--json", action="store_true", help="print an object a vector")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the decoder")
    given = parser.parse_args(arguments)
    vectors = load()
    answered = answers(given.command, vectors)
    wrong = 0
    for name, vector in vectors.items():
        found = difference(vector, answered.get(name))
        wrong += bool(found)
        line = json.dumps({"name": name, "difference": found or None}) if given.json else ""
        print(line or f"{'differs' if found else 'same   '}  {name:30} {found}".rstrip())
    if not given.json:
        print(f"{len(vectors) - wrong} of {len(vectors)} vectors are read as Kafka's library reads them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

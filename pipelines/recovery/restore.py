"""Files and commands that write lost records again: of a losing history, committed, and not in the true log.

``kafka-console-producer.sh`` reads a record a line, as text; records that are no such line are listed apart.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import duckdb

from pipelines.recovery.quorum import safe_name

_NULL = "<null>"
_OPTIONS = f"--property parse.headers=true --property parse.key=true --property null.marker='{_NULL}'"
# What a line holds for what is written again, what a newer value of its key follows, and what is no line
AGAIN, OLDER, BINARY = "txt", "older.txt", "jsonl"
# One row a record, though several copies have it
_QUERY = """
SELECT topic, partition, any_value(true_offset) IS NOT NULL AS is_older, "offset",
  any_value(headers) AS headers, any_value(key) AS key, any_value(value) AS value
FROM lost_records
WHERE why = 'diverged' AND control_type IS NULL AND coalesce(transaction, 'committed') = 'committed'
  AND also_in_truth IS NULL
GROUP BY topic, partition, "offset", leader_epoch
ORDER BY topic, partition, "offset", leader_epoch
"""


def write_restore(database: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Writes ``restore.sh``, and ``restore/<topic>-<partition>.txt`` with its records. Raises OSError.

    database: with the table lost_records.
    """
    place = folder / "restore"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    counts: dict[tuple[str, str], int] = {}
    rows = database.execute(_QUERY)
    names = [one[0] for one in rows.description or []]
    with ExitStack() as stack:
        files: dict[str, TextIO] = {}
        while some := rows.fetchmany(1000):
            for row in (dict(zip(names, one, strict=True)) for one in some):
                line = _line(row)
                kind = BINARY if line is None else OLDER if row["is_older"] else AGAIN
                name = f"{row['topic']}-{row['partition']}.{kind}"
                if name not in files:
                    files[name] = stack.enter_context((place / name).open("w", encoding="utf-8", newline=""))
                files[name].write(f"{_json(row) if line is None else line}\n")
                counts[row["topic"], name] = counts.get((row["topic"], name), 0) + 1
    (folder / "restore.sh").write_text("".join(f"{line}\n" for line in _script(counts)), encoding="utf-8")


def _script(counts: dict[tuple[str, str], int]) -> Iterator[str]:
    yield from (
        "#!/bin/sh",
        "# usage: sh restore.sh HOST:PORT, in this folder, with Kafka's bin in PATH",
        "set -e",
    )
    for (topic, name), count in sorted(counts.items()):
        command = (
            f'kafka-console-producer.sh --bootstrap-server "$1" --topic {safe_name(topic)} {_OPTIONS} '
            f"< {safe_name(f'restore/{name}')}"
        )
        if name.endswith(f".{OLDER}"):
            yield f"# {count} records that would replace a newer value of their key in the true log:"
            yield f"# {command}"
        elif name.endswith(f".{BINARY}"):
            yield f"# {count} records that are no line of text are in restore/{name}, as Base64"
        else:
            yield f"# {count} records"
            yield command


def _line(row: dict[str, Any]) -> str | None:
    """A record as ``LineMessageReader`` reads it: headers, key, value; None where it can't."""
    try:
        headers = [(one["key"], _text(one["value"], "\t,")) for one in row["headers"] or ()]
        key, value = _text(row["key"], "\t"), _text(row["value"], "")
    except ValueError:
        return None
    if any(set(name) & set("\t\r\n,:") or name == _NULL for name, _ in headers):
        return None
    listed = ",".join(f"{name}:{text}" for name, text in headers)
    return f"{listed or _NULL}\t{key}\t{value}"


def _text(data: bytes | None, separators: str) -> str:
    """Raises ValueError for bytes that are no text, or that hold a separator or the word for null."""
    if data is None:
        return _NULL
    text = data.decode()
    if text == _NULL or set(text) & {"\r", "\n", *separators}:
        raise ValueError
    return text


def _json(row: dict[str, Any]) -> str:
    def encoded(data: bytes | None) -> str | None:
        return None if data is None else b64encode(data).decode()

    headers = [[one["key"], encoded(one["value"])] for one in row["headers"] or ()]
    own = {"offset": row["offset"], "key": encoded(row["key"]), "value": encoded(row["value"])}
    return json.dumps({**own, "headers": headers})

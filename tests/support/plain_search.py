"""Searches the records of logs in a plain loop: the reference for ``find``.

Records come from the reference decoder, which shares no code with the fast one. A condition is (name, value),
as the command takes it; the loop evaluates it on one record at a time, with Python's own means.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import reference_decoder
from tests.support.corpus import topic_partition

Condition = tuple[str, Any]
LIMIT = 8 << 20


@dataclass
class PlainLog:
    """The records of one partition folder in their order, and its damaged ranges (segment, position)."""

    folder: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[tuple[str, int]] = field(default_factory=list)


def read_log(folder: Path) -> PlainLog:
    """Reads all records of the segments in a folder, each with topic, partition, segment and outcome."""
    log = PlainLog(folder)
    segments = sorted(folder.glob("*.log"))
    for at, path in enumerate(segments):
        decoded = reference_decoder.decode(
            path.read_bytes(), has_successor=any(p.stat().st_size for p in segments[at + 1 :]), limit=LIMIT
        )
        topic, partition = topic_partition(path)
        place = {"topic": topic, "partition": partition, "segment": f"file://{path.resolve()}"}
        log.records += [record | place for record in decoded.records]
        log.damaged += [(str(place["segment"]), row["position"]) for row in decoded.quarantine]
    for record in log.records:
        record["outcome"], record["is_over"] = _outcome(record, log.records)
    open_ = [r["offset"] for r in log.records if r["outcome"] == "open" and not r["is_over"]]
    for record in log.records:
        is_below = not open_ or record["offset"] < min(open_)
        is_kept = record["outcome"] in (None, "committed") and not record["is_control"]
        record["is_committed"] = is_below and is_kept
    return log


def _outcome(record: dict[str, Any], records: list[dict[str, Any]]) -> tuple[str | None, bool]:
    """Returns the outcome of a record's transaction, and whether a higher epoch of its producer ended it."""
    if not record["is_transactional"] or record["is_control"]:
        return None, False
    own = [
        r
        for r in records
        if r["producer_id"] == record["producer_id"]
        and r["is_transactional"]
        and (not r["is_control"] or r["control_type"] in ("ABORT", "COMMIT"))
    ]
    own.sort(key=lambda r: r["offset"])
    markers = [r for r in own if r["is_control"]]
    begin = max((m["offset"] for m in markers if m["offset"] < record["offset"]), default=-1)
    end = next((m for m in markers if m["offset"] > record["offset"]), None)
    between = [
        r
        for r in own
        if not r["is_control"] and begin < r["offset"] and (end is None or r["offset"] < end["offset"])
    ]
    if any(r["producer_epoch"] > record["producer_epoch"] for r in between):
        return "open", True
    return (
        "open" if end is None else {"COMMIT": "committed", "ABORT": "aborted"}[end["control_type"]]
    ), False


def holds(condition: Condition, record: dict[str, Any]) -> bool:
    """Returns whether one condition holds for one record."""
    name, wanted = condition
    if name.startswith("not_"):
        return not holds((name.removeprefix("not_"), wanted), record)
    key, value = record["key"], record["value"]
    match name:
        case "key":
            return key in wanted
        case "key_prefix":
            return key is not None and key.startswith(wanted)
        case "key_regex":
            return key is not None and _found(wanted, key)
        case "value_contains":
            return value is not None and wanted in value
        case "value_regex":
            return value is not None and _found(wanted, value)
        case "json":
            return value is not None and _has_field(wanted, value)
        case "header":
            name, equals, text = wanted.partition("=")
            pairs = record["headers"] or ()
            return any(n == name and (not equals or v == text.encode()) for n, v in pairs)
        case "tombstones":
            return value is None
        case "partition":
            return record["partition"] == wanted
        case "offset":
            low, colon, high = wanted.partition(":")
            if not colon:
                return record["offset"] == int(low)
            return (not low or record["offset"] >= int(low)) and (not high or record["offset"] < int(high))
        case "since":
            return record["timestamp_ms"] >= wanted
        case "until":
            return record["timestamp_ms"] < wanted
        case "producer":
            return record["producer_id"] == wanted
        case "transaction":
            return record["outcome"] == wanted
    raise AssertionError(name)


def _found(pattern: str, content: bytes) -> bool:
    try:
        return re.search(pattern, content.decode()) is not None
    except UnicodeDecodeError:
        return re.search(pattern, content.decode("latin-1")) is not None


def _has_field(wanted: str, value: bytes) -> bool:
    path, _, text = wanted.partition("=")
    try:
        node = json.loads(value)
    except ValueError:
        return False
    for name in path.split("."):
        if not isinstance(node, dict) or name not in node:
            return False
        node = node[name]
    return text == node or text == json.dumps(node)


def some_conditions(chance: random.Random, records: list[dict[str, Any]]) -> list[Condition]:
    """Returns one to three conditions, made from existing records, so that most find something."""
    found = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        record = chance.choice(records)
        made = _one_condition(chance, record)
        if made is not None:
            negated = chance.random() < 0.2
            found.append((f"not_{made[0]}", made[1]) if negated else made)
    kinds = {name: (name, value) for name, value in found}  # a kind once
    return list(kinds.values()) or [("offset", "0:")]


def _one_condition(chance: random.Random, record: dict[str, Any]) -> Condition | None:
    key, value, kind = record["key"], record["value"], chance.randrange(14)
    if kind == 0 and key is not None:
        return "key", [key, *([b"no such key"] if chance.random() < 0.3 else [])]
    if kind == 1 and key:
        return "key_prefix", key[: chance.randrange(1, len(key) + 1)]
    if kind == 2 and key:
        return "key_regex", chance.choice(("^key-[a-m]", "[0-9]{2}$", "^.{3,8}$", "é|[^a-z0-9-]"))
    if kind == 3 and value:
        begin = chance.randrange(len(value))
        return "value_contains", value[begin : begin + chance.randrange(1, 12)]
    if kind == 4:
        return "value_regex", chance.choice(
            ('"id":[1-3],', "alpha|beta", "a.*b.*c", "[^\\x00-\\x7f]", "^$", "(?i)TRUE")
        )
    if kind == 5 and value and value[:1] == b"{":
        return _json_condition(chance, value)
    if kind == 6 and record["headers"]:
        name, text = chance.choice(record["headers"])
        if name and "=" not in name:
            return "header", f"{name}={text.decode()}" if text is not None and text.isascii() else name
    if kind == 7:
        return "tombstones", True
    if kind == 8:
        low = record["offset"]
        return "offset", chance.choice(
            (f"{low}", f"{low}:", f":{low + 1}", f"{low}:{low + chance.randrange(1, 30)}")
        )
    if kind == 9:
        return "since", _near(record, chance)
    if kind == 10:
        return "until", _near(record, chance)
    if kind == 11:
        return "producer", record["producer_id"]
    if kind == 12:
        return "transaction", chance.choice(("open", "aborted", "committed"))
    return "partition", record["partition"]


def _json_condition(chance: random.Random, value: bytes) -> Condition | None:
    try:
        document = json.loads(value)
    except ValueError:
        return None
    names = [name for name in document if name.isidentifier()]
    if not names:
        return None
    name = chance.choice(names)
    node = document[name]
    return "json", f"{name}={node if isinstance(node, str) else json.dumps(node)}"


def _near(record: dict[str, Any], chance: random.Random) -> int:
    """Returns the timestamp (ms) of a record, or the next ms."""
    return min((1 << 63) - 1, int(record["timestamp_ms"]) + chance.randrange(2))

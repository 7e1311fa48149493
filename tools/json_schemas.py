"""Writes ``docs/schemas/``: JSON schemas of what commands print, from the declarations of their results.

python -m tools.json_schemas

A field that the schema requires is always there. Later versions may add fields, so none is forbidden.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafka_log_lake.pipelines.find import searching, typed
from kafka_log_lake.pipelines.find.copies import COPY_COLUMNS
from kafka_log_lake.pipelines.find.output import FIELDS, OPTIONAL
from kafka_log_lake.pipelines.inspect_batch.fields import Checksum
from kafka_log_lake.pipelines.inspect_batch.place import Neighbour
from kafka_log_lake.pipelines.listing.leftovers import PassedOver
from kafka_log_lake.pipelines.load_check.found import Stop
from kafka_log_lake.pipelines.quality_report.facts import QualityReport
from kafka_log_lake.pipelines.recover.placement import Placement
from kafka_log_lake.pipelines.restore.cluster import SecurityDone
from kafka_log_lake.pipelines.restore.groups import GroupDone
from kafka_log_lake.pipelines.restore.schemas import SchemaDone
from kafka_log_lake.pipelines.restore.summary import Summary
from kafka_log_lake.pipelines.scan.findings import ScannedLog
from kafka_log_lake.pipelines.scan.space import Volume
from kafka_log_lake.pipelines.tasks.slice_scan import DamagedRange, FormatCount
from kafka_log_lake.udfs.batches.account import Leftover, Unseen
from kafka_log_lake.udfs.batches.clocks import Clock
from kafka_log_lake.udfs.batches.hanging_transactions import CoordinatorState
from kafka_log_lake.udfs.format.recovery_tables import REPLICA_REPORT, TIER_REPORT
from kafka_log_lake.udfs.format.schema import Table
from kafka_log_lake.udfs.values.schemas import profile

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"
Schema = dict[str, Any]
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", bytes: "string"}
_NAMES = {"PayloadFormat": profile.PayloadFormat, "PayloadKind": profile.PayloadKind}
ANY: Schema = {}
TEXT, WHOLE, NUMBER, TRUTH = ({"type": one} for one in ("string", "integer", "number", "boolean"))


def listed(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def named(value: Schema) -> Schema:
    """Returns the schema of an object whose names are data."""
    return {"type": "object", "additionalProperties": value}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def record(fields: Mapping[str, Schema], optional: Sequence[str] = (), about: str = "") -> Schema:
    """Returns the schema of an object with these fields, all there but the optional ones."""
    return {
        **({"description": about} if about else {}),
        "type": "object",
        "properties": dict(fields),
        "required": [name for name in fields if name not in optional],
    }


def of_type(hint: object) -> Schema:
    """Returns the schema of a value of a Python type, as ``asdict`` and ``json`` give it."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is datetime:
        return {"type": "string", "format": "date-time"}
    if origin in (types.UnionType, typing.Union):
        (held,) = (one for one in inner if one is not type(None))
        return or_null(of_type(held))
    if origin is tuple and inner[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [*map(of_type, inner)], "minItems": len(inner)}
    if origin in (list, tuple, frozenset):
        return listed(of_type(inner[0]))
    if origin is not None and issubclass(origin, Mapping):
        return named(of_type(inner[-1] if len(inner) > 1 else int))
    if is_dataclass(hint):
        return of_class(hint)
    if hasattr(hint, "_fields"):  # ``json`` writes a named tuple as a list
        items = [*map(of_type, typing.get_type_hints(hint).values())]
        return {"type": "array", "prefixItems": items, "minItems": len(items)}
    return ANY


def of_class(kind: Any, without: Sequence[str] = (), **more: Schema) -> Schema:
    """Returns the schema of a data class or named tuple. more: fields that are added, or are others."""
    hints = typing.get_type_hints(kind, localns=_NAMES)
    names = kind._fields if hasattr(kind, "_fields") else kind.__dataclass_fields__
    fields = {name: of_type(hints[name]) for name in names if name not in without}
    return record(fields | more, about=(kind.__doc__ or "").split("\n")[0])


def of_table(table: Table) -> Schema:
    """Returns the schema of a row of a table: each column may be null."""
    return record(
        {one.name: or_null(_of_arrow(one.arrow_type)) for one in table.columns}, about=table.comment
    )


def _of_arrow(kind: pa.DataType) -> Schema:
    if pa.types.is_boolean(kind):
        return TRUTH
    if pa.types.is_integer(kind):
        return WHOLE
    return TEXT if pa.types.is_string(kind) or pa.types.is_binary(kind) else ANY


_UNSEEN = of_class(Unseen, without=("detail",), why=TEXT)
_TIMES = {name: or_null(WHOLE) for name in ("first_timestamp", "last_timestamp")}
_COUNTS = dict.fromkeys(("segments", "bytes", "records", "control_records", "damaged"), WHOLE)
_ACCOUNT = record(
    {"start": WHOLE, "end": WHOLE, "is_sound": TRUTH, "is_whole": TRUTH, "unseen": listed(_UNSEEN)}
    | {"unexplained": or_null(listed(WHOLE)), "aside": listed(of_class(Leftover))}
)
_TOPIC = record(
    {"topic": TEXT, "cluster_id": TEXT, "partitions": WHOLE, **_COUNTS, "is_sound": TRUTH, **_TIMES}
    | {"formats": listed(TEXT)},
    optional=("cluster_id",),
)
_OPEN = of_type(typing.get_type_hints(ScannedLog, localns=_NAMES)["open_transactions"])
_LOG = of_class(
    ScannedLog,
    without=("looks", "segment_times"),
    account=_ACCOUNT,
    missing=listed(_UNSEEN),
    damages=listed(of_class(DamagedRange, first_lost=or_null(WHOLE), last_lost=or_null(WHOLE))),
    formats=listed(of_class(FormatCount, magic=WHOLE, compression=TEXT)),
    last_stable_offset=or_null(WHOLE),
    clock=of_class(Clock, now_ms=or_null(WHOLE), witness=or_null(TEXT), certainty=TEXT),
    hanging_transactions=_OPEN,
)
_LEADERS = record(
    {"cluster_id": or_null(TEXT), "disk": TEXT, "reached": WHOLE, "unread": named(WHOLE)}
    | {"partitions": listed(of_class(Placement))}
)
_ROOM = record(
    {"topic": TEXT}
    | dict.fromkeys(("segments_bytes", "index_bytes", "deleted_bytes", "leftover_bytes"), WHOLE)
    | dict.fromkeys(("tier_bytes", "tier_dead_bytes"), WHOLE)
    | {"retention_frees_bytes": WHOLE, "held_by": or_null(TEXT), "held_ms": or_null(WHOLE)}
)
_READS = record(dict.fromkeys(("sources", "tier"), record({"requests": WHOLE, "bytes": WHOLE})))
_PLACE = {"topic": TEXT, "partition": WHOLE, "partition_dir": TEXT}
_UNLOADABLE = {"unloadable": listed(record(_PLACE | of_class(Stop)["properties"]))}
_TIER = of_table(TIER_REPORT)
_TIER = {
    **_TIER,
    "properties": {**_TIER["properties"], "since": or_null(WHOLE), "per_month": or_null(NUMBER)},
}
SCAN = record(
    {**_COUNTS, "seconds": NUMBER, "topics": listed(_TOPIC), "logs": listed(_LOG)}
    | {"payloads": listed(of_class(profile.PayloadFormat)), "replicas": listed(of_table(REPLICA_REPORT))}
    | {"clusters": named(listed(TEXT)), "leaders": listed(_LEADERS), "volumes": listed(of_class(Volume))}
    | {"room": listed(_ROOM), "prepared_transactions": listed(of_class(CoordinatorState))}
    | {"swap_files": listed(TEXT), "skipped": named(WHOLE), "passed_over": listed(of_class(PassedOver))}
    | {"tier_report": or_null(listed(_TIER)), "reads": or_null(_READS), "unreadable": named(TEXT)}
    | _UNLOADABLE
    | {"warnings": listed(TEXT), "verdict": TEXT, "next": listed(TEXT)},
    optional=("replicas",),
)
_HEADERS = or_null(listed({"type": "array", "prefixItems": [TEXT, or_null(TEXT)], "minItems": 2}))
_TEXTS = {name: or_null(TEXT) for name in ("key", "value", "key_text", "value_text")}
_MATCH = {
    one.name: or_null(_of_arrow(one.type))
    for one in (*searching.SCHEMA, *COPY_COLUMNS)
    if one.name in (*FIELDS, *OPTIONAL)
}
_FLAGS = {name: or_null(TRUTH) for name in ("superseded", "is_match")}
_TYPED = {name: or_null(WHOLE if name.endswith("_id") else TEXT) for name in typed.TYPED_FIELDS}
_TYPED |= dict.fromkeys(("key_typed", "value_typed", "record_typed"), ANY)
FIND = record(_MATCH | _FLAGS | _TEXTS | {"headers": _HEADERS} | _TYPED, (*OPTIONAL, *typed.TYPED_FIELDS))
_CAUSE = dict.fromkeys(("kind", "certainty", "text"), TEXT) | dict.fromkeys(
    ("position", "size_bytes", "changed_bits", "bit"), or_null(WHOLE)
)
_FIELD = dict.fromkeys(("name", "place", "bytes", "value", "meaning"), TEXT)
_FIELD |= {"position": WHOLE, "size_bytes": WHOLE, "level": WHOLE, "problem": or_null(TEXT)}
_MENDED = {"mended": TRUTH, "offset": WHOLE, "timestamp_ms": WHOLE, **_TEXTS, "headers": _HEADERS}
INSPECT = record(
    {"file": TEXT, "position": WHOLE, "size_bytes": WHOLE, "magic": WHOLE, "status": TEXT}
    | {"problem": or_null(TEXT), "checksum": or_null(of_class(Checksum)), "records": WHOLE}
    | {"causes": listed(record(_CAUSE)), "records_once_mended": or_null(WHOLE)}
    | {"mended_records": listed(record({**_MENDED, "control_type": or_null(TEXT)}))}
    | {"before": or_null(of_class(Neighbour)), "after": or_null(of_class(Neighbour))}
    | {"fields": listed(record(_FIELD))}
)
_OF_RUN = dict.fromkeys(
    ("segments", "batches", "records", "damaged", "damaged_before", "missing_offsets"), WHOLE
)
DECODE = record(
    {"run_id": TEXT, "lake": TEXT, **_OF_RUN, "chunks": WHOLE, "verdict": TEXT}
    | {"missing": listed({**_UNSEEN, "properties": {"log": TEXT, **_UNSEEN["properties"]}})}
    | dict.fromkeys(("in_part", "undecoded", "swap_files", "bytes", "unchanged"), WHOLE)
    | {"seconds": NUMBER, "phases": named(NUMBER), "skipped": named(WHOLE), "warnings": listed(TEXT)}
    | {"typed": listed(ANY), "value_errors": WHOLE, "reads": or_null(_READS)},
    optional=("batches", "records", "damaged", "chunks", "verdict", "typed", "value_errors"),
)
QUALITY = of_class(QualityReport, verdict=TEXT, sentence=TEXT)
_LOST = dict.fromkeys(("lost_ranges", "lost_offsets", "lost_records", "distinct_lost_records"), WHOLE)
_HEALED = dict.fromkeys(
    ("copies", "partitions", "batches", "bytes", "batches_of_other_copies", "mended"), WHOLE
)
RECOVER = record(
    {"lake": or_null(TEXT), "cluster_id": or_null(TEXT), **_HEALED, "certainty": named(WHOLE), **_LOST}
    | {"acknowledged": named(WHOLE), "also_in_truth": WHOLE, "restore": named(WHOLE)}
    | {"missing_copies": named(WHOLE), "missing_partitions": listed(TEXT)}
    | {"leaders": listed(of_class(Placement)), "metadata_unread": or_null(named(WHOLE))}
    | {"passed_over": listed(ANY), "is_whole": TRUTH, "doubts": listed(TEXT), "warnings": listed(TEXT)}
    | {"seconds": NUMBER}
)
RESTORE = of_class(
    Summary,
    groups=listed(of_class(GroupDone)),
    schemas=listed(of_class(SchemaDone)),
    security=listed(of_class(SecurityDone)),
    is_whole=TRUTH,
)
LOAD_CHECK = record({"logs": WHOLE, **_UNLOADABLE, "warnings": listed(TEXT), "verdict": TEXT})
MCP = record(
    {"note": TEXT, "rows": listed({"type": "object"}), "is_cut": TRUTH, "not_searched": listed(TEXT)}
)

# By the file's name: what prints it, and the schema of one object
OUTPUTS: dict[str, tuple[str, Schema]] = {
    "scan": ("scan --json", SCAN),
    "find": ("a line of find --format json", FIND),
    "inspect": ("inspect --json", INSPECT),
    "decode": ("decode --json and ingest --json", DECODE),
    "quality": ("quality.json of quality-report", QUALITY),
    "recover": ("recover --json", RECOVER),
    "restore": ("restore --json", RESTORE),
    "load_check": ("load-check --json", LOAD_CHECK),
    "mcp": ("the answer of each tool of mcp", MCP),
}


def text_of(name: str) -> str:
    """Returns the text of the file of an output."""
    printed, schema = OUTPUTS[name]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": printed}
    return json.dumps({**head, **schema}, indent=1) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in OUTPUTS:
        (FOLDER / f"{name}.schema.json").write_text(text_of(name))


if __name__ == "__main__":
    main()

"""Restores the schemas of ``_schemas`` into a running registry, each under its own id and version.

A registry takes ids from outside in IMPORT mode alone: each subject is put into it, gets its schemas in the
order in which they were registered, and gets back the mode that it had. These modes are kept in the state
folder meanwhile, so that a run after a kill gives them back. The REST API is that of Confluent's registry.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.restore.files import Files
from kafka_log_lake.pipelines.typed.schemas import registry_of_lake
from kafka_log_lake.pipelines.typed.sources import RegistryServer, read_registry
from kafka_log_lake.udfs.format.schema import RECORDS
from kafka_log_lake.udfs.values.schemas.registry import AVRO, PROTOBUF, SCHEMAS_TOPIC, SOFT, Registry, Schema

if TYPE_CHECKING:
    from kafka_log_lake.pipelines.restore.plan import Plan
    from kafka_log_lake.pipelines.restore.request import Request

IMPORTED, WAS_THERE, PLANNED = "imported", "was there", "planned"
_SECONDS = 60.0  # without an answer of the target
_MODES = "registry_modes.json"
# Of a CONFIG record: its name in the REST API
_CONFIGS = {
    **{name: name for name in ("normalize", "alias", "compatibilityGroup", "defaultMetadata")},
    **{name: name for name in ("overrideMetadata", "defaultRuleSet", "overrideRuleSet")},
    "compatibilityLevel": "compatibility",
}


@dataclass(frozen=True)
class SchemaDone:
    """A version of a subject, or a setting of it, and what became of it in the target's registry.

    version, id: -1 of a setting. state: imported, was there, or planned. held_back: why it is not there; ""
    where it is.
    """

    subject: str
    version: int
    id: int
    kind: str
    state: str = ""
    held_back: str = ""


def source_registry(request: Request) -> Registry:
    """Returns the registry in the lake: the schemas and settings of its ``_schemas``."""
    return registry_of_lake(published_tables(request.lake, request.at)[RECORDS.name])


def plan_schemas(request: Request) -> list[SchemaDone]:
    """Returns what would be restored into the registry, and what its ids and versions don't allow."""
    url = request.more.get("registry")
    if not url:
        return []
    target = read_registry(url)
    return [_compared(schema, target) for schema in _held(source_registry(request))]


def restore_schemas(request: Request, plan: Plan) -> list[SchemaDone]:
    """Restores the schemas into the registry of ``--registry``, and reads them back; [] without that option.

    Raises a UserError where the registry does not answer, and where the plan has ``_schemas`` as a topic and
    the target's uses its ids for other schemas.
    """
    url = request.more.get("registry")
    if not url:
        if any(schema.topic == SCHEMAS_TOPIC for schema in plan.topics):
            check_topic(source_registry(request), _registry_of_target(request))
        return []
    source, target = source_registry(request), read_registry(url)
    server = RegistryServer(url)
    schemas = _held(source)
    done = {(schema.subject, schema.version): _compared(schema, target) for schema in schemas}
    wanted = [schema for schema in schemas if done[schema.subject, schema.version].state == PLANNED]
    with _importing(server, Files(request.state), sorted({schema.subject for schema in wanted})) as refused:
        for schema in wanted:
            why = refused.get(schema.subject) or _imported(server, schema)
            if why:
                done[schema.subject, schema.version] = replace(_row(schema), held_back=why)
        for schema in wanted:  # once all that refer to them are there
            if schema.deleted == SOFT and not done[schema.subject, schema.version].held_back:
                server.call("DELETE", f"{_path(schema.subject)}/{schema.version}")
    settings = list(_settings(server, source, is_new=not target.schemas))
    back = read_registry(url)
    return [
        *(_read_back(done[schema.subject, schema.version], schema, back) for schema in schemas),
        *settings,
    ]


def _registry_of_target(request: Request) -> Registry:
    """Reads ``_schemas`` of the target from its begin to its end."""
    from confluent_kafka import KafkaException, TopicPartition

    from kafka_log_lake.pipelines.restore.clients import asking, consumer

    reader = consumer(request)
    place = TopicPartition(request.renamed(SCHEMAS_TOPIC), 0)
    records = []
    with asking("_schemas of the target can't be read"):
        try:
            place.offset, end = reader.get_watermark_offsets(place, timeout=_SECONDS)
            reader.assign([place])
            while place.offset < end:
                message = reader.poll(_SECONDS)
                if message is None or (message.error() and message.error().name() == "_PARTITION_EOF"):
                    break
                if message.error():
                    raise KafkaException(message.error())
                records.append((message.offset(), message.key(), message.value()))
        finally:
            reader.close()
    return Registry.from_records(records)


def check_topic(source: Registry, target: Registry) -> None:
    """Raises a UserError if ``_schemas`` has ids or versions that the target uses for other schemas."""
    for schema in _held(source):
        why = _compared(schema, target).held_back
        if why:
            place = f"{printable(schema.subject)} version {schema.version}"
            raise UserError(f"_schemas: {place}, id {schema.id}: {why}: leave it out by --exclude-topics")


def lines(rows: Sequence[SchemaDone]) -> list[str]:
    """Returns lines of text for a person: how many schemas are there, and which are not and why."""
    if not rows:
        return []
    states = Counter(row.state for row in rows if not row.held_back and row.version >= 0)
    there = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())) or "none"
    texts = [f"schemas      {there}"]
    texts += [
        f"  held back  {row.subject}{f' version {row.version}' if row.version >= 0 else ''}: {row.held_back}"
        for row in rows
        if row.held_back
    ]
    return texts


def _held(registry: Registry) -> list[Schema]:
    """Returns the schemas that readers of the topic still find, those deleted softly too, in their order."""
    return [schema for schema in registry.schemas if not schema.is_gone and schema.id >= 0]


def _row(schema: Schema, state: str = "", held_back: str = "") -> SchemaDone:
    return SchemaDone(schema.subject, schema.version, schema.id, schema.type, state, held_back)


def _compared(schema: Schema, target: Registry) -> SchemaDone:
    """Returns whether a schema is in the target, may be imported, or can't be for what is there."""
    there = target.version(schema.subject, schema.version)
    if there is not None and there.subject == schema.subject:
        if there.id == schema.id and _is_same(schema, there):
            return _row(schema, WAS_THERE)
        return _row(schema, held_back=f"the target has another schema as this version, with id {there.id}")
    others = [other for other in target.by_id(schema.id) if other.context == schema.context]
    if any(not _is_same(schema, other) for other in others):
        where = f"{others[0].subject} version {others[0].version}"
        return _row(schema, held_back=f"the target uses its id for another schema: {where}")
    return _row(schema, PLANNED)


def _is_same(schema: Schema, other: Schema) -> bool:
    return (
        schema.type == other.type
        and schema.references == other.references
        and _content(schema) == _content(other)
    )


def _content(schema: Schema) -> Any:
    """Returns a schema's text, of JSON what it says: a registry may write it with other white space."""
    if schema.type == PROTOBUF:
        return schema.text.split()
    try:
        return json.loads(schema.text)
    except (ValueError, RecursionError):
        return schema.text


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions"


def _said(status: int, answer: Any) -> str:
    """Returns what a registry says of its refusal, in one line."""
    known = answer if isinstance(answer, dict) else {}
    words = " ".join(str(known.get("message", "")).split())
    return f"the registry: {words or 'no reason'} ({known.get('error_code', status)})"


def _imported(server: RegistryServer, schema: Schema) -> str:
    """Registers one version under its id. Returns why the registry refuses it; "" where it does not."""
    body: dict[str, object] = {"schema": schema.text, "id": schema.id, "version": schema.version}
    if schema.type != AVRO:
        body["schemaType"] = schema.type
    if schema.references:
        body["references"] = [dict(vars(reference)) for reference in schema.references]
    more = {"metadata": schema.metadata, "ruleSet": schema.rule_set}
    body |= {name: value for name, value in more.items() if value is not None}
    status, answer = server.call("POST", _path(schema.subject), body)
    if status != 200:
        return _said(status, answer)
    given = answer.get("id") if isinstance(answer, dict) else None
    return "" if given == schema.id else f"the registry gave it id {given}: it did not keep the id"


@contextmanager
def _importing(server: RegistryServer, state: Files, subjects: Sequence[str]) -> Iterator[dict[str, str]]:
    """Puts subjects into IMPORT mode for a block. Yields subject -> why that is refused.

    state: has a file with the modes that they had meanwhile, which a run after a kill gives back.
    """
    modes: dict[str, str | None] = state.load(_MODES) or {}
    for subject in subjects:
        if subject not in modes:
            status, answer = server.call("GET", _mode(subject))
            modes[subject] = answer.get("mode") if status == 200 else None
    state.keep(_MODES, modes)
    refused = {}
    try:
        for subject in subjects:
            status, answer = server.call("PUT", f"{_mode(subject)}?force=true", {"mode": "IMPORT"})
            if status != 200:
                refused[subject] = _said(status, answer)
        yield refused
    finally:
        for subject, mode in modes.items():
            if mode is not None:
                server.call("PUT", f"{_mode(subject)}?force=true", {"mode": mode})
            elif subject not in refused:
                server.call("DELETE", _mode(subject))
        state.remove(_MODES)


def _mode(subject: str) -> str:
    return f"/mode/{quote(subject, safe='')}"


def _settings(server: RegistryServer, source: Registry, is_new: bool) -> Iterator[SchemaDone]:
    """Sets the compatibility and the modes of subjects. is_new: the target had no schema: of all, too."""
    for entry in source.entries:
        if entry.keytype not in ("CONFIG", "MODE") or not entry.value:
            continue
        subject = entry.subject or ""
        row = SchemaDone(subject or "(all subjects)", -1, -1, entry.keytype.lower(), IMPORTED)
        if not subject and not is_new:
            yield replace(
                row, state="", held_back="the target had schemas: what holds for all is left as it is"
            )
            continue
        try:
            said = json.loads(entry.value)
            body = _body(entry.keytype, said)
        except (ValueError, TypeError, AttributeError, RecursionError):
            yield replace(row, state="", held_back="its record can't be read")
            continue
        place = f"/{entry.keytype.lower()}" + (f"/{quote(subject, safe='')}" if subject else "")
        status, answer = server.call("PUT", place, body)
        yield row if status == 200 else replace(row, state="", held_back=_said(status, answer))


def _body(keytype: str, said: Mapping[str, object]) -> dict[str, object]:
    if keytype == "MODE":
        return {"mode": said["mode"]}
    return {_CONFIGS[name]: value for name, value in said.items() if name in _CONFIGS and value is not None}


def _read_back(row: SchemaDone, schema: Schema, target: Registry) -> SchemaDone:
    """Returns the row once the target was asked for what was restored."""
    if row.held_back:
        return row
    there = target.version(schema.subject, schema.version)
    if there is None or there.id != schema.id or not _is_same(schema, there):
        return replace(row, state="", held_back="the registry does not give it back as it was")
    return replace(row, state=IMPORTED if row.state == PLANNED else row.state)

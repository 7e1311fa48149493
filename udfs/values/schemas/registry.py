"""Reads the schema registry in the topic ``_schemas``: from its records to schemas by id, GUID and version.

Confluent's Schema Registry and Karapace keep all that they know in one compacted topic. A record's key is
JSON that says what it is (``keytype``), its value the state; the last value of a key holds. Rules of
Confluent's registry (``KafkaStoreMessageHandler``, ``SchemaKey``, ``SchemaValue``), and where Karapace
differs:

- a schema's value again with ``deleted: true``: deleted softly; readers still resolve its id
- a null value, or an empty one (Karapace): deleted for good
- DELETE_SUBJECT: all versions up to ``version`` are deleted softly
- CLEAR_SUBJECT: versions that are deleted softly are gone: of the subject, of all subjects of a context where
  the name after it is empty, of all where the subject is null
- the same key may be written with another order of fields or with white space: it is the same key

Ids are counted per context (``:.name:subject``), so that one id may mean a schema in each context. No value
is trusted: what can't be read is kept in ``problems``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_log_lake.udfs.values.apps.topic_format import TopicFormats

SCHEMAS_TOPIC = "_schemas"
# What a registry keeps for itself: schemas, keys of encryption, and keysets of encrypted metadata
REGISTRY_TOPICS = (SCHEMAS_TOPIC, "_dek_registry_keys", "_schema_encoders")
AVRO, PROTOBUF, JSON_SCHEMA = "AVRO", "PROTOBUF", "JSON"
DEFAULT_CONTEXT = "."
ENCRYPT, ENCRYPT_PAYLOAD = "ENCRYPT", "ENCRYPT_PAYLOAD"
UNKNOWN_ID = -1  # of a schema from a file that names no id: it may be that of each unknown id
# How a schema ended; "" for one that holds
SOFT, HARD, CLEARED, REPLACED = "soft", "hard", "cleared", "replaced"


@dataclass(frozen=True)
class Reference:
    """A reference to another schema: the name that the schema uses for it, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, eq=False)  # by identity: metadata are dicts
class Schema:
    """One version of a subject in the registry.

    deleted: "" for one that holds, else SOFT, HARD, CLEARED or REPLACED. first_offset, last_offset: the
    offsets in ``_schemas`` at which it began to hold, and of the record that ended it, None while it holds;
    -1 and None where it came from elsewhere. guid: as Confluent computes it, or as stored in ``md5``.
    """

    subject: str
    version: int
    id: int
    guid: str
    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    deleted: str = ""
    first_offset: int = -1
    last_offset: int | None = None

    @property
    def context(self) -> str:
        return context_of(self.subject)

    @property
    def name(self) -> str:
        """Returns the subject without its context."""
        return self.subject[len(self.context) + 2 :] if self.subject.startswith(":.") else self.subject

    @property
    def encrypting_rules(self) -> list[Mapping[str, object]]:
        """Returns the rules, not disabled, that encrypt fields (ENCRYPT) or payloads (ENCRYPT_PAYLOAD)."""
        sets = ((self.rule_set or {}).get(kind) or () for kind in ("domainRules", "encodingRules"))
        rules = [rule for rules in sets for rule in rules if isinstance(rule, Mapping)]
        return [r for r in rules if r.get("type") in (ENCRYPT, ENCRYPT_PAYLOAD) and not r.get("disabled")]

    @property
    def is_gone(self) -> bool:
        """Returns whether a reader of the compacted topic no longer finds the schema."""
        return self.deleted in (HARD, CLEARED, REPLACED)


@dataclass(frozen=True)
class RegistryEntry:
    """The last value of a key that is no schema: CONFIG, MODE, CONTEXT, NOOP, ..., unknown ones too."""

    keytype: str
    subject: str | None
    key: str
    value: str | None
    offset: int


def context_of(subject: str) -> str:
    """Returns the context of a qualified subject, ``.`` for the default one (``QualifiedSubject``)."""
    if subject.startswith(":."):
        end = subject.find(":", 1)
        if end > 0:
            return subject[1:end]
    return DEFAULT_CONTEXT


def guid_of(
    text: str,
    references: Iterable[Reference] = (),
    metadata: Mapping[str, Any] | None = None,
    rule_set: Mapping[str, Any] | None = None,
) -> str:
    """Returns the GUID of a schema: the UUID of an MD5 over its content (``Schema.updateHash``)."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for reference in references:
        digest.update(
            reference.name.encode()
            + reference.subject.encode()
            + reference.version.to_bytes(4, "big", signed=True)
        )
    if metadata is not None:
        digest.update(b"\1")
        for part in _metadata_parts(metadata):
            digest.update(part.encode())
    if rule_set is not None:
        digest.update(b"\1")
        for kind in ("migrationRules", "domainRules", "encodingRules"):
            for rule in rule_set.get(kind) or ():
                digest.update(b"".join(part.encode() for part in _rule_parts(rule)))
    return str(uuid.UUID(bytes=digest.digest()))


def _metadata_parts(metadata: Mapping[str, Any]) -> Iterator[str]:
    for name, values in sorted((metadata.get("tags") or {}).items()):
        yield name
        yield from sorted(values)
    for name, value in sorted((metadata.get("properties") or {}).items()):
        yield from (name, str(value))
    yield from sorted(metadata.get("sensitive") or ())


def _rule_parts(rule: Mapping[str, Any]) -> Iterator[str]:
    yield from (rule[part] for part in ("name", "doc", "kind", "mode", "type") if rule.get(part) is not None)
    yield from sorted(rule.get("tags") or ())
    for name, value in sorted((rule.get("params") or {}).items()):
        yield from (name, str(value))
    yield from (rule[part] for part in ("expr", "onSuccess", "onFailure") if rule.get(part) is not None)
    if rule.get("disabled"):
        yield "\1"


@dataclass
class Registry:
    """The schemas and other entries of a registry.

    schemas: all, those that ended too, in the order in which they began. problems: offset -> why a record
    could not be read. end: the offset of the last record; -1 without a log. formats: what a person says of
    topics.
    """

    schemas: list[Schema] = field(default_factory=list)
    entries: list[RegistryEntry] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)
    end: int = -1
    formats: TopicFormats = field(default_factory=TopicFormats)

    def __post_init__(self) -> None:
        self._by_id: dict[int, list[Schema]] = {}
        self._by_guid: dict[str, list[Schema]] = {}
        self._by_version: dict[tuple[str, int], Schema] = {}
        for schema in self.schemas:
            self._by_id.setdefault(schema.id, []).append(schema)
            self._by_guid.setdefault(schema.guid, []).append(schema)
            known = self._by_version.get((schema.subject, schema.version))
            if known is None or known.is_gone or not schema.is_gone:
                self._by_version[schema.subject, schema.version] = schema

    def by_id(self, id_: int) -> list[Schema]:
        """Returns the schemas of an id, in all contexts and subjects; [] for an unknown one."""
        return self._by_id.get(id_, [])

    def by_guid(self, guid: str) -> list[Schema]:
        """Returns the schemas of a GUID: one text, maybe under several subjects."""
        return self._by_guid.get(guid, [])

    def version(self, subject: str, version: int, context: str = DEFAULT_CONTEXT) -> Schema | None:
        """Returns one version of a subject, or None; -1 asks for the latest that is not deleted.

        context: where an unqualified name is sought.
        """
        names = [subject]
        if context != DEFAULT_CONTEXT and not subject.startswith(":."):
            names.insert(0, f":{context}:{subject}")
        for name in names:
            if version == -1:
                held = [s for s in self.schemas if s.subject == name and not s.deleted]
                schema = max(held, key=lambda s: s.version, default=None)
            else:
                schema = self._by_version.get((name, version))
            if schema is not None:
                return schema
        return None

    @classmethod
    def from_records(cls, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> Registry:
        """Returns the registry of the records of ``_schemas``: (offset, key, value), by offset."""
        state, offset = _State(), -1
        for offset, key, value in records:
            try:
                state.apply(offset, key, value)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                state.problems[offset] = f"{type(error).__name__}: {error}"[:200]
        return cls(
            [*state.ended, *state.held.values()], list(state.entries.values()), state.problems, offset
        ).in_order()

    def in_order(self) -> Registry:
        """Returns the registry with schemas by first offset, subject and version."""
        ordered = sorted(self.schemas, key=lambda s: (s.first_offset, s.subject, s.version))
        return Registry(ordered, self.entries, self.problems, self.end, self.formats)

    @classmethod
    def joined(cls, registries: Iterable[Registry]) -> Registry:
        """Joins copies, or sources, into one registry; the one with the longest log decides on a version."""
        schemas: dict[tuple[str, int, int, str], Schema] = {}
        entries: dict[str, RegistryEntry] = {}
        problems: dict[int, str] = {}
        registries = list(registries)
        formats = TopicFormats.joined(each.formats for each in registries)
        for registry in sorted(registries, key=lambda each: each.end):
            for schema in sorted(
                registry.schemas, key=lambda held: (held.first_offset, held.last_offset or -1)
            ):
                schemas[schema.subject, schema.version, schema.id, schema.text] = schema
            for entry in registry.entries:
                if entry.key not in entries or entries[entry.key].offset < entry.offset:
                    entries[entry.key] = entry
            problems |= registry.problems
        return cls(list(schemas.values()), list(entries.values()), problems, formats=formats).in_order()


class _State:
    """The state of the registry while its records are read."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, int], Schema] = {}
        self.ended: list[Schema] = []
        self.entries: dict[str, RegistryEntry] = {}
        self.problems: dict[int, str] = {}

    def apply(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            raise ValueError("a record without a key")
        named = json.loads(key)
        if not isinstance(named, dict):
            raise TypeError("a key that is no object")
        keytype = str(named.get("keytype"))
        if keytype == "SCHEMA":
            self._schema(offset, named, value)
            return
        said = json.loads(value) if value else None
        if keytype == "DELETE_SUBJECT" and said is not None:
            self._delete_subject(offset, said["subject"], int(said["version"]))
        elif keytype == "CLEAR_SUBJECT" and said is not None:
            self._clear_subject(offset, said.get("subject"))
        subject = named.get("subject")
        canonical = json.dumps({k: v for k, v in named.items() if v is not None}, sort_keys=True)
        text = value.decode("utf-8", "replace") if value else None
        self.entries[canonical] = RegistryEntry(
            keytype, subject, key.decode("utf-8", "replace"), text, offset
        )

    def _schema(self, offset: int, named: dict[str, Any], value: bytes | None) -> None:
        place = (str(named["subject"]), int(named["version"]))
        known = self.held.get(place)
        if not value:  # null by Confluent's registry, empty by Karapace
            if known is not None:
                self.held[place] = replace(known, deleted=HARD, last_offset=offset)
            return
        schema = schema_of(json.loads(value), place, offset)
        if known is not None and (known.id, known.text) == (schema.id, schema.text):
            # the same again, deleted softly or restored: it holds since its first record
            self.held[place] = replace(
                schema, first_offset=known.first_offset, last_offset=offset if schema.deleted else None
            )
            return
        if known is not None:
            self.ended.append(replace(known, deleted=known.deleted or REPLACED, last_offset=offset))
        self.held[place] = schema

    def _delete_subject(self, offset: int, subject: str, version: int) -> None:
        for place, schema in self.held.items():
            if schema.subject == subject and schema.version <= version and not schema.deleted:
                self.held[place] = replace(schema, deleted=SOFT, last_offset=offset)

    def _clear_subject(self, offset: int, subject: str | None) -> None:
        for place, schema in self.held.items():
            is_meant = subject in (None, schema.subject, schema.subject.removesuffix(schema.name))
            if is_meant and schema.deleted == SOFT:
                self.held[place] = replace(schema, deleted=CLEARED, last_offset=offset)


def schema_of(value: Mapping[str, Any], place: tuple[str, int], offset: int) -> Schema:
    """Returns the schema that a value of ``_schemas``, or of the registry's REST API, describes."""
    references = tuple(
        Reference(str(reference["name"]), str(reference["subject"]), int(reference["version"]))
        for reference in value.get("references") or ()
    )
    text = str(value["schema"])
    metadata, rule_set = value.get("metadata"), value.get("ruleSet")
    return Schema(
        subject=place[0],
        version=place[1],
        id=int(value["id"]),
        guid=_stored_guid(value.get("md5")) or _guid_of_any(text, references, metadata, rule_set),
        type=str(value.get("schemaType") or AVRO).upper(),
        text=text,
        references=references,
        metadata=metadata,
        rule_set=rule_set,
        deleted=SOFT if value.get("deleted") else "",
        first_offset=offset,
        last_offset=offset if value.get("deleted") else None,
    )


def _guid_of_any(text: str, references: tuple[Reference, ...], metadata: Any, rule_set: Any) -> str:
    """Returns the GUID; leaves out metadata and rules of a form that no registry writes."""
    try:
        return guid_of(text, references, metadata, rule_set)
    except (AttributeError, KeyError, TypeError):
        return guid_of(text, references)


def _stored_guid(md5: object) -> str | None:
    try:
        return None if md5 is None else str(uuid.UUID(bytes=base64.b64decode(str(md5), validate=True)))
    except (binascii.Error, ValueError):
        return None

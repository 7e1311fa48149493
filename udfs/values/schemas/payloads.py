"""Decodes one key or value to canonical JSON: finds framing, schema and decoder, and the reason of an error.

This is the exact way, payload by payload: the columns of typed tables come from compiled readers, which leave
to it what they can't do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kafka_log_lake.udfs.values.apps.payloads import SideReader, side_reader
from kafka_log_lake.udfs.values.apps.topic_format import TopicFormat, TopicFormats
from kafka_log_lake.udfs.values.avro import files as avro_files
from kafka_log_lake.udfs.values.avro import payload as avro
from kafka_log_lake.udfs.values.avro import schema as avro_schema
from kafka_log_lake.udfs.values.json.parse import parse_json
from kafka_log_lake.udfs.values.protobuf import schema as protobuf_schema
from kafka_log_lake.udfs.values.protobuf.payload import MessageReader
from kafka_log_lake.udfs.values.schemas import encryption, wire_formats
from kafka_log_lake.udfs.values.schemas.payload import DecodedPayload, PayloadError, failed
from kafka_log_lake.udfs.values.schemas.plain_payloads import LOOK, plain_payload
from kafka_log_lake.udfs.values.schemas.registry import (
    AVRO,
    DEFAULT_CONTEXT,
    ENCRYPT_PAYLOAD,
    JSON_SCHEMA,
    PROTOBUF,
    UNKNOWN_ID,
    Registry,
    Schema,
)
from kafka_log_lake.udfs.values.schemas.wire_formats import Framing, Headers, framing_of, message_index

KEY, VALUE = "key", "value"
FORMATS = {AVRO: "avro", PROTOBUF: "protobuf", JSON_SCHEMA: "jsonschema"}
# An id that a registry would give: they count up from 1
_MOST_ID = 1 << 24


class PayloadReader:
    """Decodes the payloads of topics with the schemas of a registry.

    Compiled schemas are kept. Not for several threads at once.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.has_files = bool(registry.by_id(UNKNOWN_ID))
        self._compiled: dict[int, Callable[[bytes, Framing], Any]] = {}
        self._messages: dict[int, Callable[[tuple[int, ...]], MessageReader]] = {}
        self._files: dict[int, Any] = {}
        self._fingerprints: dict[int, Schema] | None = None
        self._sides: dict[tuple[str, str, str], SideReader | None] = {}

    def read(
        self, topic: str, side: str, payload: bytes | None, headers: Headers = (), plain: str = ""
    ) -> DecodedPayload:
        """Decodes one key or value.

        plain: what the topic's payloads are without a schema (``topic_labels``): json, text or bytes, or the
        label of a format; "" for a look at each, LOOK for one that takes no unknown id for one.
        """
        reader = None if payload is None else self.side_reader(topic, side, plain)
        if reader is not None and payload is not None:
            return _of_format(reader, payload)
        is_look = plain == LOOK
        plain = "" if is_look else plain
        try:
            framing = framing_of(side, payload, headers)
        except PayloadError as error:
            return failed("bytes", payload or b"", error)
        if payload is None:
            return DecodedPayload("null", None)
        if framing.kind == wire_formats.EMPTY:
            return DecodedPayload("empty", "")
        if framing.kind in (wire_formats.PLAIN, wire_formats.CONTAINER):
            bare = self._of_registry(topic, side, payload, Framing(framing.kind)) if self.has_files else None
            if bare is not None and bare.schema is not None and bare.reason is None:
                return bare
            return (
                plain_payload(payload, plain) if framing.kind == wire_formats.PLAIN else _container(payload)
            )
        if framing.kind == wire_formats.SINGLE_OBJECT:
            return self._single_object(payload, framing)
        if framing.kind in (wire_formats.CONFLUENT, wire_formats.GUID):
            is_plain = framing.start and (plain or is_look or _is_small_long(payload))
            if is_plain and not self.candidates(topic, side, framing):
                bare = plain_payload(payload, plain or "bytes")
                # of a schema that may be registered later, where it is not what others of the topic are
                is_odd = bare.reason is not None or (plain == "text" and 0 < (framing.id or 0) < _MOST_ID)
                return self._unknown(payload, framing) if is_odd else bare
            decoded = self._of_registry(topic, side, payload, framing)
            is_number = (
                decoded.reason and side == KEY and framing.start and self._is_long(topic, payload, framing)
            )
            return DecodedPayload("bytes", payload) if is_number else decoded
        detail = f"written with the registry of {framing.kind}, whose schemas are not at hand"
        return DecodedPayload(framing.kind, payload, None, "no_registry", detail)

    def side_reader(self, topic: str, side: str, plain: str) -> SideReader | None:
        """Returns the reader of the format that ``plain`` is the label of; None where it is none."""
        place = (topic, side, plain)
        if place not in self._sides:
            format_ = TopicFormat.of_label(plain)

            def registered(data: bytes) -> object:
                decoded = self.read(topic, side, data)
                if decoded.reason is not None:
                    raise PayloadError(decoded.reason, decoded.detail or "")
                return decoded.value

            self._sides[place] = None if format_ is None else side_reader(format_, side, registered)
        return self._sides[place]

    @property
    def formats(self) -> TopicFormats:
        return self._registry.formats

    def _single_object(self, payload: bytes, framing: Framing) -> DecodedPayload:
        """Decodes a payload that begins with the fingerprint of its Avro schema."""
        schema = self._by_fingerprint().get(framing.id or 0)
        if schema is None:
            detail = f"no schema of Avro has the fingerprint {payload[2:10].hex()}"
            return DecodedPayload(framing.kind, payload, None, "no_registry", detail)
        value, error = self._try(schema, payload, framing)
        return (
            DecodedPayload(FORMATS[AVRO], value, schema)
            if error is None
            else failed("avro", payload, error, schema)
        )

    def _by_fingerprint(self) -> dict[int, Schema]:
        """Returns the schemas of Avro by their fingerprints, computed once."""
        if self._fingerprints is None:
            self._fingerprints = {}
            for schema in self._registry.schemas:
                if schema.type == AVRO and not schema.is_gone:
                    with suppress(PayloadError, RecursionError):
                        type_ = avro_schema.parse(schema.text, [text for _, text in self.references(schema)])
                        self._fingerprints.setdefault(avro_files.fingerprint(type_), schema)
        return self._fingerprints

    def _of_registry(self, topic: str, side: str, payload: bytes, framing: Framing) -> DecodedPayload:
        candidates = self.candidates(topic, side, framing)
        if not candidates:
            return self._unknown(payload, framing)
        held = [candidate for candidate in candidates if not candidate.is_gone] or candidates
        if held[0].is_gone:
            return failed(
                FORMATS.get(held[0].type, "bytes"),
                payload,
                PayloadError(
                    "deleted_id", f"{held[0].subject} version {held[0].version} was deleted for good"
                ),
                held[0],
            )
        results = [(candidate, *self._try(candidate, payload, framing)) for candidate in _distinct(held)]
        sound = [(candidate, value) for candidate, value, error in results if error is None]
        if not sound:
            schema, _, error = results[0]
            assert error is not None
            return failed(FORMATS.get(schema.type, "bytes"), payload, error, schema)
        schema, value = sound[0]
        if len(sound) > 1 and _rank(schema, topic, side) == _rank(sound[1][0], topic, side):
            both = " and ".join(f"{fits.subject} version {fits.version}" for fits, _ in sound)
            error = PayloadError("ambiguous_id", f"the id belongs to {both}, and each consumes every byte")
            return failed(FORMATS.get(schema.type, "bytes"), payload, error, schema)
        return DecodedPayload(FORMATS[schema.type], value, schema)

    def candidates(self, topic: str, side: str, framing: Framing) -> list[Schema]:
        """Returns the schemas that a framing may mean, the likeliest first.

        The topic's own subject comes first, then its records' subjects, the default context, other contexts.
        """
        if framing.guid is not None:
            schemas = self._registry.by_guid(framing.guid)
        else:
            schemas = [] if framing.id is None or framing.id < 0 else self._registry.by_id(framing.id)
        if not schemas:
            schemas = [
                schema for schema in self._registry.by_id(UNKNOWN_ID) if _is_meant(schema, topic, side)
            ]
        return sorted(schemas, key=lambda schema: _rank(schema, topic, side))

    def has_subject(self, topic: str, side: str) -> bool:
        """Returns whether the registry has a schema of the topic's own for a side (TopicNameStrategy)."""
        return any(_is_meant(schema, topic, side) for schema in self._registry.schemas)

    def _is_long(self, topic: str, payload: bytes, framing: Framing) -> bool:
        """Returns whether a key that no schema consumes is an int64 of ``LongSerializer``.

        It reads as any id below 2^31. With a schema of the topic's own it is a broken payload of that schema.
        """
        if framing.kind != wire_formats.CONFLUENT or not framing.start or len(payload) != 8:
            return False
        return all(_rank(candidate, topic, KEY) > 1 for candidate in self.candidates(topic, KEY, framing))

    def _unknown(self, payload: bytes, framing: Framing) -> DecodedPayload:
        if framing.kind == wire_formats.GUID:
            return failed(
                "bytes", payload, PayloadError("unknown_guid", f"no schema has GUID {framing.guid}")
            )
        if framing.start and len(payload) > 9 and 0 < int.from_bytes(payload[1:9], "big") < _MOST_ID:
            global_id = int.from_bytes(payload[1:9], "big")
            detail = (
                f"written with Apicurio's registry (global id {global_id}), whose schemas are not at hand"
            )
            return DecodedPayload("apicurio8", payload, None, "no_registry", detail)
        return failed("bytes", payload, PayloadError("unknown_id", f"no schema has id {framing.id}"))

    def _try(self, schema: Schema, payload: bytes, framing: Framing) -> tuple[object, PayloadError | None]:
        try:
            return self.reader(schema)(payload, framing), None
        except PayloadError as error:
            return None, error

    def reader(self, schema: Schema) -> Callable[[bytes, Framing], Any]:
        """Returns the function that reads payloads of a schema. It raises a PayloadError."""
        place = id(schema)
        if place not in self._compiled:
            try:
                self._compiled[place] = self._compile(schema)
            except PayloadError as error:
                self._compiled[place] = _raising(error)
        return self._compiled[place]

    def _compile(self, schema: Schema) -> Callable[[bytes, Framing], object]:
        rule = self.payload_rule(schema)
        if rule is not None:
            return lambda payload, framing: _refuse_encrypted(schema, rule, payload[framing.start :])
        if schema.type == AVRO:
            type_ = avro_schema.parse(schema.text, [text for _, text in self.references(schema)])
            of_type = avro.reader_of(type_)
            return lambda payload, framing: avro.read(type_, of_type, payload, framing.start)
        if schema.type == PROTOBUF:
            return _protobuf_reader(self.messages(schema))
        if schema.type == JSON_SCHEMA:
            return lambda payload, framing: parse_json(payload[framing.start :])
        raise PayloadError("unreadable_schema", f"a schema of type {schema.type}")

    def messages(self, schema: Schema) -> Callable[[tuple[int, ...]], MessageReader]:
        """Returns a function from message indexes to the message of a Protobuf schema, compiled once.

        Raises a PayloadError (unreadable_schema), and so does what it gives (invalid_index).
        """
        if id(schema) not in self._messages:
            file = self._file(schema)
            known: dict[str, MessageReader] = {}

            def at(index: tuple[int, ...]) -> MessageReader:
                descriptor = protobuf_schema.message_at(file, index)
                if descriptor.full_name not in known:
                    known[descriptor.full_name] = MessageReader(descriptor)
                return known[descriptor.full_name]

            self._messages[id(schema)] = at
        return self._messages[id(schema)]

    def _file(self, schema: Schema) -> Any:
        """Returns the descriptor of a Protobuf schema, parsed once."""
        if id(schema) not in self._files:
            self._files[id(schema)] = protobuf_schema.parse(schema.text, self.references(schema))
        return self._files[id(schema)]

    def payload_rule(self, schema: Schema) -> Mapping[str, object] | None:
        """Returns the rule of a schema that encrypts whole payloads; None without one.

        A rule ENCRYPT encrypts single fields, which stay texts or bytes: the value decodes with them.
        """
        return next((rule for rule in schema.encrypting_rules if rule.get("type") == ENCRYPT_PAYLOAD), None)

    def latest(self, schema: Schema) -> Schema | None:
        """Returns the latest version of a schema's subject; None where it is the same, or of another type."""
        newest = self._registry.version(schema.subject, -1)
        if newest is None or newest.type != schema.type:
            return None
        is_same = (newest.text, newest.references) == (schema.text, schema.references)
        return None if is_same else newest

    def has_namesake(self, schema: Schema, name: str, topic: str) -> bool:
        """Returns whether another type has this name in another namespace.

        It is looked for among the messages of the same schema and, with a topic, among the names of subjects
        (RecordNameStrategy, TopicRecordNameStrategy).
        """
        plain_name = name.rpartition(".")[2]
        if schema.type == PROTOBUF:
            messages = protobuf_schema.messages(self._file(schema).message_types_by_name.values())
            if sum(message.name == plain_name for message in messages) > 1:
                return True
        others = (known.name.removeprefix(f"{topic}-") for known in self._registry.schemas if topic)
        return any(
            known.rpartition(".")[2] == plain_name and known != name and "-" not in known for known in others
        )

    def index_of(self, side: str, payload: bytes, headers: Headers = ()) -> tuple[int, ...]:
        """Returns the message indexes of a Protobuf payload that was read."""
        framing = framing_of(side, payload, headers)
        if framing.index is None and framing.start:
            return message_index(payload, framing.start)[0]
        return framing.index or (0,)

    def references(self, schema: Schema) -> list[tuple[str, str]]:
        """Returns (name, text) of the schemas that one refers to, each after those that it needs.

        Raises a PayloadError (unreadable_schema) where one is missing.
        """
        texts: dict[str, str] = {}

        def add(of: Schema, above: tuple[Schema, ...]) -> None:
            for reference in of.references:
                if reference.name in texts:
                    continue
                target = self._registry.version(reference.subject, reference.version, schema.context)
                if target is None or target in above:
                    raise PayloadError(
                        "unreadable_schema",
                        f"{of.subject} refers to {reference.subject} version {reference.version}",
                    )
                add(target, (*above, target))
                texts[reference.name] = target.text

        add(schema, (schema,))
        return list(texts.items())


def _of_format(reader: SideReader, payload: bytes) -> DecodedPayload:
    try:
        return DecodedPayload(reader.name, reader.read(payload))
    except PayloadError as error:
        return failed(reader.name, payload, error) if reader.is_declared else DecodedPayload("bytes", payload)


def _is_small_long(payload: bytes) -> bool:
    """Returns whether a payload is an int64 of ``LongSerializer`` that reads as Confluent's id 0."""
    return len(payload) == 8 and payload.startswith(bytes(5))


def _rank(schema: Schema, topic: str, side: str) -> int:
    """Returns how far a schema's subject is from the topic: 0 to 3.

    0 is TopicNameStrategy, 1 TopicRecordNameStrategy, 2 another subject of the default context, 3 of another
    context.
    """
    if schema.name == f"{topic}-{side}":
        return 0
    if schema.name.startswith(f"{topic}-"):
        return 1
    return 2 if schema.context == DEFAULT_CONTEXT else 3


def _is_meant(schema: Schema, topic: str, side: str) -> bool:
    """Returns whether a schema without an id may be that of a topic's side, by its subject."""
    return _rank(schema, topic, side) < 2 or (side == VALUE and schema.name == topic)


def _distinct(schemas: list[Schema]) -> list[Schema]:
    """Returns the schemas without those that repeat the text of an earlier one."""
    first_of = {(schema.type, schema.text, schema.references): schema for schema in reversed(schemas)}
    return [schema for schema in schemas if first_of[schema.type, schema.text, schema.references] is schema]


def _raising(error: PayloadError) -> Callable[[bytes, Framing], object]:
    def read(payload: bytes, framing: Framing) -> Any:
        raise error

    return read


def _refuse_encrypted(schema: Schema, rule: Mapping[str, object], encrypted: bytes) -> None:
    place = f"{schema.subject} version {schema.version}"
    key = encryption.key_of(rule, encrypted)
    raise PayloadError("encrypted", f"a rule of {place} encrypts payloads{key}")


def _protobuf_reader(
    messages: Callable[[tuple[int, ...]], MessageReader],
) -> Callable[[bytes, Framing], object]:
    def read(payload: bytes, framing: Framing) -> Any:
        index, at = framing.index, framing.start
        if index is None and at:
            index, at = message_index(payload, at)
        return messages(index or (0,)).read(payload[at:])

    return read


def _container(payload: bytes) -> DecodedPayload:
    try:
        return DecodedPayload(wire_formats.CONTAINER, avro_files.read_container(payload))
    except PayloadError as error:
        return failed(wire_formats.CONTAINER, payload, error)

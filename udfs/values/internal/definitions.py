"""Loads Kafka's message definitions from ``messages/*.json``.

A message has fields; a field has a type, and the versions of the message in which it is there. In a flexible
version lengths are unsigned varints ("compact"), and a message ends with tagged fields. Read more in
``clients/src/main/resources/common/message/README.md`` of Kafka's sources.

The files have the definitions of all RELEASES in one: ``since`` is the release that has a message or field
first, ``releases`` gives the versions of a message by release (``tools/message_definitions.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kafka_log_lake.udfs.values.internal.releases import NEWEST, RELEASES, is_after

_MOST = 0x7FFF


@dataclass(frozen=True)
class Versions:
    """A range of versions, both ends included; empty where low is above high."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parses a range as definitions write it: "none", "3", "0-4" or "2+"."""
        if text == "none":
            return NONE
        low, _, high = text.removesuffix("+").partition("-")
        return cls(int(low), _MOST if text.endswith("+") else int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


NONE = Versions(0, -1)


@dataclass(frozen=True)
class MessageField:
    """A field of a message or of a struct in it.

    type: a primitive's name, or a struct's; of the items where is_array. fields: those of the struct, of all
    versions. tag: its number in the versions ``tagged``, or -1. default: as the definition has it, or None.
    """

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Any
    fields: tuple[MessageField, ...]


@dataclass(frozen=True)
class MessageDefinition:
    """A message of Kafka: its name, versions and fields.

    kind: the ``type`` of Kafka's file, such as "metadata". api_key: the record type of a coordinator's key
    and value, or the API key of a metadata record. flexible: the versions with compact lengths and tagged
    fields.
    """

    name: str
    kind: str
    api_key: int
    versions: Versions
    flexible: Versions
    fields: tuple[MessageField, ...]


def _field(source: Mapping[str, Any], structs: Mapping[str, Any]) -> MessageField:
    kind = source["type"].removeprefix("[]")
    tagged = source.get("taggedVersions", "none")
    name = source["name"]
    return MessageField(
        name=name[0].lower() + name[1:],
        type=kind,
        is_array=source["type"].startswith("[]"),
        # As Kafka's generator does: versions may be left out where taggedVersions is given
        versions=Versions.parse(source.get("versions", tagged)),
        nullable=Versions.parse(source.get("nullableVersions", "none")),
        tagged=Versions.parse(tagged),
        tag=source.get("tag", -1),
        default=source.get("default"),
        fields=tuple(_field(f, structs) for f in source.get("fields") or structs.get(kind, ())),
    )


def _message(source: Mapping[str, Any]) -> MessageDefinition:
    structs = {struct["name"]: struct["fields"] for struct in source.get("commonStructs", ())}
    return MessageDefinition(
        name=source["name"],
        kind=source["type"],
        api_key=source.get("apiKey", -1),
        versions=Versions.parse(source["validVersions"]),
        flexible=Versions.parse(source["flexibleVersions"]),
        fields=tuple(_field(field, structs) for field in source["fields"]),
    )


def as_of(source: Mapping[str, Any], release: str) -> dict[str, object] | None:
    """Returns a definition of a file, or a part of one, as a release has it; None if it has none."""
    if is_after(source.get("since", RELEASES[0]), release):
        return None
    definition = {name: part for name, part in source.items() if name not in ("since", "releases")}
    for since, versions in source.get("releases", {}).items():
        if not is_after(since, release):
            definition["validVersions"] = versions
    for name in ("fields", "commonStructs"):
        if name in definition:
            definition[name] = [
                part for entry in definition[name] if (part := as_of(entry, release)) is not None
            ]
    if not definition.get("commonStructs", True):
        del definition["commonStructs"]
    return definition


def definitions(name: str) -> list[dict[str, object]]:
    """Returns the definitions of a file in ``messages``, named without ``.json``, of all releases."""
    folder = resources.files("kafka_log_lake.udfs.values.internal").joinpath("messages")
    sources: list[dict[str, Any]] = json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return sources


@cache
def messages(name: str, release: str = NEWEST) -> tuple[MessageDefinition, ...]:
    """Returns the message definitions of a file in ``messages``, named without ``.json``, as of a release."""
    known = (as_of(source, release) for source in definitions(name))
    return tuple(_message(source) for source in known if source is not None)

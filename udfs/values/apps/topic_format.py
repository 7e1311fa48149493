"""Names what a topic holds: its kind, the serdes inside and the size of its windows.

A file of formats declares it for topics by regular expression; ``recognise`` finds it. Between processes it
goes as a label, in the place where ``json``, ``text`` or ``bytes`` stands for other topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kafka_log_lake.udfs.format.patterns import compiled

if TYPE_CHECKING:
    import re

    import regex

WINDOWED = {"time-windowed", "session-windowed"}  # also in front of a serde: time-windowed:string
SERDES = (
    *("string", "long", "integer", "short", "double", "float", "uuid", "bytes", "json"),
    *("registry", "avro", "protobuf", "jsonschema"),  # framed, and read by the schema registry
)
REGISTERED = frozenset(SERDES[-4:])
PLAIN_KINDS = frozenset(("plain", "text", "kv-changelog", "versioned-changelog", "dlq"))
STREAMS_KINDS = (
    *("window-changelog", "time-windowed", "session-changelog", "session-windowed", "changed"),
    *("suppress-changelog", "fk-registration", "fk-response", "fk-store-changelog", "outer-join-changelog"),
)
CONNECT_KINDS = ("connect-config", "connect-status", "connect-offset", "connect-json")
# Key and value are read together: what they say is one object
WHOLE_KINDS = frozenset(("mm2-heartbeat", "mm2-checkpoint", "mm2-offset-sync"))
KINDS = (*sorted(PLAIN_KINDS), *STREAMS_KINDS, *CONNECT_KINDS, *sorted(WHOLE_KINDS))
_MARK = ";"  # in a label, and in no other name of what a topic holds
_MOST_MS = (1 << 63) - 1


@dataclass(frozen=True)
class TopicFormat:
    """What the keys and values of a topic are.

    kind: one of KINDS. key, value: serdes inside, "" where they are not known. window_size_ms: what the log
    does not say of time windows; None if it is not known. writer: who wrote them, for people.
    retain_duplicates: whether a window store keeps several values of a key. is_declared: a person says so; a
    payload that does not fit is an error then, and else stays as it is.
    """

    kind: str
    key: str = ""
    value: str = ""
    window_size_ms: int | None = None
    writer: str = ""
    retain_duplicates: bool = False
    is_declared: bool = True

    @property
    def label(self) -> str:
        """Returns the format as text, without commas."""
        size = "" if self.window_size_ms is None else str(self.window_size_ms)
        return _MARK.join((self.kind, self.key, self.value, size, self.certainty))

    @property
    def certainty(self) -> str:
        """Returns declared, where a person says so, or recognised, by name and bytes."""
        return "declared" if self.is_declared else "recognised"

    @classmethod
    def of_label(cls, label: str) -> TopicFormat | None:
        """Returns the format that ``label`` wrote; None for the name of a plain format."""
        if _MARK not in label:
            return None
        kind, key, value, size, said = label.split(_MARK)
        return cls(kind, key, value, int(size) if size else None, is_declared=said == "declared")


@dataclass(frozen=True)
class TopicFormats:
    """The formats that a person gives for topics: (regular expression for the whole name, format)."""

    declared: tuple[tuple[str, TopicFormat], ...] = ()

    def of(self, topic: str) -> TopicFormat | None:
        """Returns the format of the first expression that takes the topic; None without one."""
        return next((format_ for pattern, format_ in self._compiled if pattern.fullmatch(topic)), None)

    @cached_property
    def _compiled(self) -> list[tuple[regex.Pattern[str] | re.Pattern[str], TopicFormat]]:
        return [(compiled(pattern), format_) for pattern, format_ in self.declared]

    @property
    def text(self) -> str:
        """Returns all of it as text: the same text for the same formats, "" for none."""
        return "\n".join(f"{pattern}\t{format_.label}" for pattern, format_ in self.declared)

    def as_mapping(self) -> dict[str, dict[str, object]]:
        """Returns what ``parsed`` reads."""
        return {
            pattern: {name: held for name in _NAMES if (held := getattr(format_, name))}
            for pattern, format_ in self.declared
        }

    @classmethod
    def joined(cls, parts: Iterable[TopicFormats]) -> TopicFormats:
        return cls(tuple(format_ for part in parts for format_ in part.declared))

    @classmethod
    def parsed(cls, held: object) -> TopicFormats:
        """Returns the formats of a file's content. Raises a ValueError that says what is wrong."""
        if not isinstance(held, Mapping):
            raise ValueError("it is no mapping of topics to formats")
        return cls(tuple((_pattern(topic), _format(topic, said)) for topic, said in held.items()))


# What a file of formats says of a topic
_NAMES = tuple(field.name for field in fields(TopicFormat) if field.name != "is_declared")


def _pattern(topic: object) -> str:
    if not isinstance(topic, str):
        raise ValueError(f"{topic}: not a text: write it in quotes")
    try:
        compiled(topic)
    except ValueError as error:
        raise ValueError(f"{topic[:100]}: {error}") from None
    return topic


def _format(topic: object, said: object) -> TopicFormat:
    """Returns the format that one topic of a file has: a mapping, or the name of a kind."""
    named = {"kind": said} if isinstance(said, str) else said
    if not isinstance(named, Mapping):
        raise ValueError(f"{topic}: neither a kind nor a mapping")
    unknown = [str(name) for name in named if name not in _NAMES]
    if unknown:
        raise ValueError(f"{topic}: unknown {unknown[0]!r}; known are {', '.join(sorted(_NAMES))}")
    kind = named.get("kind", "plain")
    if kind not in KINDS:
        raise ValueError(f"{topic}: unknown kind {kind!r}; known are {', '.join(KINDS)}")
    format_ = TopicFormat(str(kind), _serde(topic, named.get("key")), _serde(topic, named.get("value")))
    size = named.get("window_size_ms")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= _MOST_MS):
        raise ValueError(f"{topic}: window_size_ms is {size!r}, and no number of milliseconds above 0")
    duplicates = named.get("retain_duplicates") or False
    return replace(
        format_,
        window_size_ms=size,
        writer=str(named.get("writer") or ""),
        retain_duplicates=bool(duplicates),
    )


def _serde(topic: object, name: object) -> str:
    if name is None:
        return ""
    window, _, inner = str(name).rpartition(":")
    if inner not in SERDES or (window and window not in WINDOWED):
        raise ValueError(f"{topic}: unknown serde {name!r}; known are {', '.join(SERDES)}")
    return str(name)

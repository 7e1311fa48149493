"""What a restore was asked to do: its arguments, checked, in a form that worker processes can be given."""

from __future__ import annotations

import hashlib
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.cli.values import is_topic_name, is_utf8
from kafka_log_lake.udfs.storage.regular_file import read_regular
from kafka_log_lake.udfs.values.internal.topics import TOPICS as INTERNAL

_MOST_FILE = 16 << 20  # bytes of a file of keys or of properties
# Kafka's own Java names of what librdkafka calls otherwise
_OF_LIBRDKAFKA = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
    "ssl.key.password": "ssl.key.password",
    "sasl.mechanism": "sasl.mechanism",
}
_JAAS = re.compile(r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")


@dataclass(frozen=True)
class Request:
    """What to restore, and where to.

    lake: its address; at: the run whose state is read, None for now; bootstrap: HOST:PORT of the target, ""
    of a dry run without one; client: properties of librdkafka, with secrets; state: the folder of what was
    done. topics, exclude_topics: regular expressions; partitions_of: of the sources, () for all; since,
    until: ms since 1970, until is exclusive; offsets: FROM:TO; keys: () for all. committed: what a
    READ_COMMITTED consumer gets. rename: pairs of a regular expression and a replacement. partitions: of the
    target, None to keep the sources'. rate: bytes a second in all, None for no limit. more: other arguments.
    """

    lake: str
    at: str | None
    bootstrap: str
    state: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    topics: str | None = None
    exclude_topics: str | None = None
    partitions_of: tuple[int, ...] = ()
    since: int | None = None
    until: int | None = None
    offsets: str | None = None
    keys: tuple[bytes, ...] = ()
    committed: bool = True
    rename: tuple[tuple[str, str], ...] = ()
    partitions: int | None = None
    with_origin: bool = False
    create: str = "ask"
    append: bool = False
    dry_run: bool = False
    rate: int | None = None
    processes: int = 1
    more: Mapping[str, Any] = field(default_factory=dict)

    def renamed(self, topic: str) -> str:
        """Returns the name that a topic has in the target: the first ``--rename`` that its whole name meets.

        Raises a UserError for a name that Kafka does not take.
        """
        for expression, new in self.rename:
            if (match := re.fullmatch(expression, topic)) is not None:
                try:
                    topic = match.expand(new)
                except (re.error, IndexError) as error:
                    raise UserError(f"--rename {printable(expression)}={printable(new)}: {error}") from None
                break
        if topic in INTERNAL:
            raise UserError(f"--rename gives the name {topic}, which is of a topic of Kafka's own")
        if not is_topic_name(topic):
            raise UserError(
                f"the topic {printable(topic)!r} has no name that Kafka takes: add --rename 'REGEX=NEW'"
            )
        return topic

    @property
    def conditions(self) -> list[str]:
        """Returns the conditions on records in DuckDB's SQL, without those on topics."""
        low, _, high = (self.offsets or ":").partition(":")
        texts = [
            *([f'r."offset" >= {int(low)}'] if low else []),
            *([f'r."offset" < {int(high)}'] if high else []),
            *([f"r.timestamp_ms >= {self.since}"] if self.since is not None else []),
            *([f"r.timestamp_ms < {self.until}"] if self.until is not None else []),
        ]
        if self.partitions_of:
            texts.append(f"r.partition IN ({', '.join(map(str, self.partitions_of))})")
        if self.keys:
            texts.append("r.key IN (" + ", ".join(f"from_hex('{key.hex()}')" for key in self.keys) + ")")
        return texts

    @property
    def fingerprint(self) -> str:
        """Returns a hash of all that decides which records go where; a state is of one fingerprint."""
        what = {
            **{
                name: getattr(self, name)
                for name in ("at", "topics", "exclude_topics", "since", "until", "offsets")
            },
            **{name: getattr(self, name) for name in ("committed", "partitions", "with_origin")},
            "lake": self.lake,
            "partitions_of": sorted(self.partitions_of),
            "keys": sorted(key.hex() for key in self.keys),
            "rename": [list(pair) for pair in self.rename],
        }
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def read_keys(path: str) -> tuple[bytes, ...]:
    """Reads a file of keys, one a line: text, or ``0x`` and hexadecimal digits. Raises a UserError."""
    text = _read("--keys", path).removeprefix(BOM_UTF8)
    lines = [line.rstrip(b"\r") for line in text.split(b"\n")]
    keys = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        if not line.startswith(b"0x"):
            keys.append(line)
            continue
        try:
            keys.append(bytes.fromhex(line[2:].decode()))
        except ValueError:
            raise UserError(f"--keys {path}, line {number}: 0x is followed by pairs of hex digits") from None
    if not keys:
        raise UserError(f"--keys {path} has no key: write one a line")
    return tuple(dict.fromkeys(keys))


def read_properties(path: str) -> dict[str, str]:
    """Reads a client's properties file, of Kafka's Java clients or of librdkafka, for librdkafka.

    The user and the password of ``sasl.jaas.config`` become librdkafka's own. Raises a UserError, in which no
    value stands.
    """
    properties: dict[str, str] = {}
    try:
        text = _read("--config", path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"--config {path} is not UTF-8: it must be a properties file") from None
    for number, line in _properties(text):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise UserError(f"--config {path}, line {number}: write name=value")
        properties[name.strip()] = value.strip()
    jaas = properties.pop("sasl.jaas.config", "")
    for name, *quoted in _JAAS.findall(jaas):
        value = re.sub(r"\\(.)", r"\1", next(filter(None, quoted), ""))
        properties.setdefault(f"sasl.{name}", value)
    if jaas and "sasl.username" not in properties:
        raise UserError(f'--config {path}: sasl.jaas.config has no username="..." and password="..."')
    kind = properties.pop("ssl.truststore.type", "PEM").upper()
    if kind != "PEM":
        raise UserError(
            f"--config {path}: librdkafka reads certificates as PEM, not {printable(kind)}: "
            "name a PEM file by ssl.ca.location"
        )
    for java, name in _OF_LIBRDKAFKA.items():
        if java in properties:
            properties.setdefault(name, properties[java])
            if name != java:
                del properties[java]
    for name in ("ssl.truststore.password", "key.serializer", "value.serializer", "key.deserializer"):
        properties.pop(name, None)
    properties.pop("value.deserializer", None)
    return properties


def _properties(text: str) -> Iterator[tuple[int, str]]:
    """Yields the properties of a file with the number of their first line.

    A line that ends with an odd number of backslashes goes on with the next one, as in Java's files.
    """
    begun, number_of = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        if not begun and (not stripped or stripped[0] in "#!"):
            continue
        number_of = number_of if begun else number
        begun += stripped
        if (len(begun) - len(begun.rstrip("\\"))) % 2 and stripped:
            begun = begun[:-1]
        else:
            yield number_of, begun
            begun = ""


def rename_pairs(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of ``--rename 'REGEX=NEW'``; NEW may hold groups as ``\\1``. Raises a UserError."""
    pairs = []
    for text in texts:
        expression, equals, new = text.rpartition("=")
        if not equals or not expression or not new:
            raise UserError(f"--rename {printable(text)}: write REGEX=NEW, such as 'orders(.*)=restored\\1'")
        try:
            re.compile(expression)
        except re.error as error:
            raise UserError(f"--rename {printable(text)} is no regular expression: {error}") from None
        pairs.append((expression, new))
    return tuple(pairs)


def _read(named: str, path: str) -> bytes:
    if not is_utf8(path):
        raise UserError(f"{named}: {printable(path)} is not UTF-8")
    try:
        return read_regular(path, _MOST_FILE)
    except OSError as error:
        raise UserError(f"{named}: cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{named}: {path}: {error}") from None


def check(settings: Settings, path: list[str], request_of: Mapping[str, Any]) -> None:
    """Raises a UserError for arguments that contradict each other."""
    sources = [*settings.source, *path]
    if sources and settings.lake is not None:
        raise UserError("name SOURCES or --lake, not both: sources are decoded into the --state folder")
    if not sources and settings.lake is None:
        raise UserError("name what to restore: SOURCE... (log directories or segments) or --lake LAKE")
    if request_of["at"] is not None and settings.lake is None:
        raise UserError("--at is a state of a lake: it needs --lake")
    if request_of["bootstrap_server"] is None and not request_of["dry_run"]:
        raise UserError("--bootstrap-server is missing: name a broker of the target, such as localhost:9092")
    if request_of["committed"] and request_of["as_written"]:
        raise UserError("--committed and --as-written exclude each other")

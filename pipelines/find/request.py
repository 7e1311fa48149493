"""Checks the options of ``find`` and turns them into conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafka_log_lake.pipelines.cli.commands.find import NOT
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.values import is_utf8, moment, nearest, one_of, option, partition_number
from kafka_log_lake.pipelines.find.conditions import (
    Anywhere,
    Condition,
    Contains,
    HasHeader,
    InBounds,
    IsNull,
    JsonField,
    Matches,
    Not,
    OneOf,
    Prefix,
    check_pattern,
    compiled_path,
    looks_into_values,
    with_payloads,
)
from kafka_log_lake.pipelines.find.segment_search import Criteria
from kafka_log_lake.udfs.batches.account import SEGMENT, WRONG_BASE
from kafka_log_lake.udfs.batches.transactions import ABORTED, COMMITTED, OPEN
from kafka_log_lake.udfs.decoder.decoded import Bounds
from kafka_log_lake.udfs.storage.regular_file import read_regular

if TYPE_CHECKING:
    from kafka_log_lake.udfs.values.schemas.topic_payloads import TopicPayloads

_MOST = 1 << 63
_MOST_KEYS = 256 << 20  # bytes of a file of keys
_INT64 = re.compile(r"-?[0-9]{1,19}")


@dataclass
class Request:
    """The records to find, and how many of them.

    conditions: all of them must hold.
    keys: a match has one of them; none where keys are not given. offsets: a match lies in one of these
    bounds. partitions, outcomes: a match has one of each set; none of it where the set comes with False.
    committed: only what a READ_COMMITTED consumer gets. limit: matches, at most. only: "first"
    or "last": that many of each partition; None: of all. context: records before and after each match.
    superseded: whether to tell if a later record of the key follows.
    """

    conditions: list[Condition] = field(default_factory=list)
    keys: tuple[bytes, ...] = ()
    offsets: tuple[Bounds, ...] = ()
    since: int | None = None
    until: int | None = None
    partitions: list[tuple[frozenset[int], bool]] = field(default_factory=list)
    outcomes: list[tuple[frozenset[str], bool]] = field(default_factory=list)
    committed: bool = False
    limit: int | None = None
    only: str | None = None
    trust_partitioner: bool = False
    count: bool = False
    context: int = 0
    superseded: bool = False

    @property
    def search(self) -> Criteria:
        """Returns what to look for in a segment."""
        return Criteria(tuple(self.conditions), any(wanted for _, wanted in self.outcomes))

    @property
    def is_bounded(self) -> bool:
        """Returns whether parts of a log can't match by their offsets or times, and are not read."""
        return bool(self.offsets) or self.since is not None

    @property
    def needs_transactions(self) -> bool:
        """Returns whether the outcomes of transactions decide what matches."""
        return self.committed or bool(self.outcomes)

    @property
    def causes(self) -> tuple[str, ...]:
        """Returns the causes of missing offsets that may hide a match, WRONG_BASE if offsets matter."""
        return (SEGMENT, WRONG_BASE) if self.offsets else (SEGMENT,)

    @property
    def looks_at_keys(self) -> bool:
        """Returns whether a condition reads keys."""
        return any("key" in condition.columns for condition in self.conditions)

    @property
    def looks_into_values(self) -> bool:
        """Returns whether a condition looks into values, so that their schemas matter."""
        return any(map(looks_into_values, self.conditions))

    def with_payloads(self, payloads: TopicPayloads) -> Request:
        """Returns the request for one topic, with conditions that look into schema-encoded values too."""
        return replace(self, conditions=[with_payloads(condition, payloads) for condition in self.conditions])

    @property
    def limit_of_a_log(self) -> int | None:
        """Returns the most matches of one partition; None: unlimited."""
        return (self.limit or 1) if self.only else self.limit

    def left_of_a_log(self, matches: int) -> int | None:
        """Returns how many matches of the next partition are wanted; None: all. found: matches so far."""
        most = self.limit_of_a_log
        return None if most is None else most - (0 if self.only else matches)

    def may_hide(self, first: int | None, last: int | None) -> bool:
        """Returns whether damage at offsets ``first`` (None: none) to ``last`` (None: any) may hide one.

        Where outcomes of transactions decide, the marker of one may lie after the offsets requested.
        """
        if first is None or self.overlaps(first, last):
            return True
        return self.needs_transactions and self.overlaps(0, last)

    def takes(self, partition: int) -> bool:
        """Returns whether records of a partition may match."""
        return all((partition in numbers) == wanted for numbers, wanted in self.partitions)

    def overlaps(self, first: int, last: int | None) -> bool:
        """Returns whether offsets from ``first`` to ``last`` (None: the end) may be among those requested."""
        return not self.offsets or any(
            (b.high is None or first < b.high) and (last is None or b.low is None or last >= b.low)
            for b in self.offsets
        )


def make_request(options: Mapping[str, Any], **others: Any) -> Request:
    """Builds a request from options by their names; ``not_key`` negates ``key``.

    Raises a UserError for a wrong value. others: fields of Request.
    """
    request = Request(**others)
    for name, values in options.items():
        if values is None or values is False or values == [] or values == ():
            continue
        wanted, plain = not name.startswith(NOT), name.removeprefix(NOT)
        texts = [values] if isinstance(values, str | bytes | int) else list(values)
        try:
            add = _ADD.get(plain)
            if add is None:
                raise UserError(f"unknown condition {name!r}{nearest(plain, _ADD)}")
            add(request, texts, wanted)
        except (ValueError, TypeError) as error:
            shown = option("where_json" if plain == "json" else plain)
            raise UserError(f"{shown if wanted else f'--not {shown}'} {error}") from None
    return request


# The options


def _either(request: Request, condition: Condition, wanted: bool) -> None:
    request.conditions.append(condition if wanted else Not(condition))


def _key(request: Request, texts: list[Any], wanted: bool) -> None:
    keys = tuple(dict.fromkeys(key for text in texts for key in _keys(text)))
    if wanted:
        request.keys = keys
    _either(request, OneOf("key", pa.array(keys, pa.binary())), wanted)


def _keys(text: object) -> Iterator[bytes]:
    if not isinstance(text, str) or not text.startswith("@"):
        yield _bytes(text, is_hex=True)
        return
    try:
        content = read_regular(text[1:], _MOST_KEYS)
    except OSError as error:
        raise ValueError(f"{text}: cannot read the file: {error.strerror}") from None
    lines = content.split(b"\0")
    if len(lines) == 1:
        lines = [line.removesuffix(b"\r") for line in content.split(b"\n")]
    if not any(lines):
        raise ValueError(f"{text}: the file holds no key")
    yield from filter(None, lines)


def _bytes(text: object, is_hex: bool = False) -> bytes:
    """Returns the bytes of a text, for a command's argument as typed. is_hex: ``0x`` begins hexadecimal."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise ValueError(f"must be text or bytes, not {text!r}")
    if is_hex and text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise ValueError(f"{text}: 0x must be followed by pairs of hexadecimal digits") from None
    return text.encode("utf-8", "surrogateescape")


Add = Callable[[Request, list[object], bool], None]


def _each(condition: Callable[[Any], Condition]) -> Add:
    """Returns the function of an option of which each value adds a condition."""

    def add(request: Request, texts: list[Any], wanted: bool) -> None:
        for text in texts:
            _either(request, condition(text), wanted)

    return add


def _regex(column: str, text: Any) -> Matches:
    try:
        check_pattern(text)
    except ValueError as error:
        rule = "a regular expression of RE2 (no lookaround, no backreference)"
        raise ValueError(f"must be {rule}; {text!r} does not compile: {error}") from None
    return Matches(column, text)


def _json_field(value: object) -> JsonField:
    """Parses PATH=VALUE: PATH ends at the first ``=`` before which it is valid; filters may hold ``=``."""
    text, why = str(value), "it has no ="
    for place in [at for at, character in enumerate(text) if character == "="]:
        try:
            path = text[:place].strip()
            compiled_path(path)
            return JsonField(path, text[place + 1 :])
        except ValueError as error:
            why = str(error)
    raise ValueError(
        f"must be PATH=VALUE with a JSONPath, such as user.id=5 or $.items[0].name=x; {text!r}: {why}"
    )


def _header(text: object) -> HasHeader:
    name, equals, value = str(text).partition("=")
    if not name:
        raise ValueError(f"must be NAME or NAME=VALUE, not {text!r}")
    if not is_utf8(name):
        raise ValueError(f"must have a name in UTF-8, not {text!r}")
    return HasHeader(name, _bytes(value) if equals else None)


def _offset(request: Request, texts: list[object], wanted: bool) -> None:
    bounds = tuple(_bounds(str(text)) for text in texts)
    if wanted:
        request.offsets = bounds
    _either(request, InBounds("offset", bounds), wanted)


def _bounds(text: str) -> Bounds:
    low, colon, high = text.partition(":")
    try:
        first, end = (_number(part) if part else None for part in (low, high))
    except ValueError:
        first = end = None
    if not colon and first is not None and first >= 0:
        return Bounds(first, first + 1)
    is_range = (first is not None or end is not None) and (first is None or end is None or first < end)
    if not is_range or min(first or 0, end or 0) < 0:
        raise ValueError(f"must be N, or FROM:TO such as 100:200 for 100 to 199, 100: or :200, not {text!r}")
    return Bounds(first, end)


def _number(text: Any) -> int:
    if not _INT64.fullmatch(str(text)) or not -_MOST <= int(text) < _MOST:
        raise ValueError(f"must be a whole number, not {text!r}")
    return int(text)


def _since(request: Request, texts: list[object], wanted: bool) -> None:
    since = (max if wanted else min)(map(moment, texts))
    if wanted:
        request.since = since
    _either(request, InBounds("timestamp_ms", (Bounds(since, None),)), wanted)


def _until(request: Request, texts: list[object], wanted: bool) -> None:
    until = (min if wanted else max)(map(moment, texts))
    if wanted:
        request.until = until
    _either(request, InBounds("timestamp_ms", (Bounds(None, until),)), wanted)


def _producer(request: Request, texts: list[object], wanted: bool) -> None:
    _either(request, OneOf("producer_id", pa.array(map(_number, texts), pa.int64())), wanted)


def _transaction(request: Request, texts: list[object], wanted: bool) -> None:
    outcome = one_of(OPEN, ABORTED, COMMITTED)
    request.outcomes.append((frozenset(map(outcome, texts)), wanted))


def _partition(request: Request, texts: list[Any], wanted: bool) -> None:
    request.partitions.append((frozenset(map(partition_number, texts)), wanted))


_ADD: dict[str, Add] = {
    "key": _key,
    "key_prefix": _each(lambda text: Prefix(_bytes(text, is_hex=True))),
    "key_regex": _each(partial(_regex, "key")),
    "value_contains": _each(lambda text: Contains(_bytes(text))),
    "text": _each(lambda text: Anywhere(_bytes(text))),
    "value_regex": _each(partial(_regex, "value")),
    "json": _each(_json_field),
    "header": _each(_header),
    "tombstones": _each(lambda _: IsNull("value")),
    "partition": _partition,
    "offset": _offset,
    "since": _since,
    "until": _until,
    "producer": _producer,
    "transaction": _transaction,
}

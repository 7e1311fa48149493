"""Defines the conditions on records, each evaluated over whole Arrow columns.

A condition gives bool[n] for record batches with these
columns; a null never matches, so that ``Not`` holds for it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kafka_log_lake.udfs.compute import pc
from kafka_log_lake.udfs.decoder.decoded import Bounds
from kafka_log_lake.udfs.kernels.substring import equal_to

if TYPE_CHECKING:
    from kafka_log_lake.udfs.values.schemas.topic_payloads import (
        TopicPayloads,  # decoders, which most conditions do not need
    )


class Condition(ABC):
    """A condition on records, usually on one column of ``records``."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the columns of ``records`` that the condition reads."""
        return (self.column,)

    @property
    def literals(self) -> tuple[bytes, ...]:
        """Returns texts of which the bytes of every match hold one; () if there are no such texts."""
        return ()

    @abstractmethod
    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        """Returns bool[n]: which records match."""


@dataclass(frozen=True)
class Not(Condition):
    """Condition: another condition does not hold."""

    condition: Condition

    @property
    def columns(self) -> tuple[str, ...]:
        return self.condition.columns

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        return ~self.condition.matches(records)


@dataclass(frozen=True)
class OneOf(Condition):
    """Condition: a column equals one of several values."""

    column: str
    values: pa.Array

    @property
    def literals(self) -> tuple[bytes, ...]:
        return tuple(self.values.to_pylist()) if pa.types.is_binary(self.values.type) else ()

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        column = records.column(self.column)
        if len(self.literals) == 1:
            return _equal(column, self.literals[0])
        return _mask(pc.is_in(column, value_set=self.values))


@dataclass(frozen=True)
class InBounds(Condition):
    """Condition: a column lies in one of several bounds (low included, high not)."""

    column: str
    bounds: tuple[Bounds, ...]

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        values = records.column(self.column).to_numpy()
        is_inside = np.zeros(len(values), dtype=bool)
        for low, high in self.bounds:
            inside = np.ones(len(values), dtype=bool)
            if low is not None:
                inside &= values >= low
            if high is not None:
                inside &= values < high
            is_inside |= inside
        return is_inside


@dataclass(frozen=True)
class _Text(Condition):
    """Base of the conditions that look for one text."""

    text: bytes

    @property
    def literals(self) -> tuple[bytes, ...]:
        return (self.text,)


class Prefix(_Text):
    """Condition: the key begins with a text."""

    column = "key"

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        return _mask(pc.starts_with(records.column(self.column), pattern=self.text))


class Contains(_Text):
    """Condition: the value contains a text."""

    column = "value"

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        return _mask(pc.match_substring(records.column(self.column), pattern=self.text))


class Anywhere(_Text):
    """Condition: the key, the value, or the name or value of a header contains a text."""

    @property
    def columns(self) -> tuple[str, ...]:
        return ("key", "value", "headers")

    @property
    def literals(self) -> tuple[bytes, ...]:
        """Returns the text; () if it holds U+FFFD, as a header's name that is not UTF-8 is shown with it."""
        return () if "\ufffd".encode() in self.text else (self.text,)

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        is_held = self._holds(records.column("key")) | self._holds(records.column("value"))
        lists = records.column("headers")
        pairs, parents = lists.flatten(), pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        of_header = self._holds(pairs.field(0).cast(pa.binary())) | self._holds(pairs.field(1))
        is_held[parents[of_header]] = True
        return is_held

    def _holds(self, column: pa.Array) -> np.ndarray:
        return _mask(pc.match_substring(column, pattern=self.text)).copy()


@dataclass(frozen=True)
class Matches(Condition):
    """Condition: a regular expression of RE2, whose time is linear in the text, matches within a column.

    What is UTF-8 is matched as text, all else byte by byte: ``.`` is a character there, a byte here.
    """

    column: str
    pattern: str

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        values = records.column(self.column)
        as_text = pc.match_substring_regex(values.view(pa.string()), self.pattern)
        if _is_text(values):
            return _mask(as_text)
        is_text = pa.array([_is_utf8(value) for value in values.to_pylist()])
        return _mask(pc.if_else(is_text, as_text, pc.match_substring_regex(values, self.pattern)))


def check_pattern(pattern: str) -> None:
    """Raises a ValueError that says why a regular expression does not compile."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error).removeprefix("Invalid regular expression: ")) from None


def _is_text(values: pa.Array) -> bool:
    try:
        values.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_utf8(value: bytes | None) -> bool:
    if value is None:
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True)
class IsNull(Condition):
    """Condition: a column is null."""

    column: str

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        return _mask(records.column(self.column).is_null())


@dataclass(frozen=True)
class HasHeader(Condition):
    """Condition: a header has this name and this value (None: any); a null value equals none."""

    name: str
    value: bytes | None = None
    column = "headers"

    @property
    def literals(self) -> tuple[bytes, ...]:
        """Returns the name; () if it holds U+FFFD, as a name that is not UTF-8 is shown with it."""
        if self.value:
            return (self.value,)
        return () if "\ufffd" in self.name else (self.name.encode(),)

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        lists = records.column(self.column)
        pairs, parents = lists.flatten(), pc.list_parent_indices(lists)
        equal = pc.equal(pairs.field(0), pa.scalar(self.name))
        if self.value is not None:
            equal = pc.and_(equal, pc.equal(pairs.field(1), pa.scalar(self.value, pa.binary())))
        is_held = np.zeros(len(lists), dtype=bool)
        is_held[parents.to_numpy(zero_copy_only=False)[_mask(equal)]] = True
        return is_held


@dataclass(frozen=True)
class JsonField(Condition):
    """Condition: a JSONPath (RFC 9535) leads to a given value in a JSON or schema-encoded record value.

    wanted: the text to compare with a string, or to compare as JSON. payloads: of the topic; None: only
    JSON values are searched.
    """

    path: str
    wanted: str
    payloads: TopicPayloads | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return ("value",) if self.payloads is None else ("value", "headers")

    @cached_property
    def _compiled(self) -> Any:
        return compiled_path(self.path)

    @cached_property
    def _as_json(self) -> object:
        try:
            return json.loads(self.wanted, parse_int=_integer)
        except ValueError:
            return self.wanted

    def matches(self, records: pa.RecordBatch) -> np.ndarray:
        values = records.column("value").to_pylist()
        if self.payloads is None:
            return np.fromiter((self._is_in(value) for value in values), dtype=bool, count=len(values))
        both = zip(values, records.column("headers").to_pylist(), strict=True)
        return np.fromiter((self._is_in(*pair) for pair in both), dtype=bool, count=len(values))

    def _is_in(self, value: bytes | None, headers: list[dict[str, Any]] | None = None) -> bool:
        if not value:
            return False
        try:
            document = None
            if self.payloads is not None:
                pairs = [(header["key"], header["value"]) for header in headers or ()]
                document = self.payloads.document(value, pairs)
            if document is None:
                document = json.loads(value.decode(), parse_int=_integer)
            nodes = self._compiled.findall(document)
            return any(node == self.wanted or _same(node, self._as_json) for node in nodes)
        except (ValueError, RecursionError):
            return False


def with_payloads(condition: Condition, payloads: TopicPayloads) -> Condition:
    """Returns the condition with a topic's schemas: a JsonField then searches schema-encoded values too."""
    if isinstance(condition, Not):
        return Not(with_payloads(condition.condition, payloads))
    return replace(condition, payloads=payloads) if isinstance(condition, JsonField) else condition


def looks_into_values(condition: Condition) -> bool:
    """Returns whether the condition is a JsonField or the negation of one: ``with_payloads`` changes it."""
    return isinstance(condition.condition if isinstance(condition, Not) else condition, JsonField)


def compiled_path(path: str) -> object:
    """Compiles a JSONPath of RFC 9535; its ``$.`` may be left out, also before names such as in and true.

    Raises a ValueError that says what is wrong with it.
    """
    import jsonpath  # which takes 0.1 s

    root = "" if path.startswith("$") else "$" if path.startswith(("[", ".")) else "$."
    try:
        return jsonpath.JSONPathEnvironment(strict=True).compile(root + path)
    except jsonpath.JSONPathError as error:
        raise ValueError(str(error).splitlines()[0]) from None


def _integer(digits: str) -> int | float:
    """Parses an integer of JSON; one too long for Python's limit becomes a float, as in JavaScript."""
    return int(digits) if len(digits) < 4000 else float(digits)


def _same(one: object, other: object) -> bool:
    """Returns whether two values of JSON are equal: true is not 1, at any depth."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _equal(values: pa.Array, wanted: bytes) -> np.ndarray:
    """Returns bool[n]: which values (binary[n]) equal these bytes; false where one is null."""
    valid, bounds, content = values.buffers()
    is_equal, first = np.zeros(len(values), dtype=bool), values.offset
    equal_to(
        np.frombuffer(content or b"", dtype=np.uint8),
        np.frombuffer(bounds, dtype=np.int32)[first : first + len(values) + 1],
        np.frombuffer(wanted, dtype=np.uint8),
        is_equal,
    )
    if values.null_count and is_equal.any():
        bits = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little")
        is_equal &= bits[first : first + len(values)].astype(bool)
    return is_equal


def _mask(mask: pa.Array) -> np.ndarray:
    """Converts a boolean Arrow array to bool[n], false where it is null."""
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


def columns_of(conditions: Iterable[Condition]) -> set[str]:
    """Returns the columns that conditions read."""
    return {name for condition in conditions for name in condition.columns}


def matching(conditions: Sequence[Condition], records: pa.RecordBatch) -> np.ndarray:
    """Returns int64[n]: the row numbers of the records for which all conditions hold."""
    numbers = np.arange(records.num_rows)
    for condition in conditions:
        numbers = numbers[condition.matches(taken(records, numbers))]
        if not len(numbers):
            break
    return numbers


def taken(records: pa.RecordBatch, numbers: np.ndarray) -> pa.RecordBatch:
    """Returns the records with these row numbers (int64[n], rising)."""
    return records if len(numbers) == records.num_rows else records.take(pa.array(numbers))

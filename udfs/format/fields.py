"""A field of a batch as it is stored: its name in Kafka's words, place, value, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as field_of
from typing import Any, NamedTuple

from kafka_log_lake.udfs.format import faults

Buffer = bytes | memoryview


def integer(data: Buffer, at: int, size: int, signed: bool = True) -> int:
    """Returns the big-endian integer of ``size`` bytes at ``at``, which are there."""
    return int.from_bytes(data[at : at + size], "big", signed=signed)


class Wrong(NamedTuple):
    """What is wrong: the code of a fault, its place in the data, and the two numbers of its text."""

    fault: int
    at: int
    expected: int
    found: int = 0
    field: str = ""

    @property
    def name(self) -> str:
        """Returns the name of the field that is wrong."""
        return self.field or faults.FAULTS[self.fault].field

    @property
    def text(self) -> str:
        """Returns the fault in words, without its place."""
        return faults.text_of(self.fault, self.expected, self.found, self.field)

    def describe(self, begin: int) -> str:
        """Returns the fault in words, with its place, as the table ``quarantine`` has it.

        begin: position of the data in the segment; -1 for an expanded payload.
        """
        at = begin + self.at if begin >= 0 else -1 - self.at
        return faults.describe(self.fault, self.expected, self.found, at, self.field)


class Field(NamedTuple):
    """A field: its name in Kafka's words, place in the data, bytes that it takes, value.

    value: an integer; bytes (a slice of the data); None for null, with size 0. wrong: None for nothing.
    """

    name: str
    at: int
    size: int
    value: Any
    wrong: Wrong | None = None

    @property
    def problem(self) -> str:
        """Returns what is wrong in words, without the field's name; "" for nothing."""
        return "" if self.wrong is None else self.wrong.text.removeprefix(f"{self.name}: ")


@dataclass(slots=True)
class Stored:
    """A record, a message or a header as it is stored.

    fields: in order, up to the first that can't be read. end: where the next one begins; where reading
    stopped if something is wrong. wrong: why nothing more can be read, or why the whole is refused.
    """

    begin: int
    end: int
    fields: list[Field] = field_of(default_factory=list)
    wrong: Wrong | None = None

    def field(self, name: str) -> Field:
        """Returns the first field with a name, which was read."""
        return next(one for one in self.fields if one.name == name)

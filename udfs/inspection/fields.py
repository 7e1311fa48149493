"""A field: a place, its name in Kafka's words, its value, what it means, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from udfs.format import layout as f
from udfs.format.varints import varint_at
from udfs.words import count_of

FILE, PAYLOAD = "file", "payload"  # where a field is: in the segment, or in the expanded payload
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 240


@dataclass(frozen=True)
class Field:
    """at: its first byte, in the segment or in the expanded payload. size: in bytes, 0 for what is missing.

    level: 0 for fields of the batch, 1 for a record, 2 for its fields, 3 for its headers. problem: what was
    expected and found, where it is wrong.
    """

    name: str
    at: int
    size: int
    value: str
    meaning: str = ""
    level: int = 0
    place: str = FILE
    problem: str = ""


class Broken(Exception):
    """The bytes can't be read on: where, how many bytes, what was expected and what was found."""

    def __init__(self, at: int, size: int, problem: str) -> None:
        super().__init__(problem)
        self.at, self.size, self.problem = at, size, problem


class Reader:
    """Reads a buffer field by field into ``fields``. base: added to the places in it."""

    def __init__(self, data: bytes, base: int, place: str, at: int = 0) -> None:
        self.data, self.at, self._base, self._place = data, at, base, place
        self.fields: list[Field] = []

    def add(
        self, name: str, at: int, size: int, value: str, meaning: str = "", level: int = 0, problem: str = ""
    ) -> None:
        """Adds a field; ``at`` counts from the begin of the buffer."""
        place = self._base + at
        self.fields.append(Field(name, place, size, value, meaning, level, self._place, problem))

    def broken(self, at: int, size: int, problem: str) -> Broken:
        """Why it can't be read on; ``at`` counts from the begin of the buffer."""
        return Broken(self._base + at, size, problem)

    def integer(
        self,
        name: str,
        size: int,
        meaning: str | Callable[[int], str] = "",
        level: int = 0,
        *,
        signed: bool = True,
        shown: Callable[[int], str] = str,
        check: Callable[[int], str] = lambda _: "",
    ) -> int:
        """Reads a big-endian integer. check: says what is wrong with a value, "" for nothing."""
        raw = self.data[self.at : self.at + size]
        if len(raw) < size:
            problem = f"{name}: expected {count_of(size, 'byte')}, found {len(raw)}"
            raise self.broken(self.at, len(raw), problem)
        number = int.from_bytes(raw, "big", signed=signed)
        words = meaning(number) if callable(meaning) else meaning
        self.add(name, self.at, size, shown(number), words, level, check(number))
        self.at += size
        return number

    def varint(
        self, name: str, end: int, meaning: str = "", level: int = 2, *, bits: int = 32, problem: str = ""
    ) -> int:
        """Reads a zigzag varint that ends before ``end``."""
        begin = self.at
        found = varint_at(self.data, begin, end, bits)
        if found is None:
            most = f.MAX_VARINT_BYTES if bits == 32 else f.MAX_VARLONG_BYTES
            if end - begin >= most:
                wrong = f"a varint of {most} bytes at most, found a longer one"
            else:
                most, wrong = end - begin, "a varint, found the end inside of it"
            raise self.broken(begin, most, f"{name}: expected {wrong}")
        number, self.at = found
        size = self.at - begin
        kind = "varint" if bits == 32 else "varlong"
        zigzag = number << 1 if number >= 0 else ~(number << 1)
        words = f"{kind} of {size} byte{'s' * (size > 1)}, zigzag of {zigzag}"
        words = f"{meaning}; {words}" if meaning else words
        self.add(name, begin, size, str(number), words, level, problem)
        return number

    def content(self, name: str, size: int, meaning: str = "", level: int = 2) -> bytes:
        """Reads bytes that are there."""
        raw = self.data[self.at : self.at + size]
        self.add(name, self.at, size, shown_bytes(raw), f"{meaning}{kind_of(raw)}", level)
        self.at += size
        return raw


def shown_bytes(raw: bytes) -> str:
    """Bytes for a person: text in quotes where they are text, else hexadecimal digits."""
    text = _as_text(raw)
    if text is not None:
        return f'"{text[:_SHOWN]}"' + ("…" if len(text) > _SHOWN else "")
    return raw[: _SHOWN // 4].hex(" ") + (" …" if len(raw) > _SHOWN // 4 else "")


def kind_of(raw: bytes) -> str:
    if not raw:
        return "empty, which is not null"
    return "text" if _as_text(raw) is not None else "bytes"


def _as_text(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\n\t\r" for c in text) else None


def moment(milliseconds: int) -> str:
    """A timestamp in words."""
    if milliseconds == f.NO_TIMESTAMP:
        return "no timestamp"
    if not f.MIN_TIMESTAMP_MS <= milliseconds <= f.MAX_TIMESTAMP_MS:
        return "outside the years 1 to 9999"
    when = _EPOCH + timedelta(milliseconds=milliseconds)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")

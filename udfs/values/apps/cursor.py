"""Reads the fields of a payload one after another. Numbers are big-endian, as Kafka's serializers write."""

from __future__ import annotations

from kafka_log_lake.udfs.values.schemas.payload import PayloadError, text_of
from kafka_log_lake.udfs.words import count_of


class Cursor:
    """The bytes of a payload and a position in them. What it reads raises a PayloadError."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self._data, self.at, self._end = data, at, len(data) if end is None else end
        if self._end < at:
            raise PayloadError("truncated", f"{count_of(at, 'byte')} wanted, {len(data)} there", 0)

    @property
    def left(self) -> int:
        return self._end - self.at

    def number(self, size: int) -> int:
        """Reads a signed number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def flag(self, *known: int) -> int:
        """Reads a byte that must be one of ``known``."""
        at, byte = self.at, self.number(1)
        if byte not in known:
            raise PayloadError("unexpected_value", f"a byte of {byte & 0xFF:#04x}", at)
        return byte

    def take(self, size: int) -> bytes:
        if size < 0:
            raise PayloadError("negative_length", f"a length of {size}", self.at)
        if size > self.left:
            raise PayloadError("truncated", f"{count_of(size, 'byte')} wanted, {self.left} left", self.at)
        self.at += size
        return self._data[self.at - size : self.at]

    def rest(self) -> bytes:
        return self.take(self.left)

    def sized(self, least: int = 0) -> bytes | None:
        """Reads an int32 and as many bytes; None for -1, where ``least`` allows it."""
        size = self.number(4)
        return None if size == -1 and least < 0 else self.take(size)

    def text16(self) -> str:
        """Reads a text after an int16 with its length (Kafka's STRING)."""
        size = self.number(2)
        start = self.at
        self.take(size)
        return text_of(self._data, start, self.at)

    def varint(self) -> int:
        """Reads a zigzag varint of 32 bits at most (``ByteUtils.readVarint``)."""
        raw = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return raw >> 1 ^ -(raw & 1)
        raise PayloadError("varint_too_long", "a varint of more than 5 bytes", self.at)

    def ends(self) -> None:
        """Raises a PayloadError where bytes are left."""
        if self.left:
            raise PayloadError("trailing_bytes", f"{count_of(self.left, 'byte')} after the end", self.at)

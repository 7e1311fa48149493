"""Parses codecs with their levels, as in Kafka's ``compression.<codec>.level`` (``CompressionType``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafka_log_lake.udfs.format import layout as f

# Least level, most, and Kafka's default; snappy has no levels
_LEVELS = {"gzip": (1, 9, 6), "snappy": None, "lz4": (1, 17, 9), "zstd": (-131_072, 22, 3)}
LZ4_FAST = 9  # the default: Kafka takes it for the fast compressor, and every other level for LZ4 HC


@dataclass(frozen=True)
class CodecLevel:
    """A codec and a level of it; None for a codec without levels."""

    codec: str
    level: int | None

    def __str__(self) -> str:
        return self.codec if self.level is None else f"{self.codec}:{self.level}"

    def allows(self, magic: int) -> bool:
        """Tells whether Kafka has this codec for batches of this magic."""
        return self.codec != "zstd" or magic >= f.MAGIC_V2


def parse_level(text: str) -> CodecLevel:
    """Parses ``gzip:6``, or ``gzip`` for Kafka's default level.

    Raises a ValueError for a codec or a level that Kafka does not have.
    """
    match = re.fullmatch(r"(\w+)(?::(-?[0-9]+))?", text)
    if match is None or match[1] not in _LEVELS:
        raise ValueError(f"{text!r} is none of {', '.join(_LEVELS)}, with or without a level as in gzip:6")
    levels = _LEVELS[match[1]]
    if levels is None:
        if match[2] is not None:
            raise ValueError(f"{match[1]} has no levels")
        return CodecLevel(match[1], None)
    least, most, default = levels
    level = default if match[2] is None else int(match[2])
    if not least <= level <= most:
        raise ValueError(f"{match[1]} has the levels {least} to {most}, not {level}")
    return CodecLevel(match[1], level)


def parse_levels(text: str) -> tuple[CodecLevel, ...]:
    """Parses codecs with their levels, separated by commas; returns each once."""
    return tuple(dict.fromkeys(parse_level(part.strip()) for part in text.split(",")))

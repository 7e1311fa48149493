"""Kafka's own Java library as the writer: the same records in several formats, batchings and codecs."""

from __future__ import annotations

import base64
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kafka.reader import classpath
from tests.support.java import quick_java

SOURCE = Path(__file__).with_name("KafkaWriter.java")


@dataclass(frozen=True)
class Written:
    """A record as it is given to Kafka."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()

    def line(self) -> str:
        parts = [
            self.key,
            self.value,
            *(part for key, value in self.headers for part in (key.encode(), value)),
        ]
        return " ".join([str(self.offset), str(self.timestamp), *map(_binary, parts)])


@dataclass(frozen=True)
class Form:
    """How a segment is written. records: of a batch. level: None for none and snappy."""

    magic: int
    records: int
    codec: str = "none"
    level: int | None = None

    def arguments(self, name: str) -> list[str]:
        level = "-" if self.level is None else str(self.level)
        return [name, str(self.magic), str(self.records), self.codec, level]


def _binary(data: bytes | None) -> str:
    return "-" if data is None else "=" + base64.b64encode(data).decode()


def write_segments(records: Iterable[Written], forms: Sequence[Form]) -> Mapping[Form, bytes]:
    """The segment of each form, all with the same records: one start of a JVM for all."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*quick_java(), "-cp", classpath(), "org.codehaus.janino.SimpleCompiler"]
        command += [str(SOURCE), "KafkaWriter", folder]
        for number, form in enumerate(forms):
            command += form.arguments(str(number))
        given = "".join(f"{record.line()}\n" for record in records)
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"KafkaWriter failed:\n{done.stderr}")
        return {form: Path(folder, str(number)).read_bytes() for number, form in enumerate(forms)}

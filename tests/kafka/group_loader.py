"""Kafka's group coordinator, of a release, as the judge of what loads: ``KafkaGroupLoader.java``."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.kafka.broker import broker_classpath
from tests.kafka.reader import JANINO
from tests.support.java import quick_java

_SOURCE = Path(__file__).with_name("KafkaGroupLoader.java")
Log = Sequence[tuple[bytes | None, bytes | None]]


def refused(logs: Iterable[Log], release: str) -> list[int | None]:
    """Returns of each log the number of the first (key, value) that stops the coordinator; None for none."""
    lines = [json.dumps([[_text(key), _text(value)] for key, value in log]) for log in logs]
    command = [*quick_java(), "-cp", broker_classpath(release), JANINO, str(_SOURCE), "KafkaGroupLoader"]
    done = subprocess.run(
        command,
        input="\n".join(lines) + "\n",
        env={**os.environ, "JAVA_TOOL_OPTIONS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(answers) != len(lines):
        raise RuntimeError(f"KafkaGroupLoader failed:\n{done.stderr[:3000]}")
    return [answer.get("at") for answer in answers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()

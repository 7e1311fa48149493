"""Kafka's own loaders, of a release, as the judges of what loads.

``KafkaGroupLoader.java`` has the group and the share coordinator, ``KafkaStateLoader.java`` the transaction
coordinator, the image of the metadata log and the store of Connect's configurations.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.kafka.broker import broker_classpath
from tests.kafka.reader import JANINO, ROOT, classpath
from tests.support.java import quick_java

_BY_RUNTIME = ("__consumer_offsets", "__share_group_state")
# Stands in for the parts of a broker that a loader asks
_MOCKITO = ("org.mockito:mockito-core:5.18.0",), ROOT / "build" / "kafka" / "mockito"
Log = Sequence[tuple[bytes | None, bytes | None]]


def answers(topic: str, logs: Iterable[Log], release: str) -> list[dict[str, Any]]:
    """Returns of each log of a topic, as (key, value), what the loader of a release says of it."""
    name = "KafkaGroupLoader" if topic in _BY_RUNTIME else "KafkaStateLoader"
    source = Path(__file__).with_name(f"{name}.java")
    jars = broker_classpath(release)
    if topic not in _BY_RUNTIME:
        jars = os.pathsep.join([jars, classpath(*_MOCKITO)])
    lines = [json.dumps([[_text(key), _text(value)] for key, value in log]) for log in logs]
    done = subprocess.run(
        [*quick_java(), "-cp", jars, JANINO, str(source), name, topic],
        input="\n".join(lines) + "\n",
        env={**os.environ, "JAVA_TOOL_OPTIONS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or len(found) != len(lines):
        raise RuntimeError(f"{name} failed:\n{done.stderr[:3000]}")
    return found


def refused(topic: str, logs: Iterable[Log], release: str) -> list[int | None]:
    """Returns of each log the number of the first (key, value) that stops the loader; None for none."""
    return [answer.get("at") for answer in answers(topic, logs, release)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()

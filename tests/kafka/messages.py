"""Kafka's own classes as the judge of the messages in internal topics: ``KafkaMessages.java``.

The jars are those of the newest release's broker (``tests.kafka.broker``).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kafka.broker import NEWEST, broker_classpath
from tests.kafka.reader import JANINO
from tests.support.java import quick_java

_SOURCE = Path(__file__).with_name("KafkaMessages.java")

# By file of definitions: the Java package of the classes that Kafka generates from them
JAVA_PACKAGES = {
    "consumer_offsets": "org.apache.kafka.coordinator.group.generated",
    "transaction_state": "org.apache.kafka.coordinator.transaction.generated",
    "share_group_state": "org.apache.kafka.coordinator.share.generated",
    "cluster_metadata": "org.apache.kafka.common.metadata",
    "remote_log_metadata": "org.apache.kafka.server.log.remote.metadata.storage.generated",
    "consumer_protocol": "org.apache.kafka.common.message",
    "control_records": "org.apache.kafka.common.message",
}


@dataclass(frozen=True)
class Filled:
    """A message to write. file: of its definition; fields: as JSON, or None for Kafka's defaults."""

    file: str
    name: str
    version: int
    fields: dict[str, Any] | None


def _ask(questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    java = [*quick_java(), "-cp", broker_classpath(NEWEST), JANINO]
    requested = [json.dumps(question) for question in questions]
    done = subprocess.run(
        [*java, str(_SOURCE), "KafkaMessages"],
        input="\n".join(requested) + "\n",
        env={**os.environ, "JAVA_TOOL_OPTIONS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"KafkaMessages failed:\n{done.stderr}")
    # Not splitlines: a text may hold other characters that end a line
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(requested), done.stderr
    return answers


def written(messages: Iterable[Filled]) -> list[tuple[bytes, dict[str, Any]]]:
    """How Kafka stores each message, and how its JSON converter writes it."""
    questions = [
        {"class": f"{JAVA_PACKAGES[m.file]}.{m.name}", "version": m.version, "json": m.fields}
        for m in messages
    ]
    answers = _ask(questions)
    errors = [(q, a["error"]) for q, a in zip(questions, answers, strict=True) if "error" in a]
    if errors:
        raise RuntimeError(f"Kafka could not write {errors[0]}")
    return [(base64.b64decode(answer["bytes"]), answer["json"]) for answer in answers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def read(records: Iterable[tuple[str, bytes | None, bytes | None]]) -> list[dict[str, Any]]:
    """What a broker reads of each (topic, key, value).

    {key, value, version} as far as a record has them, key and value as JSON; or {error}.
    """
    return _ask({"topic": topic, "key": _text(key), "value": _text(value)} for topic, key, value in records)

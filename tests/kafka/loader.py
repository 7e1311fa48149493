"""Kafka's own loader of logs as the judge: what a broker makes of a partition folder when it starts.

The jars are those of the broker (``tests.kafka.broker``).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.broker import broker_classpath
from tests.kafka.reader import JANINO
from tests.support.java import quick_java

_SOURCE = Path(__file__).with_name("KafkaLoader.java")


def load(folders: Sequence[Path]) -> list[tuple[int, int]]:
    """The start and end offset of the log in each folder; the files are changed as a broker changes them."""
    command = [*quick_java("-Xmx256m"), "-cp", broker_classpath(), JANINO, str(_SOURCE)]
    done = subprocess.run(
        [*command, "KafkaLoader", *map(str, folders)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"KafkaLoader failed:\n{done.stdout}{done.stderr}")
    lines = [line.split() for line in done.stdout.splitlines()]
    return [(int(start), int(end)) for start, end in lines]

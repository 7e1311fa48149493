"""Makes ``udfs/values/internal/messages`` from the message definitions in the jars of Apache Kafka.

python -m tools.message_definitions FOLDER

FOLDER holds kafka-clients, kafka-group-coordinator, kafka-transaction-coordinator, kafka-share-coordinator,
kafka-metadata and kafka-storage of one release. The tests that ask Kafka put those of 4.1.0 into
``build/kafka/internal/jars``, and compare what is bundled with them.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MESSAGES = Path(__file__).resolve().parent.parent / "udfs" / "values" / "internal" / "messages"

# By file: the jar, and what the names of its definitions match
_SOURCES = {
    "consumer_offsets": ("kafka-group-coordinator", r".*"),
    "transaction_state": ("kafka-transaction-coordinator", r".*"),
    "share_group_state": ("kafka-share-coordinator", r".*"),
    "cluster_metadata": ("kafka-metadata", r".*"),
    "remote_log_metadata": ("kafka-storage", r"Remote.*"),
    "consumer_protocol": ("kafka-clients", r"ConsumerProtocol.*"),
    "control_records": (
        "kafka-clients",
        r"LeaderChangeMessage|(?:Snapshot(?:Head|Foot)er|KRaftVersion|Voters)Record",
    ),
}
_NOT_OF_BYTES = {"about", "entityType", "ignorable", "mapKey", "zeroCopy", "latestVersionUnstable"}


def _compact(definition: Any) -> Any:
    """Returns a definition without the attributes that say nothing about the bytes."""
    if isinstance(definition, list):
        return [_compact(item) for item in definition]
    if isinstance(definition, dict):
        return {name: _compact(value) for name, value in definition.items() if name not in _NOT_OF_BYTES}
    return definition


def _definitions(jar: Path, names: str) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(jar) as content:
        for path in content.namelist():
            match = re.fullmatch(r"(?:common/)?(?:message|metadata)/(\w+)\.json", path)
            if match and re.fullmatch(names, match[1]):
                text = content.read(path).decode()
                yield _compact(json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)))


def files(folder: Path) -> dict[str, str]:
    """Returns file name -> JSON text, made from the jars in a folder: one definition per line, sorted."""
    made = {}
    for name, (jar, names) in _SOURCES.items():
        (found,) = [p for p in folder.glob("*.jar") if re.search(rf"{jar}-\d[\d.]*\.jar$", p.name)]
        definitions = sorted(_definitions(found, names), key=lambda d: (d.get("apiKey", 0), d["name"]))
        lines = ",\n".join(json.dumps(d, separators=(",", ":")) for d in definitions)
        made[f"{name}.json"] = f"[\n{lines}\n]\n"
    return made


def main(argv: Sequence[str]) -> int:
    if len(argv) != 1 or not Path(argv[0]).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    for name, text in files(Path(argv[0])).items():
        (MESSAGES / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

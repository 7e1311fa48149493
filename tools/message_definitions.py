"""Makes ``udfs/values/internal/messages`` from the message definitions in the jars of Apache Kafka.

python -m tools.message_definitions

The jars of VERSIONS come from the Maven registry, by Spark's package resolution. A definition holds what all
releases have. A message or field says in ``since`` which release has it first; without it the oldest has it.
``releases`` of a message gives its versions by release, where they are not the same. Exit code 1 if the
registry has a newer release: what it has more is printed.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark

from tools.spark_ready import resolve

SPARK_HOME = Path(pyspark.__file__).parent
MESSAGES = Path(__file__).resolve().parent.parent / "udfs" / "values" / "internal" / "messages"
# By release the newest version when it was read: one of a release changes no definition
VERSIONS = {"4.1": "4.1.2", "4.2": "4.2.2", "4.3": "4.3.1", "4.4": "4.4.0"}

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
Definition = dict[str, Any]


def _compact(definition: Any) -> Any:
    """Returns a definition without the attributes that say nothing about the bytes."""
    if isinstance(definition, list):
        return [_compact(item) for item in definition]
    if isinstance(definition, dict):
        return {name: _compact(value) for name, value in definition.items() if name not in _NOT_OF_BYTES}
    return definition


def _definitions(jar: Path, names: str) -> Iterator[Definition]:
    with zipfile.ZipFile(jar) as content:
        for path in content.namelist():
            match = re.fullmatch(r"(?:common/)?(?:message|metadata)/(\w+)\.json", path)
            if match and re.fullmatch(names, match[1]):
                text = content.read(path).decode()
                yield _compact(json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)))


def definitions(jars: Iterable[Path]) -> dict[str, list[Definition]]:
    """Returns the definitions of one release by file, sorted. jars: its own, among others."""
    listed, made = list(jars), {}
    for name, (jar, names) in _SOURCES.items():
        (found,) = [p for p in listed if re.search(rf"{jar}-\d[\d.]*\.jar$", p.name)]
        made[name] = sorted(_definitions(found, names), key=lambda d: (d.get("apiKey", 0), d["name"]))
    return made


def _since(before: Definition) -> Definition:
    return {name: before[name] for name in ("since",) if name in before}


def _merge_fields(old: Sequence[Definition], new: Sequence[Definition], release: str) -> list[Definition]:
    """Returns the fields of the newer release, with ``since`` where older ones lack them."""
    known = {field["name"]: field for field in old}
    found = []
    for field in new:
        before = known.pop(field["name"], None)
        if before is None:
            found.append(field | {"since": release})
            continue
        own = field | _since(before)
        if "fields" in field:
            own["fields"] = _merge_fields(before["fields"], field["fields"], release)
        if own | {"fields": None} != before | {"fields": None}:
            raise ValueError(f"{release} has another {field['name']}: {before} became {field}")
        found.append(own)
    if known:
        raise ValueError(f"{release} has no field {', '.join(known)}: its bytes could not be read")
    return found


def _merge(before: Definition, new: Definition, release: str, oldest: str) -> Definition:
    """Returns the definition of the newer release, with what older ones lack marked."""
    found = new | _since(before) | {name: before[name] for name in ("releases",) if name in before}
    if before["validVersions"] != new["validVersions"]:
        first = {before.get("since", oldest): before["validVersions"]}
        found["releases"] = before.get("releases", first) | {release: new["validVersions"]}
    found["fields"] = _merge_fields(before["fields"], new["fields"], release)
    structs = {struct["name"]: struct for struct in before.get("commonStructs", ())}
    for struct in found.get("commonStructs", ()):
        if struct["name"] in structs:
            struct |= _since(structs[struct["name"]])
            struct["fields"] = _merge_fields(structs[struct["name"]]["fields"], struct["fields"], release)
        else:
            struct["since"] = release
    return found


def merged(jars: Mapping[str, Iterable[Path]]) -> dict[str, str]:
    """Returns file name -> JSON text of the definitions of several releases: one definition a line.

    jars: by release, such as 4.1, the oldest first. Raises ValueError where a release takes away or changes
    what an older one has: readers know a field as the newest has it.
    """
    oldest, *later = jars
    known = {name: {one["name"]: one for one in found} for name, found in definitions(jars[oldest]).items()}
    for release in later:
        for name, found in definitions(jars[release]).items():
            for one in found:
                before = known[name].get(one["name"])
                new = one | {"since": release} if before is None else _merge(before, one, release, oldest)
                known[name][one["name"]] = new
    made = {}
    for name, of_file in known.items():
        listed = sorted(of_file.values(), key=lambda d: (d.get("apiKey", 0), d["name"]))
        lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in listed)
        made[f"{name}.json"] = f"[\n{lines}\n]\n"
    return made


def fetched(version: str) -> list[Path]:
    """Returns the jars of a version, such as 4.4.0 or latest.release, and of what they need."""
    names = sorted({jar for jar, _ in _SOURCES.values()})
    return resolve(",".join(f"org.apache.kafka:{name}:{version}" for name in names), SPARK_HOME)


def main() -> int:
    """Writes the files; returns 1 if the registry has a release that is not in VERSIONS."""
    jars = {release: fetched(version) for release, version in VERSIONS.items()}
    made = merged(jars)
    for name, text in made.items():
        (MESSAGES / name).write_text(text)
    latest = fetched("latest.release")
    (version,) = {
        found[1] for jar in latest if (found := re.search(r"kafka-metadata-([\d.]+)\.jar$", jar.name))
    }
    release = ".".join(version.split(".")[:2])
    if release in VERSIONS:
        print(f"definitions of {', '.join(VERSIONS.values())}; the registry has no newer release")
        return 0
    print(f"Kafka {version} is not in VERSIONS. Of its definitions these are new:", file=sys.stderr)
    for name, text in merged(jars | {release: latest}).items():
        for line in set(text.splitlines()) - set(made[name].splitlines()):
            print(f"{name}: {json.loads(line.removesuffix(','))['name']}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""The topics of the target: whether they are there and empty, what their settings do, how they are made."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.generated import shell_word
from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names
from kafka_log_lake.pipelines.restore.clients import REQUEST_SECONDS, ClientLog, admin, asking, consumer
from kafka_log_lake.pipelines.restore.cluster import TopicSpec
from kafka_log_lake.pipelines.restore.plan import Plan, TopicPlan
from kafka_log_lake.pipelines.restore.reading import Limits
from kafka_log_lake.pipelines.restore.request import Request

_MOST = 2**63 - 1
_REPLICATION = 3
_OF_BATCHES = ("max.message.bytes", "segment.bytes")  # a broker takes no batch that is larger
# Of a topic that is made, until all is restored: nothing of it is deleted, changed or refused
_MEANWHILE = {
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(_MOST),
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(_MOST),
}
_LIMITED = ("retention.ms", "message.timestamp.after.max.ms")  # by the broker, where the topic says nothing


@dataclass(frozen=True)
class Target:
    """The target as it is. partitions: of its topics; brokers: how many there are."""

    cluster_id: str
    brokers: int
    partitions: Mapping[str, int]


@dataclass
class Checked:
    """What was found of the target's topics. warnings: each says a setting, and how to set it back."""

    limits: dict[str, Limits] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def look(request: Request) -> Target:
    """Asks the target for its topics. Raises a UserError where no broker answers."""
    log = ClientLog()
    with asking(f"no answer from {request.bootstrap}", log):
        client = admin(request, log)
        listed = client.list_topics(timeout=REQUEST_SECONDS)
    topics = {name: len(topic.partitions) for name, topic in listed.topics.items() if topic.error is None}
    return Target(listed.cluster_id or "", len(listed.brokers), topics)


def missing(
    request: Request, plan: Plan, target: Target, specs: Mapping[str, TopicSpec]
) -> tuple[list[NewTopic], list[str]]:
    """Returns the topics that the target does not have, to be made, and what a person should know of them.

    specs: of the source's cluster metadata, by the source's name. Raises a UserError where they may not be.
    """
    absent = [topic for topic in plan.topics if topic.target not in target.partitions]
    if not absent:
        return [], []
    names = first_names([topic.target for topic in absent])
    if request.create == "never":
        raise UserError(f"the target has no topic {names}, and --create never: create it, or leave it out")
    if request.create == "ask" and not _agrees(names):
        raise UserError(f"the target has no topic {names}: add --create yes, or create it")
    made, fewer, changed = [], [], defaultdict(list)
    for topic in absent:
        spec = specs.get(topic.topic)
        # a metadata log may end before partitions were added
        number = request.partitions or max(spec.partitions if spec else 0, topic.source_partitions)
        wanted = spec.replication if spec else _REPLICATION
        copies = max(1, min(wanted, target.brokers))
        if copies < wanted:
            fewer.append(topic.target)
        configs = dict(spec.configs) if spec else {}
        meanwhile = _meanwhile(topic, configs, is_known=spec is not None)
        changed[_listed(meanwhile), _back(meanwhile, configs)].append(topic.target)
        made.append(NewTopic(topic.target, number, copies, config=configs | meanwhile))
    said = []
    if fewer:
        brokers = counted_noun(target.brokers, "broker")
        said.append(
            f"made with replication factor {target.brokers}, as there is {brokers}: {', '.join(fewer)}"
        )
    for (listed, back), topics in changed.items():
        said.append(
            f"made with {listed} until all is restored: {', '.join(topics)}; then back: "
            f"kafka-configs.sh --alter --topic TOPIC {back}"
        )
    log = ClientLog()
    client = admin(request, log)
    for topic_to_make in made:
        said += _drop_refused(client, topic_to_make, log)
    return made, said


def make(request: Request, topics: list[NewTopic]) -> None:
    """Creates topics, and waits until they have leaders."""
    if not topics:
        return
    log = ClientLog()
    client = admin(request, log)
    for name, future in client.create_topics(topics, request_timeout=REQUEST_SECONDS).items():
        with asking(f"the topic {name} can't be created", log):
            future.result()
    _await_leaders(client, [topic.topic for topic in topics])


def _drop_refused(client: AdminClient, topic: NewTopic, log: ClientLog) -> list[str]:
    """Takes the settings from a new topic that the target refuses, such as those that Kafka 4 has no more.

    Returns a text for each. Each is asked for alone where all together are refused.
    """

    def refusal(configs: dict[str, str]) -> str:
        asked = NewTopic(topic.topic, topic.num_partitions, topic.replication_factor, config=configs)
        (future,) = client.create_topics(
            [asked], validate_only=True, request_timeout=REQUEST_SECONDS
        ).values()
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].name() == "INVALID_CONFIG":
                return " ".join(error.args[0].str().split())
            raise
        return ""

    with asking(f"the topic {topic.topic} can't be created", log):
        if not refusal(topic.config):
            return []
        refused = {name: why for name, value in topic.config.items() if (why := refusal({name: value}))}
    said = [
        f"{topic.topic}: made without {name}={topic.config[name]}, which the target refuses: {why}"
        for name, why in refused.items()
    ]
    topic.config = {name: value for name, value in topic.config.items() if name not in refused}
    return said


def _meanwhile(topic: TopicPlan, configs: Mapping[str, str], *, is_known: bool) -> dict[str, str]:
    """Returns the settings that a new topic has until all is restored, where the source has others."""
    settings = {
        name: value
        for name, value in _MEANWHILE.items()
        if configs.get(name, None if name in _LIMITED else value) != value
    }
    largest = max((partition.largest for partition in topic.partitions), default=0) + 512
    return settings | ({"max.message.bytes": str(largest)} if not is_known and largest > 1_000_000 else {})


def _listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _back(settings: Iterable[str], configs: Mapping[str, str]) -> str:
    """Returns the options of kafka-configs.sh that set settings to what a topic had."""
    values = {name: configs[name] for name in settings if name in configs}
    added = [f"{name}=[{value}]" if "," in value else f"{name}={value}" for name, value in values.items()]
    none = [name for name in settings if name not in configs]
    options = (("--add-config", added), ("--delete-config", none))
    return " ".join(f"{option} {shell_word(','.join(of_it))}" for option, of_it in options if of_it)


def _agrees(names: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"the target has no topic {names}: create it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _await_leaders(client: AdminClient, names: Sequence[str]) -> None:
    """Waits until each partition of new topics has a leader."""
    until = time.monotonic() + REQUEST_SECONDS
    while time.monotonic() < until:
        with asking("the topics can't be listed"):
            listed = client.list_topics(timeout=REQUEST_SECONDS).topics
        if all(
            name in listed
            and listed[name].partitions
            and all(p.leader >= 0 for p in listed[name].partitions.values())
            for name in names
        ):
            return
        time.sleep(0.2)
    raise UserError("the topics that were made have no leaders: look at the brokers, then start again")


def check(request: Request, plan: Plan, target: Target, is_continued: bool) -> Checked:
    """Checks topics that are there before the first record, and says what their settings would do.

    Raises a UserError for one that has records, without ``--append``, or has too few partitions.
    """
    topics = [topic for topic in plan.topics if topic.target in target.partitions]
    if request.partitions is None:
        for topic in topics:
            needed = max((partition.partition for partition in topic.partitions), default=-1) + 1
            if needed > target.partitions[topic.target]:
                raise UserError(
                    f"{topic.target} has {counted_noun(target.partitions[topic.target], 'partition')} in the "
                    f"target and {needed} are needed: add partitions, or --partitions N"
                )
    elif wrong := [topic for topic in topics if target.partitions[topic.target] != request.partitions]:
        name = wrong[0].target
        raise UserError(
            f"{name} has {counted_noun(target.partitions[name], 'partition')} in the target, "
            f"and --partitions is {request.partitions}: they must be equal, as keys choose among all of them"
        )
    if not (is_continued or request.append) and (full := with_records(request, plan, target)):
        raise UserError(full[0])
    return _settings_of(request, topics)


def with_records(request: Request, plan: Plan, target: Target) -> list[str]:
    """Returns a text for each topic that has records in the target, with what to do about it."""
    log = ClientLog()
    with asking("the target's topics can't be read", log):
        reader = consumer(request, log)
        try:
            return [
                f"{topic.target} has records in the target: add --append to write "
                "after them, --rename to write elsewhere, or the --state of a restore to continue"
                for topic in plan.topics
                if topic.target in target.partitions
                and _has_records(reader, topic.target, target.partitions[topic.target])
            ]
        finally:
            reader.close()


def _has_records(reader: Consumer, topic: str, partitions: int) -> bool:
    """Says whether a topic of the target holds offsets, those of control records too."""
    for partition in range(partitions):
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), REQUEST_SECONDS)
        if high > low:
            return True
    return False


def _settings_of(request: Request, topics: Sequence[TopicPlan]) -> Checked:
    """Reads the settings of topics in the target. What they would delete or refuse is a warning each."""
    checked, log = Checked(), ClientLog()
    if not topics:
        return checked
    client = admin(request, log)
    asked = client.describe_configs(
        [ConfigResource(ResourceType.TOPIC, topic.target) for topic in topics],
        request_timeout=REQUEST_SECONDS,
    )
    of_topics = {}
    for resource, future in asked.items():
        with asking(f"the settings of {resource.name} can't be read", log):
            of_topics[resource.name] = {name: entry.value for name, entry in future.result().items()}
    for topic in topics:
        settings = of_topics[topic.target]
        checked.limits[topic.target] = Limits(
            min(int(settings.get(name) or 1_048_588) for name in _OF_BATCHES),
            int(settings.get("message.timestamp.before.max.ms") or _MOST),
            int(settings.get("message.timestamp.after.max.ms") or _MOST),
            settings.get("message.timestamp.type") != "LogAppendTime",
        )
        checked.warnings += warnings_of(topic, settings, checked.limits[topic.target])
    return checked


def warnings_of(topic: TopicPlan, settings: Mapping[str, str], limits: Limits) -> list[str]:
    """Returns what the settings of a topic would do to what is restored, with the commands against it."""
    now = time.time_ns() // 1_000_000
    times = [
        t
        for partition in topic.partitions
        for t in (partition.earliest, partition.latest)
        if t is not None and t != -1
    ]
    texts = []

    def meanwhile(name: str, value: str, why: str) -> None:
        was = settings.get(name)
        back = _back([name], {} if was is None else {name: was})
        texts.append(
            f"{topic.target}: {name}={was} {why}; meanwhile: kafka-configs.sh --alter --topic {topic.target} "
            f"{_back([name], {name: value})}, then back: {back}"
        )

    if "delete" in settings.get("cleanup.policy", ""):
        kept = int(settings.get("retention.ms") or -1)
        if limits.keeps_time and kept >= 0 and times and min(times) < now - kept:
            meanwhile("retention.ms", "-1", "deletes restored records, which are older")
        size = int(settings.get("retention.bytes") or -1)
        if 0 <= size < max((partition.bytes for partition in topic.partitions), default=0):
            meanwhile("retention.bytes", "-1", "deletes restored records, as they are more bytes")
    if "compact" in settings.get("cleanup.policy", ""):
        meanwhile("cleanup.policy", "delete", "removes restored records whose key comes again")
    if not limits.keeps_time:
        meanwhile("message.timestamp.type", "CreateTime", "replaces the timestamps of restored records")
    for name, value in (("before", min(times, default=-1)), ("after", max(times, default=-1))):
        setting = f"message.timestamp.{name}.max.ms"
        if limits.refuses(value, now) == setting:
            meanwhile(setting, str(_MOST), "refuses the timestamps of records, which are held back")
    largest = max((partition.largest for partition in topic.partitions), default=0) + 90
    if largest > limits.max_bytes:
        for name in _OF_BATCHES:
            if largest > int(settings.get(name) or largest):
                meanwhile(name, str(largest), "refuses the largest records, which are held back")
    if sum(partition.append_time for partition in topic.partitions) and limits.keeps_time:
        texts.append(
            f"{topic.target}: the brokers of the sources gave the timestamps (LogAppendTime); they are kept, "
            "as times of the producer"
        )
    return texts

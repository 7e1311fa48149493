"""Makes in the target what ``__cluster_metadata`` says of the source: settings of topics, and its security.

What Kafka's Admin API, or confluent-kafka, can't write is held back with the command that does it: quotas,
some ACLs, and the passwords of SCRAM users, of which the metadata has only hashes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.listing.cluster_state import ClusterState
from kafka_log_lake.pipelines.listing.metadata_log import (
    COLUMNS,
    decoded_records,
    is_whole,
    snapshots,
    state_of,
)
from kafka_log_lake.pipelines.listing.uris import local_path
from kafka_log_lake.pipelines.recover.state_files import acl_command, quota_command, topic_sizes
from kafka_log_lake.udfs.indexes.kraft_snapshot import METADATA_TOPIC
from kafka_log_lake.udfs.storage.regular_file import read_regular

if TYPE_CHECKING:
    import duckdb
    from confluent_kafka.admin import AclBinding, AdminClient

    from kafka_log_lake.pipelines.restore.request import Request

VIEWS = "FROM published_records"
ACLS, QUOTAS, SCRAM = "acls", "quotas", "scram"
KINDS = (ACLS, QUOTAS, SCRAM)
NO_QUOTA_CALL = "confluent-kafka has no call for quotas: run the command"
NO_PASSWORD = "the metadata has no password, only its hash: name it in --scram-passwords, or set a new one"
_SECONDS = 60.0
_MOST_FILE = 16 << 20
# Brokers of the source stand in their values
_OF_BROKERS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_INTERNAL = "internal."  # of Kafka's own tests: a broker obeys such a setting, and does not tell it
_RESOURCES = {"topic": "TOPIC", "group": "GROUP", "cluster": "BROKER", "transactional-id": "TRANSACTIONAL_ID"}


@dataclass(frozen=True)
class TopicSpec:
    """How a topic was made: its partitions, replicas of each, and its own settings."""

    partitions: int
    replication: int
    configs: Mapping[str, str]


@dataclass(frozen=True)
class SecurityDone:
    """An ACL, a quota or a SCRAM user, and what became of it in the target.

    held_back: why it is not there; "" where it is. command: what writes it by hand; "" without one.
    """

    kind: str
    name: str
    held_back: str = ""
    command: str = ""


def topic_specs(database: duckdb.DuckDBPyConnection, topics: Sequence[str]) -> dict[str, TopicSpec]:
    """Returns how topics were made, by their names in the source; {} without a metadata log.

    Settings that name brokers of the source, and internal ones, are left out.
    """
    state = cluster_state(database, topics)
    sizes = {} if state is None else topic_sizes(state)
    return {
        topic: TopicSpec(*sizes[topic], _configs(state, topic))
        for topic in topics
        if state is not None and topic in sizes
    }


def _configs(state: ClusterState, topic: str) -> dict[str, str]:
    settings = state.configs.get(("topic", topic), {})
    return {
        name: value
        for name, value in sorted(settings.items())
        if name not in _OF_BROKERS and not name.startswith(_INTERNAL)
    }


def cluster_state(database: duckdb.DuckDBPyConnection, topics: Sequence[str] = ()) -> ClusterState | None:
    """Returns the state by the metadata log of the lake; None without one.

    Of several logs the one that knows the most of the topics, then the one that reaches furthest. What a
    snapshot replaced is read from the snapshot, where the folder of the log is still on this machine.
    """
    folders = database.execute(
        "SELECT DISTINCT partition_dir FROM published_records WHERE topic = ? AND partition = 0 ORDER BY ALL",
        [METADATA_TOPIC],
    ).fetchall()
    states = [_state_of_log(database, folder) for (folder,) in folders]
    wanted = set(topics)
    return max(
        states, key=lambda state: (len(wanted & set(state.topics.values())), state.reached), default=None
    )


def _state_of_log(database: duckdb.DuckDBPyConnection, folder: str) -> ClusterState:
    rows = database.sql(
        f"""SELECT {", ".join(f'"{name}"' for name in COLUMNS)} FROM published_records
        WHERE topic = ? AND partition = 0 AND partition_dir = ? ORDER BY "offset" """,
        params=[METADATA_TOPIC, folder],
    )
    local = local_path(folder)
    known = snapshots(local) if local is not None else []
    newest = next(filter(is_whole, reversed(known)), None)
    return state_of(newest, decoded_records(rows.to_arrow_table().to_batches()))


def plan_security(request: Request, database: duckdb.DuckDBPyConnection) -> list[SecurityDone]:
    """Returns what ``--security`` would write, and what it can't. Raises what ``restore_security`` raises."""
    return _security(request, database, writes=False)


def restore_security(request: Request, database: duckdb.DuckDBPyConnection) -> list[SecurityDone]:
    """Writes what ``--security`` names of the source into the target, as far as its API takes it.

    ACLs of topics follow ``--rename``. What was written is read back. Raises a UserError for a file of
    passwords that can't be used.
    """
    return _security(request, database, writes=True)


def _security(request: Request, database: duckdb.DuckDBPyConnection, writes: bool) -> list[SecurityDone]:
    which: frozenset[str] = request.more.get("security") or frozenset()
    passwords = _passwords(request.more.get("scram_passwords"))
    state = cluster_state(database) if which else None
    if state is None:
        return [SecurityDone(kind, "(all)", "the lake has no __cluster_metadata") for kind in sorted(which)]
    done = [SecurityDone(kind, "(some)", state.unread_text) for kind in sorted(which) if state.unread_text]
    if ACLS in which:
        done += _acls(request, state, writes)
    if QUOTAS in which:
        done += _quotas(request, state)
    if SCRAM in which:
        done += _users(request, state, passwords, writes)
    return done


def lines(rows: Sequence[SecurityDone]) -> list[str]:
    """Returns lines of text for a person: how many were written, and how many were not and why."""
    if not rows:
        return []
    written = Counter(row.kind for row in rows if not row.held_back)
    text = ", ".join(f"{count:,} {kind}" for kind, count in sorted(written.items())) or "none"
    texts = [f"security     {text}"]
    reasons = Counter((row.kind, row.held_back) for row in rows if row.held_back)
    return texts + [f"  held back  {count:,} {kind}: {why}" for (kind, why), count in sorted(reasons.items())]


def _acls(request: Request, state: ClusterState, writes: bool) -> list[SecurityDone]:
    from kafka_log_lake.pipelines.restore.clients import admin

    done = list[SecurityDone]()
    asked: dict[AclBinding, SecurityDone] = {}
    for acl in sorted(state.acls.values(), key=lambda acl: sorted(acl.items())):
        renamed = _renamed(request, acl)
        row = SecurityDone(ACLS, _acl_name(renamed), command=acl_command(renamed, request.bootstrap))
        binding = _binding(renamed)
        if binding is None:
            done.append(replace(row, held_back="confluent-kafka does not know this kind: run the command"))
        else:
            asked[binding] = row
    if not asked or not writes:
        return [*done, *asked.values()]
    client = admin(request)
    for binding, future in client.create_acls(list(asked), request_timeout=_SECONDS).items():
        why = _failure(future)
        asked[binding] = replace(asked[binding], held_back=why) if why else asked[binding]
    there = _there(client)
    for binding, row in asked.items():
        lost = not row.held_back and _identity(binding) not in there
        row = replace(row, held_back="the target does not give it back") if lost else row
        done.append(row if row.held_back else replace(row, command=""))
    return sorted(done, key=attrgetter("name"))


def _renamed(request: Request, acl: Mapping[str, str]) -> dict[str, str]:
    """Returns the ACL of a topic under its new name; of a prefix, or of all topics, as it is."""
    renamed = dict(acl)
    is_one_topic = acl["resource_type"] == "topic" and acl["pattern_type"] == "literal"
    if is_one_topic and acl["resource_name"] != "*":
        try:
            renamed["resource_name"] = request.renamed(acl["resource_name"])
        except UserError:  # an ACL may name what no topic can be called
            return renamed
    return renamed


def _acl_name(acl: Mapping[str, str]) -> str:
    return (
        f"{acl['permission']} {acl['principal']} from {acl['host']} to {acl['operation']} "
        f"{acl['resource_type']} {acl['resource_name']} ({acl['pattern_type']})"
    )


def _binding(acl: Mapping[str, str]) -> AclBinding | None:
    """Returns an ACL as confluent-kafka has it; None where it does not know it."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    try:
        return AclBinding(
            ResourceType[_RESOURCES[acl["resource_type"]]],
            acl["resource_name"],
            ResourcePatternType[acl["pattern_type"].upper()],
            acl["principal"],
            acl["host"],
            AclOperation[acl["operation"].replace("-", "_").upper()],
            AclPermissionType[acl["permission"].upper()],
        )
    except KeyError:
        return None


def _identity(binding: AclBinding) -> tuple[object, ...]:
    places = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
    return tuple(getattr(binding, name) for name in places)


def _there(client: AdminClient) -> set[tuple[object, ...]]:
    """Returns the ACLs of the target; none where it does not tell them."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    everything = AclBindingFilter(
        *(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
    )
    try:
        bindings = client.describe_acls(everything, request_timeout=_SECONDS).result(_SECONDS)
    except KafkaException:
        return set()
    return {_identity(binding) for binding in bindings}


def _failure(future: Future[object]) -> str:
    """Returns why the target refused something, in one line; "" where it did not."""
    from confluent_kafka import KafkaException

    try:
        future.result(_SECONDS + 10)
    except KafkaException as error:
        refusal = error.args[0]
        if refusal.name() == "SECURITY_DISABLED":
            return "the target has no authorizer: set authorizer.class.name of its brokers"
        return " ".join(f"the target: {refusal.str()} ({refusal.name()})".split())
    return ""


def _quotas(request: Request, state: ClusterState) -> Iterator[SecurityDone]:
    for entity, values in sorted(state.quotas.items()):
        if values:
            shown = ", ".join(f"{name}={value}" for name, value in sorted(values.items()))
            command = quota_command(state, entity, request.bootstrap)
            yield SecurityDone(QUOTAS, f"{entity}: {shown}", NO_QUOTA_CALL, command)


def _users(
    request: Request, state: ClusterState, passwords: Mapping[str, str], writes: bool
) -> Iterator[SecurityDone]:
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    from kafka_log_lake.pipelines.restore.clients import admin

    by_user: dict[str, list[Any]] = defaultdict(list)
    for (name, mechanism), iterations in sorted(state.users.items()):
        kind = ScramMechanism[mechanism.replace("-", "_")]
        if name in passwords:
            info = ScramCredentialInfo(kind, iterations)
            made = UserScramCredentialUpsertion(name, info, passwords[name].encode())
            by_user[name].append((mechanism, made))
        else:
            yield SecurityDone(SCRAM, f"{name} ({mechanism})", NO_PASSWORD)
    if not by_user or not writes:
        yield from (
            SecurityDone(SCRAM, f"{name} ({kind})")
            for name, credentials in by_user.items()
            for kind, _ in credentials
        )
        return
    client = admin(request)
    asked = [made for some in by_user.values() for _, made in some]
    answers = client.alter_user_scram_credentials(asked, request_timeout=_SECONDS)
    for name, some in by_user.items():
        why = _failure(answers[name])
        yield from (SecurityDone(SCRAM, f"{name} ({mechanism})", why) for mechanism, _ in some)


def _passwords(path: str | None) -> dict[str, str]:
    """Reads ``user=password`` lines. Raises a UserError, in which no password stands."""
    if path is None:
        return {}
    try:
        text = read_regular(path, _MOST_FILE).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8, or too large"
        raise UserError(f"--scram-passwords: cannot read {path}: {reason}") from None
    passwords = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, password = line.partition("=")
        if line.strip() and not line.startswith("#"):
            if not (name and equals and password):
                raise UserError(f"--scram-passwords {path}, line {number}: write user=password")
            passwords[name] = password
    return passwords

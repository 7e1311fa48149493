"""Clients of the target cluster: how they are made, and their errors as one line without secrets."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from kafka_log_lake.pipelines.cli.errors import UserError, needs_extra, one_line
from kafka_log_lake.pipelines.restore.request import Request

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
    from confluent_kafka.admin import AdminClient
except ModuleNotFoundError as error:  # before anything is read
    raise needs_extra("restore", error) from None

REQUEST_SECONDS = 30.0  # of one question to the target
# What a restore decides itself: other values would lose its promise
DECIDED = (
    *("transactional.id", "enable.idempotence", "acks", "isolation.level", "enable.auto.commit", "group.id"),
    *("auto.offset.reset", "enable.partition.eof", "bootstrap.servers"),
)
_ADVICE = {
    "TOPIC_AUTHORIZATION_FAILED": "allow the user of --config Describe, Read, Write and DescribeConfigs "
    "of the topic, and Create where it is not there",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "allow the user of --config Describe and Write of the "
    "transactional id kafka-log-lake-restore- (prefixed)",
    "CLUSTER_AUTHORIZATION_FAILED": "allow the user of --config what it needs at the cluster",
    "_AUTHENTICATION": "correct the user and the password in --config",
    "SASL_AUTHENTICATION_FAILED": "correct the user and the password in --config",
    "_SSL": "correct the certificates in --config",
    "_ALL_BROKERS_DOWN": "start the brokers, or correct --bootstrap-server, or security.protocol in --config",
    "_TRANSPORT": "start the brokers, or correct --bootstrap-server, or security.protocol in --config",
    "_RESOLVE": "correct the host in --bootstrap-server",
    "_TIMED_OUT": "see that the brokers run, then start the same command again to continue",
    "_MSG_TIMED_OUT": "see that the brokers run, then start the same command again to continue",
    "KAFKA_STORAGE_ERROR": "free space on the brokers' disks, then start the same command again to continue",
    "UNKNOWN_TOPIC_OR_PART": "was it deleted? Then start anew with another --state",
    "TOPIC_EXCEPTION": "give it another name by --rename 'REGEX=NEW'",
    "POLICY_VIOLATION": "the target's policy refuses it",
    "INVALID_REPLICATION_FACTOR": "start the brokers that are away, or create the topic by hand",
    "RECORD_LIST_TOO_LARGE": "raise segment.bytes of the topic",
    "NOT_ENOUGH_REPLICAS": "start the brokers that are away, or lower min.insync.replicas of the topic",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "the target's topic has an old message format, which can't be used",
    "_FENCED": "another restore with the same --state runs: end one of them",
    "INVALID_PRODUCER_EPOCH": "another restore with the same --state runs: end one of them",
    "PRODUCER_FENCED": "another restore with the same --state runs: end one of them",
    "INVALID_TRANSACTION_TIMEOUT": "raise transaction.max.timeout.ms of the brokers, or set "
    "transaction.timeout.ms in --config",
}
# librdkafka prints a fatal error at any level; it is raised too
_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
# Also where they are not given, or given by another name
_NAMED_ANYWAY = ("sasl.mechanism", "sasl.username", "compression.codec", "queue.buffering.max.ms")


class ClientLog:
    """Keeps the last error that a client reported by itself, such as a refused login.

    callback: what the client calls. It does not lead back to the client, which ends with its last user so:
    one that waits for the garbage collector holds one of the 1,024 keys of thread storage of a process.
    """

    def __init__(self) -> None:
        self._kept: list[KafkaError] = []
        self.callback = partial(_keep, self._kept)
        self.client: Any = None

    @property
    def last(self) -> KafkaError | None:
        return self._kept[0] if self._kept else None

    def say(self, error: KafkaError) -> KafkaError:
        """Returns the reason of an error: where a request only took too long, what was reported before."""
        if self.client is not None:
            with suppress(KafkaException, RuntimeError):
                self.client.poll(0.1)  # a client reports when it is asked
        return self.last if self.last and error.name() in ("_TIMED_OUT", "_TRANSPORT") else error


def _keep(kept: list[KafkaError], error: KafkaError) -> None:
    # That all brokers are away follows the reason
    if not kept or error.name() != "_ALL_BROKERS_DOWN":
        kept[:] = [error]


def config_of(request: Request, **more: Any) -> dict[str, Any]:
    """Returns the properties of a client of the target. more: with ``_`` for ``.``."""
    of_client = {name.replace("_", "."): value for name, value in more.items()}
    return {
        "bootstrap.servers": request.bootstrap,
        "client.id": "kafka-log-lake-restore",
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 10_000,
        **request.client,
        **of_client,
    }


def _made(kind: type[Any], config: dict[str, Any], log: ClientLog) -> Any:
    try:
        log.client = kind({**config, "error_cb": log.callback, "logger": _SILENT})
        return log.client
    except KafkaException as error:
        # librdkafka names the property; a value may be a secret
        text = error.args[0].str().replace("SASL mechanism", "sasl.mechanism")
        said = set(re.findall(r"[a-z]+(?:\.[a-z]+)+|(?<=\")[^\"]+(?=\")", text))
        names = [name for name in (*config, *_NAMED_ANYWAY) if name in said]
        what = f"the property {names[0]} is missing, unknown or wrong" if names else "wrong properties"
        raise UserError(f"--config: {what}") from None
    except (ValueError, TypeError):
        raise UserError("--config: a property has a wrong value") from None


_OF_PRODUCERS = ("compression.", "linger.", "batch.", "queue.buffering.", "message.", "transaction.", "retr")


def admin(request: Request, log: ClientLog | None = None) -> AdminClient:
    """Opens an admin client."""
    properties = {
        name: value for name, value in config_of(request).items() if not name.startswith(_OF_PRODUCERS)
    }
    return _made(AdminClient, properties, log or ClientLog())


def consumer(
    request: Request, log: ClientLog | None = None, group: str = "kafka-log-lake-restore", **more: Any
) -> Consumer:
    """Opens a consumer that reads committed records where it is assigned, and joins no group."""
    shared = {name: value for name, value in config_of(request).items() if not name.startswith(_OF_PRODUCERS)}
    properties = config_of(
        request,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        auto_offset_reset="error",
        enable_partition_eof=True,
        **more,
    )
    kept = {
        name: value
        for name, value in properties.items()
        if name in shared or not name.startswith(_OF_PRODUCERS)
    }
    return _made(Consumer, kept, log or ClientLog())


def producer(request: Request, log: ClientLog, transactional_id: str, max_bytes: int) -> Producer:
    """Opens a transactional producer. max_bytes: the largest batch that the topic takes."""
    defaults = {"linger.ms": 5, "batch.size": 1_000_000, "transaction.timeout.ms": 300_000}
    config = {
        **{name: value for name, value in defaults.items() if name not in request.client},
        **config_of(request, transactional_id=transactional_id),
        "message.max.bytes": min(max(max_bytes, 1_000), 1_000_000_000),
        "queue.buffering.max.messages": 10_000_000,
        "queue.buffering.max.kbytes": 2_000_000,
    }
    if str(config["batch.size"]).isdigit():  # librdkafka refuses anything else
        config["batch.size"] = min(int(config["batch.size"]), max(max_bytes, 1))
    return _made(Producer, config, log)


def offset_of(message: Message) -> int:
    """Returns the offset of a message, or of the end of a partition; -1 where the client does not say it."""
    offset = message.offset()
    return -1 if offset is None else int(offset)


def as_user_error(error: KafkaError, doing: str) -> UserError:
    """Returns the one line for an error of the target: what was being done, why not, what to do."""
    advice = _ADVICE.get(error.name(), "start the same command again to continue")
    return UserError(f"{doing}: {' '.join(error.str().split())} ({error.name()}): {advice}")


@contextmanager
def asking(doing: str, log: ClientLog | None = None) -> Iterator[None]:
    """Turns the errors of clients in a block into one line. doing: such as "the topics can't be listed"."""
    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        if not isinstance(cause, KafkaError):
            raise UserError(f"{doing}: {one_line(error)}") from None
        raise as_user_error(log.say(cause) if log else cause, doing) from None

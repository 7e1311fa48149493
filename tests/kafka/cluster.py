"""A Kafka cluster on the loopback: one controller, and brokers that are started and killed one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.kafka.broker import CLUSTER, Broker, format_storage, free_port, start_node

_CONTROLLER = 100
_ALL = """
node.id={node}
controller.quorum.voters={controller}@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
replica.lag.time.max.ms=3000
log.dirs={logs}
"""
_BROKER = """
process.roles=broker
listeners=PLAINTEXT://127.0.0.1:{port}
"""


class Cluster:
    """Node ids of brokers are 1 and up; the controller is another node."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder, self._settings = folder, settings
        self._controller_port = free_port()
        self._running: dict[int, Broker] = {}
        lines = f"process.roles=controller\nlisteners=CONTROLLER://127.0.0.1:{self._controller_port}\n"
        properties = self._properties(_CONTROLLER, lines)
        format_storage(properties, CLUSTER, "--feature", "eligible.leader.replicas.version=0")
        self._running[_CONTROLLER] = start_node(
            properties, self._controller_port, self.disk(_CONTROLLER), "256m"
        )

    def disk(self, node: int) -> Path:
        return self._folder / f"disk-{node}"

    def start(self, node: int) -> Broker:
        """Starts a broker, on the disk that it had before if it had one."""
        port = free_port()
        properties = self._properties(node, _BROKER.format(port=port))
        if not self.disk(node).exists():
            self.disk(node).mkdir()
            text = f"version=1\ncluster.id={CLUSTER}\nnode.id={node}\ndirectory.id={node:021d}A\n"
            (self.disk(node) / "meta.properties").write_text(text)
        self._running[node] = start_node(properties, port, self.disk(node), "384m")
        return self._running[node]

    def kill(self, node: int) -> None:
        self._running.pop(node).kill()

    def close(self) -> None:
        for one in self._running.values():
            one.kill()

    def _properties(self, node: int, lines: str) -> Path:
        folder = self._folder / f"node-{node}"
        folder.mkdir(parents=True, exist_ok=True)
        numbers = {"controller": _CONTROLLER, "controller_port": self._controller_port}
        text = _ALL.format(node=node, logs=self.disk(node), **numbers) + lines
        text += "".join(f"{name}={value}\n" for name, value in self._settings.items())
        (folder / "server.properties").write_text(text)
        return folder / "server.properties"

"""The target of restores: a real broker, one a file, and a client that reads what came to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.broker import NEWEST, Broker, Client, broker, client
from tests.support.restored import BROKER


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of the release that the file names as RELEASE, else of the newest one."""
    folder, release = tmp_path_factory.mktemp("broker") / "b", getattr(request.module, "RELEASE", NEWEST)
    with broker(folder, BROKER, heap="512m", release=release) as one:
        yield one


@pytest.fixture(scope="module")
def judge(running: Broker) -> Iterator[Client]:
    with client(running.address) as one:
        yield one

"""What all tests share: one real Spark session, made the way a job makes it; and which tests a command runs.

A test is marked by what it needs: ``spark`` by the fixture of that name, ``cluster`` alike; in its file
(``pytestmark``) where it starts Spark itself in other processes, ``kafka`` (Kafka's own library, in Java),
``slow``, and ``sampled`` where every eighth is enough for a quick answer. ``flow`` is landing and decoding in
Spark, and some views with its own settings, which ``make test-plain`` runs too.

``make check`` runs what has none of the first four, and a sample. ``make test`` runs all but those marked
``full``: they start a server, a cluster or an environment, and run where something below a path that the mark
names, or the test itself, has changed (``tests/support/changed.py``). ``make test-all`` runs all.

Files with a mark come first: where two run side by side, short ones are left to fill up the end.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadFileScheduling

from pipelines.command.settings import Settings
from tests.support.changed import has_changed
from tests.support.java import QUICK_ENVIRONMENT
from tests.support.kept_workers import KeptWorkers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.object_store import Store

# For the session of all tests and for every command that a test starts
os.environ.update(QUICK_ENVIRONMENT)

_LONG = ("spark", "cluster", "kafka", "slow")
_SAMPLE = 8
# Files that one process runs: the start and the first jobs of a session of Spark take half of their time
_TOGETHER = ("tests/test_decode_job.py", "tests/test_ingest_raw.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="what needs no Spark, over a sample of the corpus")
    parser.addoption("--full", action="store_true", help="also what nothing that changed asks for")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    others: list[pytest.Item] = []
    long_ones: set[Path] = set()
    for item in items:
        for name in ("spark", "cluster"):
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(name)
        is_long = any(item.get_closest_marker(mark) for mark in _LONG)
        if is_long:
            long_ones.add(item.path)
        (kept if _is_requested(config, item, is_long) else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = sorted(kept, key=lambda item: item.path not in long_ones)


def _is_requested(config: pytest.Config, item: pytest.Item, is_long: bool) -> bool:
    if config.getoption("quick"):
        sampled = item.get_closest_marker("sampled") is not None
        return not is_long and (not sampled or zlib.crc32(item.nodeid.encode()) % _SAMPLE == 0)
    full = item.get_closest_marker("full")
    if full is None or config.getoption("full") or config.getoption("file_or_dir") != []:
        return True
    own = str(item.path.relative_to(config.rootpath))
    return has_changed((own, *full.args), config.rootpath)


class _Scheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return _TOGETHER[0] if file in _TOGETHER else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def workers() -> Iterator[KeptWorkers]:
    kept = KeptWorkers()
    yield kept
    kept.end()


@pytest.fixture(scope="module", autouse=True)
def _kept_workers(workers: KeptWorkers) -> Iterator[None]:
    with workers.used():
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pipelines.command.session import session

    with session(Settings(cores=2), only_plans=True) as started:
        yield started


@pytest.fixture(scope="session")
def lake_template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An empty lake that no test writes to."""
    from pipelines.lake.create import create_tables

    address = str(tmp_path_factory.mktemp("lake") / "template")
    create_tables(address)
    return address


@pytest.fixture
def lake(lake_template: str, tmp_path: Path) -> str:
    """An empty lake of the test's own, under a name that needs every kind of quoting."""
    copy = tmp_path / "it's a `lake` (1) {a,b} 100% ü?#*"
    shutil.copytree(lake_template, copy)
    return str(copy)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A real S3 server, to which the environment leads."""
    from tests.support import object_store

    with (
        object_store.running(tmp_path_factory.mktemp("store")) as started,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in started.environment.items():
            patch.setenv(name, value)
        yield started

"""What all tests share: one real Spark session, made the way a job makes it; and which tests a command runs.

Where a test lies says what it is about: ``unit`` one room, ``feature`` a command or a job, ``oracle``
Kafka's own library, ``property`` many drawn cases; ``environment`` needs Spark throughout, servers or an
installation. ``make test`` runs all but the last, which ``make test-environment`` runs.

``make check`` leaves out what starts Spark (by the fixture ``spark`` or the mark of that name), and takes
every eighth of what is marked ``sampled``. Files with Spark come first: where two run side by side, short
ones are left to fill up the end.
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

from kafka_log_lake.pipelines.cli.settings import Settings
from tests.support.java import QUICK_ENVIRONMENT
from tests.support.kept_workers import KeptWorkers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.object_store import Store

# For the session of all tests and for every command that a test starts
os.environ.update(QUICK_ENVIRONMENT)

_SAMPLE = 8
# Files that one process runs: the start and the first jobs of a session of Spark take half of their time
_TOGETHER = ("tests/feature/decode/test_decode_job.py", "tests/feature/decode/test_ingest_raw.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="what needs no Spark, over a sample of the corpus")
    parser.addoption("--write-texts", action="store_true", help="write tests/data/texts anew: make texts")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    with_spark = {item.path for item in items if _starts_spark(item)}
    if config.getoption("quick"):
        kept = [item for item in items if not _starts_spark(item) and _is_drawn(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in {*kept}])
        items[:] = kept
    items.sort(key=lambda item: item.path not in with_spark)


def _starts_spark(item: pytest.Item) -> bool:
    fixtures = {"spark", "cluster"} & set(getattr(item, "fixturenames", ()))
    return bool(fixtures) or item.get_closest_marker("spark") is not None


def _is_drawn(item: pytest.Item) -> bool:
    return item.get_closest_marker("sampled") is None or zlib.crc32(item.nodeid.encode()) % _SAMPLE == 0


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
    from kafka_log_lake.pipelines.engine.session import session

    with session(Settings(cores=2), only_plans=True) as started:
        yield started


@pytest.fixture(scope="session")
def lake_template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An empty lake that no test writes to."""
    from kafka_log_lake.pipelines.lake.create import create_tables

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

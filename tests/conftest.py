"""What all tests share: one real Spark session, made the way a job makes it; and which tests are quick.

A test is marked by what it needs: ``spark`` by the fixture of that name, or where it starts Spark itself in
other processes; ``cluster``, ``kafka`` (Kafka's own library, in Java) and ``slow`` alike. ``make check`` runs
what has none of these marks, and of the tests over the whole corpus every eighth.

Files with a mark come first: where two run side by side, short ones are left to fill up the end.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelines.command.settings import Settings
from tests.support.java import QUICK_ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.object_store import Store

# For the session of all tests and for every command that a test starts
os.environ.update(QUICK_ENVIRONMENT)

# Modules whose tests start Spark, or Java, in processes of their own
_START_SPARK = {
    *("test_commit", "test_connect", "test_crashes", "test_docs_examples"),
    *("test_notebooks", "test_object_store", "test_query", "test_session", "test_standalone"),
    *("test_tables_and_views", "test_unreadable", "test_watch_broker", "test_wheel"),
}
_START_KAFKA = {
    *("test_against_kafka", "test_format_bytes", "test_format_savings", "test_messages_against_kafka"),
    "test_swaps_against_kafka",
    "test_watch_broker",
}
# Tests of time and memory, those that look for inputs, and what starts a server or an environment
_SLOW = {"test_fuzz", "test_hostile_sizes", "test_kernel_cache", "test_objects", "test_soak", "test_wheel"}
# Tests that read every bundled segment, or every case of a long list
_OVER_ALL = {
    "test_corpus",
    "test_damage",
    "test_damage_embedded",
    "test_damage_framing",
    "test_damage_legacy",
    "test_data_source_stream",
    "test_find",
    "test_quality_checks",
}
_SAMPLE = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="what needs no Spark, over a sample of the corpus")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    quick: list[pytest.Item] = []
    others: list[pytest.Item] = []
    long_ones: set[Path] = set()
    for item in items:
        module = item.path.stem
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures or module in _START_SPARK:
            item.add_marker(pytest.mark.spark)
        if "cluster" in fixtures:
            item.add_marker(pytest.mark.cluster)
        if module in _START_KAFKA:
            item.add_marker(pytest.mark.kafka)
        if module in _SLOW:
            item.add_marker(pytest.mark.slow)
        marked = any(item.get_closest_marker(mark) for mark in ("spark", "cluster", "kafka", "slow"))
        if marked:
            long_ones.add(item.path)
        sampled = module not in _OVER_ALL or zlib.crc32(item.nodeid.encode()) % _SAMPLE == 0
        (quick if sampled and not marked else others).append(item)
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=others)
        items[:] = quick
    items.sort(key=lambda item: item.path not in long_ones)


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

"""What all tests share: one real Spark session, made the way a job makes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelines.command.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pipelines.command.session import session

    with session(Settings(cores=2), only_plans=True) as started:
        yield started


@pytest.fixture(scope="session")
def lake_template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An empty lake that no test writes to."""
    from pipelines.lake.create import create_tables

    return create_tables(spark, str(tmp_path_factory.mktemp("lake") / "template"))


@pytest.fixture
def lake(lake_template: str, tmp_path: Path) -> str:
    """An empty lake of the test's own, under a name that needs every kind of quoting."""
    copy = tmp_path / "it's a `lake` (1) {a,b} 100% ü?#*"
    shutil.copytree(lake_template, copy)
    return str(copy)

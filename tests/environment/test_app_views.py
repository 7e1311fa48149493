"""Views of applications: DuckDB and Spark give the same rows, and their page shows what they give."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.views.declared import PUBLIC
from tests.support import as_command
from tests.support.answers import answer, prepare_in_memory, same_in_both
from tests.support.app_views import DATA
from tests.support.docs import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Both = Callable[[str], bool]

PAGE = ROOT / "docs" / "applications.md"
CALLS = {
    "translate_offset": "SELECT * FROM translate_offset('billing', 'primary.orders', 0)",
    "store": "SELECT * FROM store('shop-views-tumbling-changelog', at => '9', window_ms => 60000)",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = str(tmp_path_factory.mktemp("apps") / "lake")
    as_command.decode(None, Settings(source=(str(DATA),), lake=lake, typed=False))
    return lake


@pytest.fixture(scope="module")
def both(spark: SparkSession, lake: str) -> Both:
    """Runs a statement in both engines and compares names, types and values."""
    prepare_in_memory(spark, lake)
    database = connect(lake)
    return lambda statement: same_in_both(spark, database, statement)


@pytest.mark.parametrize("name", PUBLIC["applications"])
def test_both_engines_give_the_same_rows(both: Both, name: str) -> None:
    assert both(CALLS.get(name, f"SELECT * FROM {name}"))


def test_queries_of_the_page_print_what_it_shows(lake: str) -> None:
    shown = re.findall(
        r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(shown) >= len(PUBLIC["applications"])
    for statement, output in shown:
        assert "\n".join(answer(lake, statement, "table")) + "\n" == output

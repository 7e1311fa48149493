"""What a catalog asks of a view that stays."""

from __future__ import annotations

import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.sql.statements import view_text
from kafka_log_lake.pipelines.views.declared import VIEWS, View


@pytest.mark.parametrize("view", [one for one in VIEWS if not one.parameters], ids=lambda view: view.name)
def test_each_column_has_a_name_of_its_own_as_spark_wants_it(view: View, lake: str) -> None:
    """DuckDB names a column without an alias as the expression is written; Spark refuses it in a catalog."""
    with connect(lake) as database:
        names = [row[0] for row in database.execute(f"DESCRIBE {view_text(view.select, {})}").fetchall()]
    assert [name for name in names if not name.isidentifier()] == []

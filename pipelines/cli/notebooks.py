"""Helps the notebooks: widgets that have values outside Databricks too, and plots on a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_log_lake.pipelines.cli.settings import CATALOG
from kafka_log_lake.pipelines.cli.values import is_catalog_lake

ROOT = Path(__file__).resolve().parents[2]


def widget(names: Mapping[str, Any], name: str, default: str) -> str:
    """Returns the value of a widget of Databricks; elsewhere the default.

    names: the notebook's ``globals()``.
    """
    dbutils = names.get("dbutils")
    if dbutils is None:
        return default
    dbutils.widgets.text(name, default)
    return str(dbutils.widgets.get(name))


def path_widget(names: Mapping[str, object], name: str, default: str) -> str:
    """Returns the value of ``widget`` for a path.

    In a checkout the default lies below it, wherever the notebook runs.
    """
    value = widget(names, name, default)
    return value if "dbutils" in names or not (ROOT / "notebooks").is_dir() else str(ROOT / value)


def sink_of(lake: str) -> str:
    """Returns who writes a lake: Spark by name (``catalog``) where it is catalog.schema, else ``arrow``."""
    return CATALOG if is_catalog_lake(lake) else "arrow"


def show(names: Mapping[str, Any], figure: Any) -> None:
    """Shows a figure of matplotlib below its cell, or in a window where there is one."""
    display = names.get("display")
    if display is not None:
        display(figure)
    else:
        import matplotlib.pyplot as plt  # not a dependency of the package

        plt.show()

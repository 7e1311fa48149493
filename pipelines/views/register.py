"""The views of a lake: one ``.sql`` file each beside this module, with the view's comment on top.

The files use the plain names of tables and of earlier views, so that each can be read, run and linted by
itself. Views are temporary in a session (``register``) and in the SQL shell, permanent in a catalog.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from pyspark.sql import SparkSession

from pipelines.lake.address import open_lake, sql_string, sql_table
from pipelines.source.hadoop import default_scheme
from udfs.format.schema import TABLES

# A view comes after those that it reads
_NAMES = ("committed_records", "crc_report", "latest_by_key")


@dataclass(frozen=True)
class View:
    """A view: its comment, and the SELECT over the plain names of tables and views."""

    name: str
    comment: str
    select: str


def _read(name: str) -> View:
    lines = resources.files("pipelines.views").joinpath(f"{name}.sql").read_text().splitlines()
    head = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    comment = " ".join(line.removeprefix("--").strip() for line in lines[:head])
    return View(name, comment, "\n".join(lines[head:]))


VIEWS = tuple(_read(name) for name in _NAMES)


def temporary_views(address: str) -> Iterator[str]:
    """SQL statements that create temporary views of a lake's tables and views, under their plain names."""
    for table in TABLES:
        source = sql_table(address, table.name)
        yield f"CREATE OR REPLACE TEMPORARY VIEW {table.name} AS SELECT * FROM {source}"
    for view in VIEWS:
        yield f"CREATE OR REPLACE TEMPORARY VIEW {view.name} AS {view.select}"


def permanent_views(schema: str) -> Iterator[str]:
    """SQL statements that create the views in a schema of a catalog, beside the tables.

    schema: a quoted name. The statements qualify all names, because temporary views may have the same names.
    """
    names = "|".join([*(table.name for table in TABLES), *_NAMES])
    for view in VIEWS:
        select = re.sub(rf"\b(FROM|JOIN) ({names})\b", rf"\1 {schema}.\2", view.select)
        comment = sql_string(view.comment)
        yield f"CREATE OR REPLACE VIEW {schema}.{view.name} COMMENT {comment} AS {select}"


def register(spark: SparkSession, lake: str) -> None:
    """Creates temporary views of a lake's tables and views in a session."""
    for statement in temporary_views(open_lake(lake, default_scheme(spark))):
        spark.sql(statement)

"""Makes the views of a lake in a schema of a catalog; registers the tables of a lake in a folder there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from kafka_log_lake.pipelines.cli.errors import UserError, one_line
from kafka_log_lake.pipelines.engine.driver import spark_errors
from kafka_log_lake.pipelines.lake.address import (
    SCHEMA_VERSION,
    VERSION_PROPERTY,
    sql_name,
    sql_string,
    table_path,
    tables_of,
)
from kafka_log_lake.pipelines.listing.hadoop import open_to_spark
from kafka_log_lake.pipelines.views.declared import SESSION_VIEWS, VIEWS, View, no_rows, planned
from kafka_log_lake.udfs.format.report_tables import READ_BY_VIEWS
from kafka_log_lake.udfs.format.schema import TABLES
from kafka_log_lake.udfs.functions.typed import PAYLOAD

_AT_ONCE = 2  # scripts that create views
_VIEWS_PROPERTY = "kafka_log_lake.views"
_READ = "|".join([*(table.name for table in (*TABLES, *READ_BY_VIEWS)), *(view.name for view in VIEWS)])


def permanent_views(begin: str, tables: Collection[str]) -> Iterator[str]:
    """Yields SQL statements that create the views in a schema of a catalog, next to the tables.

    begin: what all names begin with, such as the quoted schema and a dot. The statements qualify all names,
    because temporary views may have the same names. tables: those that are there. A table that is missing,
    and a view that only sessions can have, is replaced by no rows, and the result of a function in Python by
    null.
    """
    for view in VIEWS:
        yield from _permanent(view, begin, tables)


def _permanent(view: View, begin: str, tables: Collection[str]) -> Iterator[str]:
    empty = {view.name: no_rows(view.columns) for view in SESSION_VIEWS if view.in_session_only}
    empty |= {table.name: no_rows(table.columns) for table in READ_BY_VIEWS if table.name not in tables}
    select = re.sub(
        rf"\b(FROM|JOIN) ({'|'.join(empty)})\b",
        lambda match: f"{match[1]} ({empty[match[2]]})",
        planned(view, tables).select,
    )
    select = re.sub(rf"\b(FROM|JOIN) ({_READ})\b", rf"\1 {begin}\2", select)
    return view.statements("", _without_python(select), begin)


class PermanentViews:
    """Creates and updates the views of a lake in a schema of a catalog.

    schema: as SQL names it. begin, tables: see ``permanent_views``. ending: of the names of the schema's
    properties. described: what DESCRIBE SCHEMA EXTENDED gives. One property has the digest of the statements
    that made the views.
    """

    def __init__(
        self, spark: SparkSession, schema: str, begin: str, tables: Collection[str], ending: str = ""
    ) -> None:
        self._spark, self._schema, self._begin, self._ending = spark, schema, begin, ending
        self._tables = frozenset(tables)
        digest = hashlib.sha256("\n".join(permanent_views(begin, tables)).encode()).hexdigest()
        self._made = (f"{_VIEWS_PROPERTY}{ending}", digest)

    def are_of_this_release(self, described: Mapping[str, str]) -> bool:
        """Returns whether this release has made the views, with these tables."""
        return f"({','.join(self._made)})" in described.get("Properties", "")

    def create(self, described: Mapping[str, str], there: Collection[str]) -> None:
        """Creates missing views, or all of them if another release made them or other tables were there.

        there: names of the views in the schema.
        """
        are_ours = self.are_of_this_release(described)
        missing = {view.name for view in VIEWS if view.has_defaults}.difference(there)
        if are_ours and not missing:
            return
        views = [view for view in VIEWS if view.name in missing] if are_ours else VIEWS
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for wave in _waves(views):
                list(threads.map(self._create, (wave[part::_AT_ONCE] for part in range(_AT_ONCE))))
        noted = {**dict([self._made]), f"{VERSION_PROPERTY}{self._ending}": str(SCHEMA_VERSION)}
        values = ", ".join(f"{sql_string(name)} = {sql_string(value)}" for name, value in noted.items())
        self._spark.sql(f"ALTER SCHEMA {self._schema} SET DBPROPERTIES ({values})")

    def _create(self, views: Sequence[View]) -> None:
        """Creates views by one script: a service of Spark takes longer to be asked than for most views."""
        made = chain.from_iterable(_permanent(view, self._begin, self._tables) for view in views)
        script = "".join(f"{statement};\n" for statement in made)
        if script:
            self._spark.sql(f"BEGIN\n{script}END")

    def add_columns(self) -> None:
        """Adds the columns that the views read and that tables of an earlier release do not have."""
        for table in (table_ for table_ in READ_BY_VIEWS if table_.name in self._tables):
            name = f"{self._begin}{table.name}"
            there = {column.lower() for column in self._spark.table(name).columns}
            new = [c for c in table.columns if c.name.lower() not in there]
            if new:
                added = ", ".join(
                    f"{sql_name(c.name)} {c.sql_type} COMMENT {sql_string(c.comment)}" for c in new
                )
                self._spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({added})")


def _waves(views: Iterable[View]) -> list[list[View]]:
    """Returns views in groups, each after those that its views read."""
    waves: list[list[View]] = []
    wave_of: dict[str, int] = {}
    for view in views:
        wave = wave_of[view.name] = max((wave_of[name] + 1 for name in view.reads(wave_of)), default=0)
        waves += [[]] if wave == len(waves) else []
        waves[wave].append(view)
    return waves


def _without_python(select: str) -> str:
    null = f"CAST(NULL AS {from_arrow_type(PAYLOAD).simpleString()})"
    return re.sub(r"kafka_payload\([^()]*\)", null, select)


def register_in_catalog(spark: SparkSession, address: str, schema: str) -> None:
    """Registers the tables and views of a lake under a schema, which is created if it is missing.

    schema: a name, or catalog.schema. Raises a UserError for an in-memory catalog, and if it cannot register.
    """
    open_to_spark(spark, address)
    catalog = schema.rpartition(".")[0] or spark.catalog.currentCatalog()
    implementation = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    if catalog == "spark_catalog" and implementation == "in-memory":
        raise UserError(
            "--catalog-schema needs a catalog that outlives this process, and this Spark's is in memory: "
            "use spark-submit with --conf spark.sql.catalogImplementation=hive, or leave the option out"
        )
    prefix = ".".join(sql_name(part) for part in schema.split("."))
    try:
        if not spark.catalog.databaseExists(prefix):
            spark.sql(f"CREATE SCHEMA {prefix}")
        tables = tables_of(address)
        for table in tables:
            _register_table(spark, f"{prefix}.{sql_name(table.name)}", table_path(address, table.name))
        described = dict(map(tuple, spark.sql(f"DESCRIBE SCHEMA EXTENDED {prefix}").collect()))
        views = PermanentViews(spark, prefix, f"{prefix}.", {table.name for table in tables})
        if not views.are_of_this_release(described):
            views.add_columns()
        there = spark.sql(f"SHOW VIEWS IN {prefix}").where("NOT isTemporary").collect()
        views.create(described, {row["viewName"] for row in there})
    except spark_errors() as error:
        raise UserError(f"--catalog-schema: cannot register in {schema}: {one_line(error)}") from None


def _register_table(spark: SparkSession, name: str, path: str) -> None:
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {sql_string(path)}")
    registered = spark.sql(f"DESCRIBE DETAIL {name}").first()
    ours = spark.sql(f"DESCRIBE DETAIL delta.{sql_name(path)}").first()
    # Locations are compared, as a copied lake has the same table ids
    if registered is None or ours is None or registered["location"] != ours["location"]:
        raise UserError(f"--catalog-schema: {name} already exists and belongs to another lake")

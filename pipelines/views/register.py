"""Makes the views of a lake (``declared``): temporary in a session, permanent in a catalog."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from kafka_log_lake.pipelines.cli.errors import UserError, one_line
from kafka_log_lake.pipelines.cli.settings import Running
from kafka_log_lake.pipelines.cli.values import is_catalog_lake
from kafka_log_lake.pipelines.engine.delta import few_rows
from kafka_log_lake.pipelines.engine.driver import driver_of, spark_errors
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.session import check_session, configured
from kafka_log_lake.pipelines.lake.address import (
    SCHEMA_VERSION,
    VERSION_PROPERTY,
    open_lake,
    open_log,
    sql_name,
    sql_string,
    sql_table,
    table_path,
    tables_of,
)
from kafka_log_lake.pipelines.lake.catalog_schema import CatalogSchema
from kafka_log_lake.pipelines.lake.create import create_table
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.listing.hadoop import default_scheme, open_to_spark
from kafka_log_lake.pipelines.typed.schemas import (
    REGISTRY_COLUMNS,
    REGISTRY_ROWS,
    registry_of_rows,
    registry_of_state,
)
from kafka_log_lake.pipelines.views.declared import (
    SESSION_VIEWS,
    VIEWS,
    View,
    needed_names,
    no_rows,
    null_column,
)
from kafka_log_lake.pipelines.views.functions import (
    register_functions,
    register_internal_topics,
    register_typed_functions,
    register_typed_tables,
)
from kafka_log_lake.udfs.format.index_tables import INDEX_TABLES
from kafka_log_lake.udfs.format.report_tables import CHECKPOINTS, READ_BY_VIEWS, REPORT_TABLES
from kafka_log_lake.udfs.format.schema import (
    OFFSET_FINDINGS,
    QUARANTINE,
    RECORDS,
    SEGMENTS,
    TABLES,
    TRANSACTIONS,
)
from kafka_log_lake.udfs.functions.typed import PAYLOAD
from kafka_log_lake.udfs.values.schemas.registry import Registry

_VIEWS_PROPERTY = "kafka_log_lake.views"
_READ = "|".join([*(table.name for table in (*TABLES, *READ_BY_VIEWS)), *(view.name for view in VIEWS)])


def register(
    spark: SparkSession, lake: str | None = None, log: str | None = None, at: str | None = None
) -> None:
    """Creates temporary functions in a session, and temporary views over a lake's tables and views.

    It turns off Spark's dynamic partition pruning in the session, which makes plans of the views that fill
    the heap (``spark.sql.optimizer.dynamicPartitionPruning.enabled``).

    Parameters
    ----------
    spark: the session.
    lake: folder or URI of the lake, or ``catalog.schema`` where ``--sink catalog`` made it; None: the
        functions alone are created.
    log: the name of one of several copies, where ``--with-copies`` decoded it; None or "healed": the lake's
        own tables, which hold the healed log.
    at: the id of a run or a time, for an earlier state; None: now.

    Raises
    ------
    UserError: there is no such lake, state or copy; a lake of a catalog has no copies and no earlier states.
    UserError and TypeError at once: spark is no session.
    """
    check_session(spark)
    if lake is None:
        register_functions(spark)
    elif not is_catalog_lake(lake):
        register_views(spark, lake, at=at, log=log)
    elif log is None and at is None:
        register_catalog_lake(spark, lake)
    else:
        raise UserError(
            f"log and at are for a lake in a folder; {lake} is one of a catalog, which shows what it has now"
        )


def permanent_views(begin: str) -> Iterator[str]:
    """Yields SQL statements that create the views in a schema of a catalog, next to the tables.

    begin: what all names begin with, such as the quoted schema and a dot. The statements qualify all names,
    because temporary views may have the same names. A view that only sessions can have is replaced by no
    rows, and the result of a function in Python by null.
    """
    for view in VIEWS:
        yield from _permanent(view, begin)


def _permanent(view: View, begin: str) -> Iterator[str]:
    empty = {one.name: no_rows(one.columns) for one in SESSION_VIEWS if one.in_session_only}
    select = re.sub(rf"\b(FROM|JOIN) ({_READ})\b", rf"\1 {begin}\2", view.select)
    select = re.sub(
        rf"\b(FROM|JOIN) ({'|'.join(empty)})\b", lambda found: f"{found[1]} ({empty[found[2]]})", select
    )
    return view.statements("", _without_python(select), begin)


class PermanentViews:
    """Creates and updates the views of a lake in a schema of a catalog.

    schema: as SQL names it. begin: see ``permanent_views``. ending: of the names of the schema's properties.
    described: what DESCRIBE SCHEMA EXTENDED gives. One property has the digest of the statements that made
    the views.
    """

    def __init__(self, spark: SparkSession, schema: str, begin: str, ending: str = "") -> None:
        self._spark, self._schema, self._begin, self._ending = spark, schema, begin, ending
        digest = hashlib.sha256("\n".join(permanent_views(begin)).encode()).hexdigest()
        self._made = (f"{_VIEWS_PROPERTY}{ending}", digest)

    def are_of_this_release(self, described: Mapping[str, str]) -> bool:
        """Returns whether this release has made the views."""
        return f"({','.join(self._made)})" in described.get("Properties", "")

    def create(self, described: Mapping[str, str], there: Collection[str]) -> None:
        """Creates missing views, or all of them (half a minute) if another release made them.

        there: names of the views in the schema.
        """
        are_ours = self.are_of_this_release(described)
        missing = {view.name for view in VIEWS if view.has_defaults}.difference(there)
        if are_ours and not missing:
            return
        views = [view for view in VIEWS if view.name in missing] if are_ours else VIEWS
        _create_views(views, lambda view: _permanent(view, self._begin), self._spark.sql)
        noted = {**dict([self._made]), f"{VERSION_PROPERTY}{self._ending}": str(SCHEMA_VERSION)}
        values = ", ".join(f"{sql_string(name)} = {sql_string(value)}" for name, value in noted.items())
        self._spark.sql(f"ALTER SCHEMA {self._schema} SET DBPROPERTIES ({values})")

    def add_columns(self) -> None:
        """Adds the columns that the views read and that tables of an earlier release do not have."""
        for table in READ_BY_VIEWS:
            name = f"{self._begin}{table.name}"
            there = {column.lower() for column in self._spark.table(name).columns}
            new = [c for c in table.columns if c.name.lower() not in there]
            if new:
                added = ", ".join(
                    f"{sql_name(c.name)} {c.sql_type} COMMENT {sql_string(c.comment)}" for c in new
                )
                self._spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({added})")


def _without_python(select: str) -> str:
    null = f"CAST(NULL AS {from_arrow_type(PAYLOAD).simpleString()})"
    return re.sub(r"kafka_payload\([^()]*\)", null, select)


# A view then keeps the plan that it was created with: else Spark parses and analyzes every view below it
# again for each view that reads it, which takes four times as long. A WITH that is put in its place at once
# need not be put there for the check of each view above: a quarter of the rest
_KEPT_PLANS = {
    "spark.sql.legacy.storeAnalyzedPlanForView": "true",
    "spark.sql.legacy.inlineCTEInCommands": "true",
}

# Views join tables by the columns of their partitions. With dynamic pruning Spark gives each scan of such a
# table a copy of the plan that it is joined with, in which each scan has copies, too: hanging_transactions
# becomes 1,200 joins, which fill a heap of 1 GiB, and has 98 without
_SMALL_PLANS = "spark.sql.optimizer.dynamicPartitionPruning.enabled"

_VIEWS_AT_ONCE = 4

# Nearly every view reads these tables, and Spark takes 0.1 s to plan each read of a Delta table: a table with
# at most this many rows becomes a view that holds them. Joins with no rows then cost nothing, as in
# committed_records of topics without transactions. A row of quarantine may hold many bytes
_HELD = {QUARANTINE.name: 0}
_HELD |= {table.name: 10_000 for table in (SEGMENTS, TRANSACTIONS, OFFSET_FINDINGS, CHECKPOINTS)}
_READ_BY_VIEWS = {table.name: table for table in READ_BY_VIEWS}


def _create_table_view(spark: SparkSession, address: str, name: str, table: DeltaTable, live: bool) -> None:
    """Creates the view of a table: at its version, or (live) of the newest version at each query.

    A column that views read is null where an earlier release made the table without it.
    """
    there = {field.name for field in table.schema().fields}
    declared = _READ_BY_VIEWS[name].columns if name in _READ_BY_VIEWS else ()
    added = "".join(f", {null_column(column)}" for column in declared if column.name not in there)
    rows = few_rows(table, _HELD[name]) if name in _HELD and not live and not added else None
    if rows is not None:
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        spark.createDataFrame(rows, schema).createOrReplaceTempView(name)
        return
    version = "" if live else f" VERSION AS OF {table.version()}"
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT *{added} FROM {sql_table(address, name)}{version}"
    )


def register_views(
    spark: SparkSession,
    lake: str,
    statement: str = "",
    at: str | None = None,
    live: bool = False,
    log: str | None = None,
) -> None:
    """Creates temporary views of a lake's tables and views in a session, and the functions.

    They show one published state of the lake (``published_tables``) until it is registered again. at: the
    id of a run or a time, for an earlier state. statement: the tables, views and functions that it names are
    enough, as each one costs time; "" for all. live: the tables as they are at each query, not that state: a
    statement that changes them needs it. log: one of several copies, by name, or healed.
    """
    scheme = default_scheme(spark)
    address = open_lake(lake, scheme) if log is None else open_log(lake, log, scheme)
    open_to_spark(spark, address)
    tables = published_tables(address, at)
    _create_all(
        spark,
        statement,
        tables,
        lambda name: _create_table_view(spark, address, name, tables[name], live),
        lambda: registry_of_state(address),
        lambda text: register_typed_tables(spark, address, text),
    )


def register_catalog_lake(spark: SparkSession, name: str) -> None:
    """Creates temporary views and functions as ``register_views`` does, of a lake that a catalog manages.

    name: catalog.schema, or catalog.schema.prefix. Raises a UserError if there is no such lake.
    """
    schema = CatalogSchema(SparkOnDemand(Running(), given=spark), name)
    if not schema.has_lake():
        raise UserError(
            f"there is no lake in {name}: no folder is called so, and no table {name}.segments is there"
        )
    records = spark.table(schema.path(RECORDS.name)).where(REGISTRY_ROWS).select(*REGISTRY_COLUMNS)

    def create(table: str) -> None:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {table} AS SELECT * FROM {schema.path(table)}")

    tables = {table.name for table in (*TABLES, *REPORT_TABLES)} & schema.names
    _create_all(spark, "", tables, create, lambda: registry_of_rows(records.toArrow()))


def _create_all(
    spark: SparkSession,
    statement: str,
    tables: Collection[str],
    create_table_view: Callable[[str], None],
    registry: Callable[[], Registry],
    register_others: Callable[[str], None] = lambda text: None,
) -> None:
    """Creates the views of tables, of what they are missing, the functions, and the views above them.

    statement: see ``register_views``. tables: those that are there. register_others: creates what only one
    kind of lake has, by a text of SQL that names it.
    """
    with driver_of(spark).conf_errors():
        spark.conf.set(_SMALL_PLANS, "false")
    for report in REPORT_TABLES:
        if report.name not in tables:
            spark.catalog.dropTempView(report.name)  # another lake's, which the session had before
    needed = needed_names(statement, {*tables, *(table.name for table in READ_BY_VIEWS)})
    views = [_planned(view, tables) for view in SESSION_VIEWS if view.name in needed]
    for name in sorted(needed & set(tables)):
        create_table_view(name)
    for missing in READ_BY_VIEWS:
        if missing.name in needed.difference(tables):
            spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {missing.name} AS {no_rows(missing.columns)}")
    text = "\n".join([statement, *(view.select for view in views)]) if statement else ""
    register_functions(spark, text)
    register_internal_topics(spark, text)
    register_others(text)
    register_typed_functions(spark, registry, text)
    with configured(spark, _KEPT_PLANS):
        _create_views(views, lambda view: view.statements("TEMPORARY", view.select), partial(_create, spark))


def _planned(view: View, tables: Collection[str]) -> View:
    """Returns a view as a lake with these tables needs it: without index tables, index_report has no rows.

    To plan that one takes Spark a quarter of the time of all views.
    """
    if view.name != "index_report" or any(table.name in tables for table in INDEX_TABLES):
        return view
    return replace(view, select=no_rows(view.columns))


def _create(spark: SparkSession, creation: str) -> None:
    """Creates a view, or its function where the session does not have it: Spark takes as long for both.

    A function is kept as its text, so it reads the views that the session has when it is called.
    """
    function = re.match(r"CREATE OR REPLACE TEMPORARY FUNCTION (\w+)", creation)
    if function is None:
        spark.sql(creation)
        return
    name = function[1]
    made, digest = f"kafka_log_lake.function.{name}", hashlib.sha256(creation.encode()).hexdigest()
    if spark.conf.get(made, "") != digest or not spark.catalog.functionExists(name):
        spark.sql(creation)
        spark.conf.set(made, digest)


def _create_views(
    views: Iterable[View], statements: Callable[[View], Iterable[str]], create: Callable[[str], object]
) -> None:
    """Creates views, each once those are there that it reads: Spark analyzes several at a time.

    views: each after those that it reads, so that none waits for one that no thread has begun.
    """
    made: dict[str, Future[None]] = {}

    def create_one(view: View, read: list[Future[None]]) -> None:
        for one in read:
            one.result()
        for statement in statements(view):
            create(statement)

    with ThreadPoolExecutor(_VIEWS_AT_ONCE) as threads:
        for view in views:
            made[view.name] = threads.submit(create_one, view, [made[name] for name in view.reads(made)])
        for one in made.values():
            one.result()


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
        for table in READ_BY_VIEWS:
            create_table(address, table)
        for table in tables_of(address):
            _register_table(spark, f"{prefix}.{sql_name(table.name)}", table_path(address, table.name))
        described = dict(map(tuple, spark.sql(f"DESCRIBE SCHEMA EXTENDED {prefix}").collect()))
        views = PermanentViews(spark, prefix, f"{prefix}.")
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

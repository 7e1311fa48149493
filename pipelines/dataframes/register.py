"""Makes the temporary views of a lake (``declared``) in a session; ``permanent`` has those of a catalog."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Running
from kafka_log_lake.pipelines.cli.values import is_catalog_lake, nearest
from kafka_log_lake.pipelines.engine.delta import few_rows
from kafka_log_lake.pipelines.engine.driver import driver_of
from kafka_log_lake.pipelines.engine.on_demand import SparkOnDemand
from kafka_log_lake.pipelines.engine.session import check_session, configured
from kafka_log_lake.pipelines.lake.address import open_lake, open_log, sql_table
from kafka_log_lake.pipelines.lake.catalog_schema import CatalogSchema
from kafka_log_lake.pipelines.lake.published import published_tables
from kafka_log_lake.pipelines.listing.hadoop import default_scheme, open_to_spark
from kafka_log_lake.pipelines.sql.small_views import small_views
from kafka_log_lake.pipelines.typed.schemas import (
    REGISTRY_COLUMNS,
    REGISTRY_ROWS,
    registry_of_rows,
    registry_of_state,
)
from kafka_log_lake.pipelines.typed.tables import FOLDERS
from kafka_log_lake.pipelines.views.declared import (
    SESSION_VIEWS,
    View,
    needed_names,
    no_rows,
    null_column,
    planned,
)
from kafka_log_lake.pipelines.views.functions import (
    FUNCTION_NAMES,
    register_functions,
    register_internal_topics,
    register_typed_functions,
    register_typed_tables,
)
from kafka_log_lake.udfs.format.report_tables import READ_BY_VIEWS, REPORT_TABLES, RUNS
from kafka_log_lake.udfs.format.schema import (
    OFFSET_FINDINGS,
    QUARANTINE,
    RAW_SEGMENTS,
    RECORDS,
    SEGMENTS,
    TABLES,
    TRANSACTIONS,
)
from kafka_log_lake.udfs.values.schemas.registry import Registry


def register(
    spark: SparkSession,
    lake: str | None = None,
    log: str | None = None,
    at: str | None = None,
    *,
    views: str | Iterable[str] | None = None,
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
    views: names of views, tables and functions, which are created with what they read and call, as each one
        costs time; None: all.

    Raises
    ------
    UserError: there is no such lake, state, copy or view; a lake of a catalog has no copies and no earlier
        states.
    UserError and TypeError at once: spark is no session.
    """
    check_session(spark)
    statement = "" if views is None else _naming([views] if isinstance(views, str) else [*views])
    if lake is None:
        register_functions(spark, statement)
    elif not is_catalog_lake(lake):
        register_views(spark, lake, statement, at=at, log=log)
    elif log is None and at is None:
        register_catalog_lake(spark, lake, statement)
    else:
        raise UserError(
            f"log and at are for a lake in a folder; {lake} is one of a catalog, which shows what it has now"
        )


def _naming(names: Sequence[str]) -> str:
    """Returns a text that names these views, tables and functions. Raises a UserError for unknown ones."""
    tables = {table.name for table in (*TABLES, *REPORT_TABLES)}
    known = tables | FUNCTION_NAMES | {view.name for view in SESSION_VIEWS}
    for name in names or ("",):
        if str(name).lower() not in known and str(name).partition(".")[0] not in FOLDERS:
            raise UserError(f"views: there is no {name!r}{nearest(str(name).lower(), sorted(known))}")
    return ", ".join(names)


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

_AT_ONCE = 4
_REGISTERED = "kafka_log_lake.registered"  # of a session that may have views already

# Nearly every view reads one of these tables, and Spark takes 0.1 s to plan each read of a Delta table, a
# second in a new JVM: a table with at most this many rows becomes a view that holds them. Joins with no rows
# then cost nothing, as in committed_records of topics without transactions. A row of the first two may hold
# many bytes
_HELD = {QUARANTINE.name: 0, RAW_SEGMENTS.name: 0}
_HELD |= {table.name: 10_000 for table in (SEGMENTS, TRANSACTIONS, OFFSET_FINDINGS, RUNS, *READ_BY_VIEWS)}
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


def _create_small_views(
    spark: SparkSession, address: str, tables: dict[str, DeltaTable], names: Collection[str]
) -> set[str]:
    """Creates the views of a few rows among these, each of which holds its rows; returns their names.

    Most others read them, and Spark analyzes and plans a view in each place where it stands.
    """
    made = small_views(address, tables, names)
    for view, rows in made.items():
        fields = [
            StructField(c.name, from_arrow_type(c.arrow_type), True, {"comment": c.comment})
            for c in view.columns
        ]
        spark.createDataFrame(rows, StructType(fields)).createOrReplaceTempView(view.name)
    return {view.name for view in made}


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
        lambda names: set() if live else _create_small_views(spark, address, tables, names),
    )


def register_catalog_lake(spark: SparkSession, name: str, statement: str = "") -> None:
    """Creates temporary views and functions as ``register_views`` does, of a lake that a catalog manages.

    name: catalog.schema, or catalog.schema.prefix. statement: see ``register_views``. Raises
    a UserError if there is no such lake.
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
    _create_all(spark, statement, tables, create, lambda: registry_of_rows(records.toArrow()))


def _create_all(
    spark: SparkSession,
    statement: str,
    tables: Collection[str],
    create_table_view: Callable[[str], object],
    registry: Callable[[], Registry],
    register_others: Callable[[str], None] = lambda text: None,
    create_small_views: Callable[[Collection[str]], Collection[str]] = lambda names: (),
) -> None:
    """Creates the views of tables, of what they are missing, the functions, and the views above them.

    statement: see ``register_views``. tables: those that are there. register_others: creates what only one
    kind of lake has, by a text of SQL that names it. create_small_views: creates the views that hold rows,
    of views by name, and returns their names.
    """
    with driver_of(spark).conf_errors():
        spark.conf.set(_SMALL_PLANS, "false")
    for report in REPORT_TABLES:
        if report.name not in tables:
            spark.catalog.dropTempView(report.name)  # another lake's, which the session had before
    needed = needed_names(statement, {*tables, *(table.name for table in READ_BY_VIEWS)})
    views = [planned(view, tables) for view in SESSION_VIEWS if view.name in needed]
    missing = [table for table in READ_BY_VIEWS if table.name in needed.difference(tables)]
    text = "\n".join([statement, *(view.select for view in views)]) if statement else ""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        made: list[Future[object]] = [
            threads.submit(create_table_view, name) for name in sorted(needed & set(tables))
        ]
        for table in missing:
            empty = f"CREATE OR REPLACE TEMPORARY VIEW {table.name} AS {no_rows(table.columns)}"
            made.append(threads.submit(spark.sql, empty))
        small = threads.submit(create_small_views, needed)
        register_functions(spark, text)
        register_internal_topics(spark, text)
        register_others(text)
        register_typed_functions(spark, registry, text)
        for future in made:
            future.result()
        views = [view for view in views if view.name not in small.result()]
    with configured(spark, _KEPT_PLANS):
        is_first = not spark.conf.get(_REGISTERED, "")
        if is_first:
            _create_functions(spark, views, over_empty=True)
        create_views(
            [view for view in views if view.has_defaults],
            lambda view: [view.view("TEMPORARY", view.select)],
            spark.sql,
        )
        if not is_first:
            _create_functions(spark, views, over_empty=False)
        spark.conf.set(_REGISTERED, "true")


def _create_functions(spark: SparkSession, views: Sequence[View], over_empty: bool) -> None:
    """Creates the table functions that the session does not have.

    A function is kept as its text, so it reads the views that the session has when it is called. Spark also
    analyzes the text here, with all that the views below it read: a quarter of a first ``register``, were it
    not for ``over_empty``: views without rows are there meanwhile. A session that has views keeps them.
    """
    made = {view: view.function("TEMPORARY", view.select) for view in views if view.parameters}
    digests = {view: hashlib.sha256(creation.encode()).hexdigest() for view, creation in made.items()}
    key = "kafka_log_lake.function.{}".format
    new = [
        view
        for view, digest in digests.items()
        if spark.conf.get(key(view.name), "") != digest or not spark.catalog.functionExists(view.name)
    ]
    read = set().union(*(view.reads(other.name for other in views) for view in new))
    below = [view for view in views if over_empty and view.name in read]
    empty = [f"CREATE OR REPLACE TEMPORARY VIEW {view.name} AS {no_rows(view.columns)}" for view in below]
    try:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(spark.sql, empty))
            list(threads.map(spark.sql, (made[view] for view in new)))
    finally:
        for view in below:
            spark.catalog.dropTempView(view.name)
    for view in new:
        spark.conf.set(key(view.name), digests[view])


def create_views(
    views: Iterable[View], statements: Callable[[View], Iterable[str]], create: Callable[[str], object]
) -> None:
    """Creates views, each once those are there that it reads: Spark analyzes several at a time.

    views: each after those that it reads, so that none waits for one that no thread has begun.
    """
    made: dict[str, Future[None]] = {}

    def create_one(view: View, read: list[Future[None]]) -> None:
        for future in read:
            future.result()
        for statement in statements(view):
            create(statement)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for view in views:
            made[view.name] = threads.submit(create_one, view, [made[name] for name in view.reads(made)])
        for future in made.values():
            future.result()

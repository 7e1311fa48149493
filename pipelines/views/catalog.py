"""Registers a lake's tables and views under a schema of a persistent catalog (``--catalog-schema``)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.command.driver import spark_errors
from pipelines.command.errors import UserError, one_line
from pipelines.lake.address import sql_name, sql_string, table_path, tables_of
from pipelines.lake.create import create_table
from pipelines.source.hadoop import open_to_spark
from pipelines.views.register import make_views
from udfs.format.report_tables import READ_BY_VIEWS


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
        make_views(spark, prefix)
    except spark_errors() as error:
        raise UserError(f"--catalog-schema: cannot register in {schema}: {one_line(error)}") from None


def _register_table(spark: SparkSession, name: str, path: str) -> None:
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION {sql_string(path)}")
    registered = spark.sql(f"DESCRIBE DETAIL {name}").first()
    ours = spark.sql(f"DESCRIBE DETAIL delta.{sql_name(path)}").first()
    # Locations are compared, as a copied lake has the same table ids
    if registered is None or ours is None or registered["location"] != ours["location"]:
        raise UserError(f"--catalog-schema: {name} already exists and belongs to another lake")

"""Decides what a statement of Spark SQL does, by the plan that Spark's own parser makes of it.

A plan is walked whole: every node of it, in subqueries, common table expressions and expressions too. Nodes
that read are listed; one that is not is refused, whatever Spark release or extension it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.engine.driver import driver_of
from kafka_log_lake.pipelines.lake.address import refuse_commits_by_spark


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Logical plans of queries
_QUERIES = _words(
    """
    Aggregate AsOfJoin CTERelationDef CTERelationRef Deduplicate Distinct Except Expand Filter Generate
    GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit LocalRelation NearestByJoin Offset
    OneRowRelation ParameterizedQuery PipeOperator Pivot Project Range Repartition RepartitionByExpression
    ResolvedInlineTable Sample Sort SubqueryAlias Tail TimeTravelRelation RelationTimeTravel Transpose Union
    UnionLoop UnionLoopRef UnresolvedHaving UnresolvedHint UnresolvedInlineTable UnresolvedRelation
    UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith
    UnresolvedOrdinal UnresolvedSubqueryAlias Unpivot Window WithWindowDefinition UnresolvedQualify
    """
)
# Commands that show or describe, and what they have in place of a name
_SHOWING = _words(
    """
    DescribeColumn DescribeColumnCommand DescribeDatabaseCommand DescribeDeltaDetailCommand
    DescribeDeltaHistory DescribeFunction DescribeFunctionCommand DescribeNamespace DescribeQueryCommand
    DescribeRelation DescribeRelationAsJsonCommand DescribeTableCommand DescribeTablePartition
    ExplainCommand ShowCatalogsCommand ShowCollationsCommand ShowColumns ShowColumnsCommand ShowCreateTable
    ShowCurrentNamespaceCommand ShowFunctions ShowFunctionsCommand ShowNamespaces ShowNamespacesCommand
    ShowPartitions ShowTableExtended ShowTablePartition ShowTableProperties ShowTables ShowTablesCommand
    ShowTablesExtended ShowViews ShowViewsCommand CurrentNamespace UnresolvedFunctionName
    UnresolvedNamespace UnresolvedTable UnresolvedTableOrView UnresolvedView UnresolvedIdentifier
    UnresolvedPartitionSpec UnresolvedPathBasedDeltaTable UnresolvedDeltaPathOrIdentifier ResolvedNamespace
    """
)
# Commands that change the session alone
_OF_SESSION = _words(
    """
    AddFilesCommand AddJarsCommand CacheTable CacheTableAsSelect ClearCacheCommand CreateTempViewUsing
    CreateVariable CreateViewCommand DropTempViewCommand DropVariable DropView DropFunctionCommand
    DropTempView CreateFunctionCommand CreateSQLFunctionCommand CreateUserDefinedFunction ListFilesCommand
    ListJarsCommand RefreshTable RefreshTableCommand ResetCommand SetCommand SetCatalogAndNamespace
    SetCatalogCommand SetNamespaceCommand SetVariable UncacheTable UnresolvedIdentifier
    """
)
# Functions that call any method of Java
_CALLING = {"reflect", "java_method", "try_reflect", "identifier"}
_CALLING_NODES = ("CallMethodViaReflection", "TryReflect", "ExpressionWithUnresolvedIdentifier")
_ON_S3 = "use maintain for upkeep, and the Python package deltalake for other changes"


def check_reads(spark: SparkSession, statement: str) -> None:
    """Raises a UserError for a statement that does more than read: it would write, or run other code.

    Raises what Spark does for one that it cannot parse.
    """
    node = _not_reading(spark, statement)
    if node:
        raise UserError(f"query only reads, and this has {node}; for upkeep of the tables add --writes allow")


def changes(spark: SparkSession, statement: str) -> bool:
    """Returns whether a statement does more than read and change the session. Raises as ``check_reads``."""
    return bool(_not_reading(spark, statement, _OF_SESSION))


def refuse_changes_on_s3(spark: SparkSession, lake: str, statement: str) -> None:
    """Raises a UserError for a statement that changes tables, where the lake is on S3."""
    if lake.lower().startswith(("s3:", "s3a:", "s3n:")) and changes(spark, statement):
        refuse_commits_by_spark(lake, "SQL", _ON_S3)


def _not_reading(spark: SparkSession, statement: str, also: Iterable[str] = ()) -> str:
    """Returns what a statement does besides reading: a plan's node or function, "" for nothing."""
    allowed = _QUERIES | _SHOWING | frozenset(also)
    for node in driver_of(spark).parsed_plan(statement):
        if node.is_plan and node.kind not in allowed:
            return node.kind
        if node.kind.startswith(_CALLING_NODES) or node.function in _CALLING:
            return f"the function {node.function or node.kind}"
    return ""

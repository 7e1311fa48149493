"""Gives jobs what they need of Spark's driver besides SQL and DataFrames, in both kinds of session.

A classic session has its driver's JVM at hand. A session of Spark Connect has none: no ``_jvm``, no
``sparkContext``, no RDD, and an analysis that happens when a result or a schema is requested. Nothing here
imports py4j, which a client of Spark Connect may not have. Its workers get a zip of our packages.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafka_log_lake.pipelines.cli.errors import UserError, one_line
from kafka_log_lake.udfs.package_files import package_files
from kafka_log_lake.udfs.spark import preflight
from kafka_log_lake.udfs.storage.store import store_variables, use_settings_of

log = logging.getLogger(__name__)

# What setJobGroup sets of a thread
_JOB_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_ENOUGH_ROWS = 1 << 16  # that no partition of a range is empty

# What workers may need: the jobs' stages, the functions of SQL, the data source
PACKAGES = (preflight.PACKAGE, "pyspark_kafka_log")
# What these import of others; and the shim of the data source is looked for
_LIBRARIES = ("numba", "pyarrow", "pandas", "zstandard", "lz4", "cramjam", "regex", "wcmatch", "yaml")
ADVICE = "ship them the archive of `make package` (docs/cluster.md, On a cluster)"

# Plans that give rows of the plan below them in the task that reads them
_KEEPS_ROWS = ("Filter", "Project", "SubqueryAlias", "View")

# Sessions of Spark Connect whose workers have our code -> cores that they run on
_READY: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()


def spark_errors() -> tuple[type[Exception], ...]:
    """Returns the classes of the errors that Spark raises; in a process with a JVM Java's own too."""
    py4j = sys.modules.get("py4j.protocol")
    return (PySparkException,) if py4j is None else (PySparkException, py4j.Py4JJavaError)


def is_local(spark: SparkSession) -> bool:
    """Returns whether the tasks run on this machine, in Python workers of this installation."""
    return str(spark.sparkContext.master).startswith("local")


def driver_of(spark: SparkSession) -> Driver:
    """Returns the driver of a session: ``Connect`` where it is one of Spark Connect."""
    return Connect(spark) if type(spark).__module__.startswith("pyspark.sql.connect") else Driver(spark)


class PlanNode(NamedTuple):
    """A node of a parsed plan, or of what is in one.

    kind: its class in Spark, without the package. is_plan: whether it is a plan or a command; else it is an
    expression or a part of either. function: the function that it calls by name, in small letters; else "".
    """

    kind: str
    is_plan: bool
    function: str


class Driver:
    """The driver of a session, in this process. has_jvm: whether its JVM can be called from here."""

    has_jvm = True

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def _context(self) -> Any:
        return self.spark.sparkContext

    def use_settings(self) -> None:
        """Lets this process open object stores as the session does, where the environment says nothing."""
        session: Any = self.spark
        use_settings_of(session._jsparkSession.sessionState().newHadoopConf().get)

    def share_code(self) -> None:
        """Lets Python workers import this project. Raises a UserError if they can't run it.

        Workers on this machine get the folder of this code in their PYTHONPATH. Those of a cluster have their
        own (--py-files, --archives), which such a folder of a node would hide.
        All get the variables by which this process opens object stores.
        """
        self.use_settings()
        environment = self._context.environment
        environment.update(store_variables())
        root = Path(__file__).absolute().parents[3]
        folders = environment.get("PYTHONPATH", "").split(os.pathsep)
        if is_local(self.spark) and root.is_dir() and str(root) not in folders:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), *folders]))

    def parallelism(self) -> int:
        """Returns the number of tasks that run at the same time."""
        return int(self._context.defaultParallelism)

    def executors(self) -> list[preflight.Executor]:
        """Returns what each executor has: one small task a core, so that each executor gets some.

        Raises a UserError where its Python does not start.
        """
        tasks, work = self.parallelism(), partial(preflight.look, preflight.NEEDED, True)
        with preflight.as_code():
            try:
                texts = self._context.range(tasks, numSlices=tasks).mapPartitions(work).collect()
            except Exception as error:
                python = self._context.pythonExec
                reason = f"{python} does not run on the executors: {one_line(error)}"
                raise UserError(f"{reason}; {ADVICE}") from None
        return [preflight.Executor.of(text) for text in sorted(set(texts))]

    def heap_of_tasks(self) -> int | None:
        """Returns the bytes of Java's heap where tasks run; None where it is not known."""
        jvm = self._context._jvm
        if is_local(self.spark):
            return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
        given = self._context.getConf().get("spark.executor.memory", "1g")
        return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(given))

    @contextmanager
    def finished_share(self) -> Iterator[Callable[[], float]]:
        """Gives a function for the share of finished tasks of the stage that runs in the block, 0 to 1."""

        def share() -> float:
            tracker = self._context.statusTracker()
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            return _share((i.numCompletedTasks, i.numTasks) for i in infos if i is not None)

        yield share

    @contextmanager
    def described(self, group: str, description: str) -> Iterator[None]:
        """Shows jobs of Spark that run in a block under this group and description on Spark's pages."""
        before = {name: self._context.getLocalProperty(name) for name in _JOB_PROPERTIES}
        self._context.setJobGroup(group, description)
        try:
            yield
        finally:
            for name, value in before.items():
                self._context.setLocalProperty(name, value)

    def conf_errors(self) -> AbstractContextManager[object]:
        """Guards changes of settings in a block: those that the service does not allow are left out."""
        return nullcontext()

    def cancel(self) -> None:
        """Stops what the session is running."""
        self._context.cancelAllJobs()

    def parsed_plan(self, statement: str) -> Iterator[PlanNode]:
        """Yields every node of the plan that Spark's parser makes of a statement.

        Raises Spark's error for a statement that is wrong.
        """
        session: Any = self.spark._jsparkSession
        return _walked(session.sessionState().sqlParser().parsePlan(statement))

    def scheme_of_files(self, df: DataFrame, same: Collection[str], others: Collection[str]) -> str | None:
        """Returns the URI scheme of a Delta table whose rows a frame has, with columns as in its files.

        same: these columns; others: which the table has too. None where that is not plain: a join, a shuffle,
        a cached frame, a changed column, a stream, a table of a catalog, whose files only Spark may open, or
        one with column mapping, whose files have other names.
        """
        frame: Any = df.select("*")  # made now: it knows what is cached
        with suppress(*_py4j_errors()):  # what a class of Spark does not have, or a service does not allow
            leaf = frame._jdf.queryExecution().withCachedData()
            shown = _attributes(leaf)
            while leaf.nodeName() in _KEEPS_ROWS:
                leaf = leaf.children().head()
            stored = _attributes(leaf)
            if leaf.nodeName() == "LogicalRelation" and leaf.catalogTable().isEmpty():
                relation = leaf.relation()
                is_mapped = relation.fileFormat().columnMappingMode().name() != "none"
                is_same = all(name in stored and shown.get(name) == stored[name] for name in same)
                if is_same and not is_mapped and stored.keys() >= set(others):
                    return str(relation.location().rootPaths().head().toUri().getScheme() or "file")
        return None


class Connect(Driver):
    """The driver of a session of Spark Connect."""

    has_jvm = False

    def use_settings(self) -> None:
        """Does nothing: what the server opens, and how, is not shown to a client."""

    def share_code(self) -> None:
        """Sends a zip of this project's packages, unless the workers have the same code already."""
        self._ready()

    def parallelism(self) -> int:
        return self._ready()

    def heap_of_tasks(self) -> int | None:
        """Returns None: a client does not see the server's heap."""
        return None

    def _ready(self) -> int:
        """Sees to it that the workers have our code; returns how many tasks run at the same time."""
        if self.spark in _READY:
            return _READY[self.spark]
        executors = self.executors()
        broken = {name for executor in executors for name in executor.broken}
        missing = sorted(broken - {*PACKAGES})
        if missing:
            raise UserError(
                f"the Python of Spark's workers has no {missing[0]}: "
                "install the wheel of kafka-log-lake there"
            )
        ours, _ = preflight.own_code()
        if broken or {executor.code for executor in executors} != {ours}:
            log.info("sending the code of this project to Spark's workers, which have none or another")
            with tempfile.TemporaryDirectory() as folder:
                made = Path(folder, f"kafka_log_lake-{ours}.zip")
                write_zip(made)
                self.spark.addArtifacts(str(made), pyfile=True)
        _READY[self.spark] = len(executors)
        return len(executors)

    def executors(self) -> list[preflight.Executor]:
        """Returns what each worker has, a task each. Imports none of our packages, which a zip may bring."""
        work = partial(preflight.look_in_arrow, (*_LIBRARIES, *PACKAGES))
        with preflight.as_code():
            looked = self.spark.range(_ENOUGH_ROWS).mapInArrow(work, "executor string").collect()
        return [preflight.Executor.of(row["executor"]) for row in looked]

    @contextmanager
    def finished_share(self) -> Iterator[Callable[[], float]]:
        finished = 0.0

        def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            nonlocal finished
            finished = _share((s.num_completed_tasks, s.num_tasks) for s in stages or () if not s.done)

        self.spark.registerProgressHandler(handle)  # type: ignore[arg-type]  # any callable will do
        try:
            yield lambda: finished
        finally:
            self.spark.removeProgressHandler(handle)  # type: ignore[arg-type]

    @contextmanager
    def described(self, group: str, description: str) -> Iterator[None]:
        """Shows jobs of a block under tags, of which Spark Connect makes the group; a tag has no comma."""
        tags = [text.replace(",", ";") for text in (group, description)]
        for tag in tags:
            self.spark.addTag(tag)
        try:
            yield
        finally:
            for tag in tags:
                self.spark.removeTag(tag)

    def conf_errors(self) -> AbstractContextManager[object]:
        return suppress(PySparkException)

    def cancel(self) -> None:
        self.spark.interruptAll()

    def scheme_of_files(self, df: DataFrame, same: Collection[str], others: Collection[str]) -> str | None:
        """Returns None: a client does not see the plan."""
        return None

    def parsed_plan(self, statement: str) -> Iterator[PlanNode]:
        """Yields nodes of a plan by EXPLAIN, which runs nothing: a line begins with the class of each plan.

        Its lines leave out expressions of long lists: functions are all words of the statement.
        """
        shown = str(self.spark.sql(f"EXPLAIN EXTENDED {statement}").collect()[0][0])
        plan = shown.partition("== Parsed Logical Plan ==")[2].partition("== Analyzed Logical Plan ==")[0]
        for kind in re.findall(r"^[ :+|-]*'?(\w+)", plan, re.MULTILINE):
            yield PlanNode("UnresolvedWith" if kind == "CTE" else kind, True, "")
        for word in re.findall(r"\w+", statement.lower()):
            yield PlanNode("", False, word)


def _py4j_errors() -> tuple[type[Exception], ...]:
    """Returns the classes of the errors of a call of the JVM."""
    py4j = sys.modules.get("py4j.protocol")
    return () if py4j is None else (py4j.Py4JError, PySparkException)


def _attributes(plan: Any) -> dict[str, int]:
    """Returns the id of each column of a plan's rows, by name; an expression makes a new id."""
    output = plan.output()
    columns = [output.apply(i) for i in range(output.size())]
    return {column.name(): column.exprId().id() for column in columns}


def _share(stages: Iterable[tuple[int, int]]) -> float:
    """Returns the share of finished tasks in the largest of some stages. stages: (finished tasks, tasks)."""
    finished, tasks = max(stages, key=lambda pair: pair[1], default=(0, 1))
    return finished / max(1, tasks)


def _walked(plan: Any) -> Iterator[PlanNode]:
    """Yields the nodes of a plan and of all that they have as fields, also in collections."""
    loader = plan.getClass().getClassLoader()
    logical, product, collection = (
        loader.loadClass(name)
        for name in (
            "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan",
            "scala.Product",
            "scala.collection.Iterable",
        )
    )
    known: dict[str, tuple[bool, bool, bool]] = {}  # of a class: is it a plan, has it fields, or items
    left = [plan]
    while left:
        node = left.pop()
        if not hasattr(node, "getClass"):  # a value that became one of Python
            continue
        name = node.getClass().getName()
        if name not in known:
            known[name] = (logical.isInstance(node), product.isInstance(node), collection.isInstance(node))
        is_plan, has_fields, has_items = known[name]
        kind = name.rpartition(".")[2].rstrip("$")
        yield PlanNode(kind, is_plan, _function(kind, node))
        if kind != "Literal" and (has_fields or has_items):
            parts = node.iterator() if has_items else node.productIterator()
            while parts.hasNext():
                left.append(parts.next())


def _function(kind: str, node: Any) -> str:
    if kind not in ("UnresolvedFunction", "UnresolvedTableValuedFunction"):
        return ""
    parts = node.nameParts() if kind == "UnresolvedFunction" else node.name()
    return str(parts.last()).lower()


def write_zip(path: Path) -> None:
    """Writes a zip of the packages, from which Python imports them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for package in PACKAGES:
            for name, content in package_files(resources.files(package), package):
                made.writestr(zipfile.ZipInfo(name), content)

"""How the tests start Java: as what lives for seconds.

Java's second compiler takes half of the processor time of a job over a few rows. A twentieth each take its
default collector, the processes by which Hadoop sets permissions, where they don't start by vfork, and small
pages of memory. What Spark plans and generates is the same without them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kafka_log_lake.pipelines.cli.java import java_command
from kafka_log_lake.pipelines.engine.session import ONLY_PLANS

# Variables with a user's own options. Java refuses to start where two collectors are named
_OF_USERS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
_COLLECTOR = "-XX:+UseSerialGC"
_NAMES_ONE = any("GC" in os.environ.get(name, "").replace(_COLLECTOR, "") for name in _OF_USERS)


def _large_pages() -> list[str]:
    """The option for large pages where the kernel has them. Java prints a warning elsewhere."""
    with suppress(OSError):
        if "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text():
            return ["-XX:+UseTransparentHugePages"]
    return []


_QUICK = [
    *ONLY_PLANS["spark.driver.extraJavaOptions"].split(),
    "-Djdk.lang.Process.launchMechanism=VFORK",
    *_large_pages(),
    *([] if _NAMES_ONE else [_COLLECTOR]),
]
QUICK_JAVA = " ".join(_QUICK)

# For the Spark of a command, which collects less often, and plans as the session of all tests does. How many
# tasks follow a shuffle is left to the command
_NOT_OF_COMMANDS = ("spark.driver.extraJavaOptions", "spark.sql.shuffle.partitions")
_PLANS = [f"-D{name}={value}" for name, value in ONLY_PLANS.items() if name not in _NOT_OF_COMMANDS]
_QUICK_SPARK = " ".join(["-Xmn400m", *_PLANS])


def _before(quick: str, own: str) -> str:
    """A user's own options come last, where they win. A process of pytest-xdist finds ours there already."""
    return own if quick in own else f"{quick} {own}".rstrip()


# What Spark's scripts give to the Java of spark-submit, of a daemon, and of the launcher in front of both
QUICK_ENVIRONMENT = {
    name: _before(quick, os.environ.get(name, ""))
    for name, quick in {
        "SPARK_SUBMIT_OPTS": f"{QUICK_JAVA} {_QUICK_SPARK}",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
    }.items()
}


def quick_java(*options: str) -> list[str]:
    """The first words of a command that is Java's alone."""
    return [java_command() or "java", *_QUICK, *options]

"""Finds the Java that Spark would start, and checks its version.

Uses the standard library only, because ``make setup`` runs it before any package is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

SUPPORTED = (17, 21)
ADVICE = "install a Java 17 or 21 runtime (for example openjdk-17-jre-headless) or set JAVA_HOME to one"


def java_command() -> str | None:
    """Returns the path of the ``java`` that Spark's launcher starts; None if there is none.

    It is the one of JAVA_HOME if that is set, else the first on PATH.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home, "bin", "java")
        return str(candidate) if os.access(candidate, os.X_OK) else None
    return shutil.which("java")


@cache
def _java_version(command: str) -> str:
    """Returns what ``java -version`` prints. Raises OSError or CalledProcessError where it does not start."""
    return subprocess.run([command, "-version"], capture_output=True, text=True, check=True).stderr


def java_major(version_text: str) -> int | None:
    """Returns the major version in the output of ``java -version`` (8 is written as 1.8).

    None if there is none.
    """
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match.group(1)) if match else None


def java_problem() -> str | None:
    """Says in one line what is wrong with this machine's Java and how to correct it; None if it works."""
    command = java_command()
    if command is None:
        where = "JAVA_HOME has no bin/java" if os.environ.get("JAVA_HOME") else "no Java found"
        return f"{where}: {ADVICE}"
    try:
        output = _java_version(command)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{command} does not start ({error}): {ADVICE}"
    major = java_major(output)
    if major not in SUPPORTED:
        version = "of unknown version" if major is None else str(major)
        return f"Java {version} found at {command}, Spark needs 17 or 21: {ADVICE}"
    return None


if __name__ == "__main__":
    problem = java_problem()
    sys.exit(problem)

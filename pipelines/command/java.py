"""Which Java Spark would start, and whether it can: standard library alone, so that set-up runs it too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SUPPORTED = (17, 21)
ADVICE = "install a Java 17 or 21 runtime (for example openjdk-17-jre-headless) or set JAVA_HOME to one"


def java_command() -> str | None:
    """Path of the ``java`` that Spark's launcher takes: JAVA_HOME's, else the first of PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home, "bin", "java")
        return str(candidate) if os.access(candidate, os.X_OK) else None
    return shutil.which("java")


def java_major(version_text: str) -> int | None:
    """Major version from the output of ``java -version``; 8 is written as 1.8."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match.group(1)) if match else None


def java_problem() -> str | None:
    """One line that says what is wrong with this machine's Java and how to mend it, or None."""
    command = java_command()
    if command is None:
        where = "JAVA_HOME has no bin/java" if os.environ.get("JAVA_HOME") else "no Java found"
        return f"{where}: {ADVICE}"
    try:
        output = subprocess.run([command, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{command} does not start ({error}): {ADVICE}"
    major = java_major(output)
    if major not in SUPPORTED:
        found = "of unknown version" if major is None else str(major)
        return f"Java {found} found at {command}, Spark needs 17 or 21: {ADVICE}"
    return None


if __name__ == "__main__":
    problem = java_problem()
    sys.exit(problem)

"""A repository of a user's own whose packages have the names of our folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "tests" / "data" / "corpus" / "v2-codec-none"
NAMES = ("pipelines", "udfs", "conf", "tools", "tests", "engine", "lake")


def write_packages(folder: Path) -> None:
    """Writes packages of these names into a data engineer's repository, each with a function ``whose``."""
    for name in NAMES:
        package = folder / name
        package.mkdir()
        (package / "__init__.py").write_text("def whose():\n    return 'the user'\n")


def python(folder: Path, code: str, *arguments: str) -> str:
    """What a script of the user's prints, in that folder and with this environment's packages."""
    script = folder / "job.py"
    script.write_text(code)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *arguments, str(script)], cwd=folder, env=kept, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

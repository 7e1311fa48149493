"""Reads the pages of the documentation."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
# Pages for those who change the code
INNER_VIEWS = ROOT / "pipelines" / "views" / "README.md"
INNER = [
    ARCHITECTURE,
    INNER_VIEWS,
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "benchmarks" / "FORMATS.md",
    ROOT / "tests" / "README.md",
    ROOT / "conformance" / "README.md",
]
DOCS = [*sorted((ROOT / "docs").glob("*.md")), *INNER]
# How to do things, by role
ROLES = [
    ROOT / "docs" / f"{role}.md" for role in ("on_call", "platform", "cost", "analyst", "auditor", "python")
]
VIEWS_PAGE = ROOT / "docs" / "views.md"
CONNECT = ROOT / "docs" / "connect.md"
COMMANDS, OPERATIONS = ROOT / "docs" / "commands.md", ROOT / "docs" / "operations.md"
MESSAGES = ROOT / "docs" / "messages.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
FORMATS, QUALITY = ROOT / "docs" / "formats_and_cost.md", ROOT / "docs" / "quality.md"


SHOP = ROOT / "tests" / "data" / "shop"


def blocks(page: Path, language: str) -> list[str]:
    """Returns the contents of a page's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def bundled_sources() -> tuple[str, ...]:
    """Returns the paths of the sources that ``make samples`` decodes, read from the Makefile."""
    shown = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", "samples"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (command,) = [line for line in shown.stdout.splitlines() if "kafka-log-lake decode" in line]
    words = shlex.split(command)
    return tuple(str(ROOT / words[i + 1]) for i, word in enumerate(words) if word == "--source")

"""Converts the notebooks to Jupyter's format: ``python -m tools.notebooks FOLDER`` writes ``*.ipynb`` there.

The notebooks are in Databricks source format: cells between ``# COMMAND ----------``, text after
``# MAGIC``. What they need to run stays as it is: a folder above them with the project's packages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
_CELL = "# COMMAND ----------"
_TEXT, _KIND = "# MAGIC", "# MAGIC %md"


def cells(source: str) -> list[tuple[str, str]]:
    """Returns the cells of a notebook in Databricks source format: ("markdown" or "code", content)."""
    found = []
    for cell in source.split("\n", 1)[1].split(_CELL):
        text = cell.strip("\n")
        if text.startswith(_KIND):
            lines = [line.removeprefix(_TEXT).removeprefix(" ") for line in text.splitlines()[1:]]
            found.append(("markdown", "\n".join(lines)))
        else:
            found.append(("code", text))
    return found


def to_jupyter(source: str) -> dict[str, object]:
    """Returns the notebook as the JSON object of an ``.ipynb`` file, nbformat 4.5."""
    made: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells(source)):
        cell: dict[str, object] = {"id": f"cell-{number}", "cell_type": kind, "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def main(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path in sorted(NOTEBOOKS.glob("*.py")):
        made = Path(folder, f"{path.stem}.ipynb")
        made.write_text(json.dumps(to_jupyter(path.read_text()), indent=1) + "\n")
        print(made)


if __name__ == "__main__":
    main(sys.argv[1])

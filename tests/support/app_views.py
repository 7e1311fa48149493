"""Topics of Connect and MirrorMaker at one moment, and what their APIs answered (tests/data/app_views)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "data" / "app_views"
ORACLE: dict[str, Any] = json.loads((DATA / "oracle.json").read_text())
STORES: list[dict[str, Any]] = [*map(json.loads, (DATA / "stores.jsonl").read_text().splitlines())]

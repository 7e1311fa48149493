"""Reports known vulnerabilities of the packages in ``requirements.lock``: ``make audit``, by pip-audit.

Exit code 0: none known; 1: some known; 2: no source of advisories could be reached, so nothing is known.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"


def verdict(packages: Sequence[dict[str, Any]]) -> tuple[int, list[str]]:
    """Returns (exit code, lines to print). packages: pip-audit's: name, version and vulns or skip_reason."""
    checked = [p for p in packages if "vulns" in p]
    if not checked:
        return 2, ["audit: no source of advisories could be reached: nothing is known of any package"]
    found = [
        f"{p['name']} {p['version']}: {v['id']}, fixed in {', '.join(v['fix_versions']) or 'no version yet'}"
        for p in checked
        for v in p["vulns"]
    ]
    left = [p["name"] for p in packages if "vulns" not in p]
    unknown = f"; nothing is known of {', '.join(left)}" if left else ""
    return int(bool(found)), [*found, f"{len(checked)} packages, {len(found)} known vulnerabilities{unknown}"]


def main() -> int:
    uvx = str(Path(sys.executable).with_name("uvx"))
    audit = [uvx, "pip-audit", "--requirement", str(LOCK), "--disable-pip", "--require-hashes", "-f", "json"]
    done = subprocess.run(audit, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError):  # pip-audit itself, or its source, could not be reached
        packages = []
    code, lines = verdict(packages)
    print("\n".join(lines), file=sys.stderr if code == 2 else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""``make setup`` in a checkout where something is in its way."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_an_environment_that_is_a_link_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkout" / "tools").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkout" / ".venv").symlink_to(tmp_path / "elsewhere")
    script = shutil.copy(ROOT / "tools" / "setup.sh", tmp_path / "checkout" / "tools")
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("setup: .venv is a link")
    assert list((tmp_path / "elsewhere").iterdir()) == []

"""The script of the page for operations, as cron runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.docs import OPERATIONS, SHOP, blocks
from tests.support.java import QUICK_ENVIRONMENT


def alerts(folder: Path, logs: Path) -> list[str]:
    """Runs the script over logs. Returns the lines that somebody gets."""
    (script,) = [block for block in blocks(OPERATIONS, "sh") if "alert()" in block]
    (folder / "check-logs").write_text(script)
    (folder / "to-chat").write_text('#!/bin/sh\necho "$1" >> alerts\n')
    (folder / "command").write_text(f'#!/bin/sh\nexec {sys.executable} -m kafka_log_lake "$@"\n')
    for name in ("to-chat", "command"):
        (folder / name).chmod(0o755)
    places = {"LOGS": str(logs), "LAKE": "lake", "PAGE": "page", "ALERT": "./to-chat", "COMMAND": "./command"}
    environment = {**os.environ, **QUICK_ENVIRONMENT, **places}
    subprocess.run(["sh", "check-logs"], cwd=folder, env=environment, capture_output=True, timeout=600)
    written = folder / "alerts"
    return written.read_text().splitlines() if written.exists() else []


def test_sound_logs_alert_nobody_and_their_values_are_typed(tmp_path: Path) -> None:
    for name in ("customers-0", "_schemas-0"):
        shutil.copytree(SHOP / name, tmp_path / "logs" / name)
    assert alerts(tmp_path, tmp_path / "logs") == []
    assert (tmp_path / "page/quality.html").exists()
    assert (tmp_path / "lake/typed/customers/_delta_log").is_dir()


def test_damage_and_a_disk_that_is_gone_are_one_line_each(tmp_path: Path) -> None:
    assert alerts(tmp_path, SHOP / "orders-1") == ["kafka logs: not sound, see page/quality.html"]
    (tmp_path / "alerts").unlink()
    assert alerts(tmp_path, tmp_path / "gone") == [
        f"kafka logs: decode of {tmp_path}/gone ended with exit code 2: nothing was checked"
    ]

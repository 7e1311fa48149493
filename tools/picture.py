"""Makes the README's picture of a session: ``python -m tools.picture`` writes ``docs/images/session.svg``.

Copies three of the bundled logs under everyday names, runs ``scan``, ``decode`` and ``query`` over them in
processes of their own, on a terminal, and draws what they print. The list of next steps is left out.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "session.svg"
LOGS = {
    "clicks-0": "v2-headers/headers.v1-0",
    "orders-0": "hostile/bitflip-payload-v2-zstd-0",
    "payments-0": "v2-txn-open/tx-open-0",
}
QUERY = "SELECT topic, first_lost, last_lost, next_offset FROM lost_offsets"
WIDTH = 112
_COMMAND = "import sys; sys.argv[0] = 'kafka-log-lake'; from kafka_log_lake.__main__ import script; script()"


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """What a command prints on a terminal of WIDTH columns, with its colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    command = [sys.executable, "-c", _COMMAND, *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=theirs, stderr=subprocess.PIPE
    ) as done:
        os.close(theirs)
        printed = b""
        try:
            while piece := os.read(ours, 1 << 16):
                printed += piece
        except OSError:  # the other end was closed
            pass
        os.close(ours)
        said = done.stderr.read().decode() if done.stderr else ""
    if done.returncode:
        raise RuntimeError(f"{shlex.join(arguments)} failed: {said}")
    return printed.decode().replace("\r\n", "\n")


def session(folder: Path) -> list[tuple[str, str]]:
    """Runs commands on bundled logs. Returns each as it is typed, and what it prints."""
    logs = folder / "kafka-logs"
    for name, sample in LOGS.items():
        shutil.copytree(ROOT / "tests" / "data" / "corpus" / sample, logs / name)
    scanned = on_a_terminal(folder, "scan", logs.name).replace(f"{folder}/", "")  # it is gone afterwards
    on_a_terminal(folder, "decode", "--source", logs.name, "--lake", "lake")
    requested = on_a_terminal(folder, "query", "--lake", "lake", QUERY)
    return [
        (f"kafka-log-lake scan {logs.name}", re.split(r"\n\S*next:", scanned)[0] + "\n"),
        (f"kafka-log-lake decode --source {logs.name} --lake lake", "...\n"),
        (f'kafka-log-lake query --lake lake "{QUERY}"', requested),
    ]


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for command, printed in session(Path(folder)):
            console.print(Text(f"$ {command}", style="bold green"))
            console.print(Text.from_ansi(printed))
    # Without the fonts of another host: a picture needs no network
    plain = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    console.save_svg(str(PICTURE), title="kafka-log-lake", code_format=plain, unique_id="session")
    print(PICTURE)


if __name__ == "__main__":
    main()

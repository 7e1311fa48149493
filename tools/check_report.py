"""Opens a quality report in a headless Chromium and prints what is wrong with it: ``make report-check``.

python -m tools.check_report quality-report/quality.html [screenshots]

Checks at 360 and 1280 pixels, light and dark: nothing is requested from anywhere, the console is empty, no
script is in the page, it does not scroll sideways, and all text has a contrast of 4.5 or more to what is
behind it. Writes screenshots and a print. Chromium comes from the system (``CHROMIUM``, else from PATH).
Exit code 0: nothing is wrong; 1: something is; 2: there is no Chromium, or it gave no answer.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

WIDTHS = (360, 1280)
SCHEMES = {"dark": 0, "light": 1}  # Blink's preferredColorScheme
_HEIGHT = 2000
_SECONDS = 120
# The page's policy forbids scripts in it, so the page around it measures: a frame has the width of a screen
_AROUND = """<!doctype html><meta charset="utf-8"><style>body{margin:0}iframe{border:0;display:block}</style>
<iframe width="%(width)d" height="%(height)d" srcdoc="%(page)s"></iframe><pre id="found"></pre><script>
const frame = document.querySelector("iframe");
function rgba(text) { return (text.match(/[0-9.]+/g) || []).map(Number); }
function luminance(c) {
  const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function behind(node) {
  for (; node; node = node.parentElement) {
    const c = rgba(frame.contentWindow.getComputedStyle(node).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c;
  }
  return [255, 255, 255];
}
frame.onload = () => {
  const page = frame.contentDocument, found = [];
  const wide = page.documentElement.scrollWidth;
  if (wide > %(width)d) found.push(`the page is ${wide} pixels wide`);
  if (page.querySelector("script")) found.push("there is a script in the page");
  const seen = new Set();
  for (const node of page.body.querySelectorAll("*")) {
    if (![...node.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = frame.contentWindow.getComputedStyle(node);
    if (node.closest("[opacity='0']")) continue;
    const ink = rgba(node instanceof frame.contentWindow.SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(behind(node))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    const name = `contrast ${contrast.toFixed(2)} of <${node.tagName} class="${node.getAttribute("class")}">`;
    if (contrast < 4.5 && !seen.has(name)) { seen.add(name); found.push(name); }
  }
  document.getElementById("found").textContent = JSON.stringify(found);
};
</script>"""


def chromium() -> str | None:
    """Returns the command that starts Chromium; None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


class Browser:
    """A headless Chromium with a separate profile in ``folder``."""

    def __init__(self, command: str, folder: Path) -> None:
        self._command, self._folder = command, folder

    def run(self, url: str, *options: str) -> subprocess.CompletedProcess[str]:
        always = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-extensions")
        profile = f"--user-data-dir={self._folder / 'profile'}"
        command = [self._command, *always, profile, "--virtual-time-budget=10000", *options, url]
        return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)

    def measured(self, page: str, width: int, scheme: str) -> list[str]:
        """Returns the problems that a page around this one finds. Raises a ValueError without an answer."""
        around = self._folder / f"around-{width}.html"
        values = {"width": width, "height": _HEIGHT, "page": html.escape(page)}
        around.write_text(_AROUND % values, encoding="utf-8")
        done = self.run(
            around.as_uri(), f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", "--dump-dom"
        )
        answer = re.search(r'<pre id="found">(\[.*?\])</pre>', done.stdout, re.DOTALL)
        if answer is None:
            raise ValueError(f"Chromium gave no answer: {done.stderr.strip()[-500:]}")
        found: list[str] = json.loads(html.unescape(answer[1]))
        return found

    def requests(self, url: str) -> list[str]:
        """Returns lines: the addresses that the page requested besides its own, and console messages."""
        log = self._folder / "net.json"
        done = self.run(url, f"--log-net-log={log}", "--enable-logging=stderr", "--dump-dom")
        requested = set(
            re.findall(r'"url":"((?:https?|wss?|ftp|file)://[^"]*)"', log.read_text(errors="replace"))
        )
        # Chromium itself asks for updates of its components, whatever it shows
        own = re.compile(r"https?://([\w-]+\.)*(google|googleapis|gvt1|gstatic)\.com[/:]")
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return [
            f"requests {name}" for name in sorted(requested) if name != url and not own.match(name)
        ] + said

    def pictures(self, page: Path, folder: Path) -> None:
        """Writes screenshots of the page's top (light, dark, narrow), and a PDF of the whole page."""
        folder.mkdir(parents=True, exist_ok=True)
        for scheme, number in SCHEMES.items():
            options = (f"--blink-settings=preferredColorScheme={number}", f"--window-size=1280,{_HEIGHT}")
            self.run(page.as_uri(), *options, f"--screenshot={folder / f'{scheme}.png'}")
        narrow = (self._folder / "around-360.html").as_uri()
        self.run(narrow, f"--window-size=500,{_HEIGHT}", f"--screenshot={folder / 'narrow.png'}")
        self.run(page.as_uri(), f"--print-to-pdf={folder / 'print.pdf'}", "--no-pdf-header-footer")


def violations(page: Path, browser: Browser) -> Iterator[str]:
    """Yields what is wrong with the page, one line for each problem."""
    yield from browser.requests(page.as_uri())
    text = page.read_text(encoding="utf-8")
    for width in WIDTHS:
        for scheme in SCHEMES:
            yield from (
                f"{width} pixels, {scheme}: {found}" for found in browser.measured(text, width, scheme)
            )


def main(argv: Sequence[str]) -> int:
    command = chromium()
    if not argv or command is None:
        why = "name a page" if command else "there is no Chromium: apt install chromium, or set CHROMIUM"
        print(f"report-check: {why}", file=sys.stderr)
        return 2
    page = Path(argv[0]).resolve()
    pictures = Path(argv[1]) if len(argv) > 1 else page.parent / "screenshots"
    with tempfile.TemporaryDirectory(prefix="report-check-", ignore_cleanup_errors=True) as folder:
        browser = Browser(command, Path(folder))
        try:
            found = list(violations(page, browser))
            browser.pictures(page, pictures.resolve())
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            print(f"report-check: {error}", file=sys.stderr)
            return 2
    print("\n".join(found or ["nothing is wrong"]), f"screenshots are in {pictures}", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

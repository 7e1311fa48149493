"""The page of ``inspect``: bytes of a file are text in it, and are linked to their fields."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support import corpus
from tests.support.inspected import SEGMENT, put, shown
from tests.support.segment_maker import GZIP, Batch, Record


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_hostile_bytes_are_escaped_in_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = b"</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&<!--rows-->"
    record = Record(evil, evil, headers=((evil, evil),))
    source = put(tmp_path, Batch((record,), codec=GZIP).encode())
    page = tmp_path / "page.html"
    assert shown(capsys, source, "--html", page)[0] == 0
    text = page.read_text()
    found = _Page(text)
    assert found.tags.count("script") == 1
    assert "img" not in found.tags
    names = {name for name, _ in found.attributes}
    assert not any(name.startswith("on") or name in ("src", "href") for name in names)
    assert (
        "content",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'",
    ) in found.attributes
    assert "http" not in text.replace("http-equiv", "")
    assert text.count("<tbody>") == 1


def test_bytes_and_fields_of_the_page_are_linked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = corpus.ROOT / "v2-codec-zstd" / "codec-zstd-0" / SEGMENT
    page = tmp_path / "page.html"
    shown(capsys, source, "--position", "0", "--html", page)
    found = _Page(page.read_text())
    of_bytes = {value for name, value in found.attributes if name == "data-f"}
    ends = {value for name, value in found.attributes if name == "data-e"}
    assert len(of_bytes) > 50
    assert ends <= of_bytes

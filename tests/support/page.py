"""The page of the quality report as a browser reads it: its elements, and what all of them must keep to."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

# All that the page is made of; what is missing here must not be in it
TAGS = {
    *("html", "head", "meta", "title", "link", "style", "body", "header", "main", "nav", "div", "span", "p"),
    *("a", "h1", "h2", "h3", "ul", "li", "dl", "dt", "dd", "time", "br", "code", "figure"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "svg", "g", "path", "line", "text"),
}
_EMPTY = {"meta", "link", "br"}  # elements without an end tag
Attributes = dict[str, str | None]


class Page(HTMLParser):
    """The elements of a page in order, with their text and their parents. Fails if they do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, Attributes, tuple[str, ...]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), tuple(self._open)))
        self.texts.append("")
        if tag not in _EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.texts:
            self.texts[-1] += text

    def of(self, *tags: str) -> list[Attributes]:
        return [attributes for tag, attributes, _ in self.elements if tag in tags]

    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def check_structure(page: Page) -> None:
    """What a browser, a screen reader and the page's own policy need."""
    assert {tag for tag, _, _ in page.elements} <= TAGS
    (policy,) = [a["content"] for a in page.of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy
    for tag, attributes, _ in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in ("src", "srcset", "action", "style", "xlink:href"), (tag, name)
            if name == "href":
                assert re.match(r"#|data:|batch-\d+\.html$", str(value)), value
    assert "url(" not in page.texts[[tag for tag, _, _ in page.elements].index("style")]
    (root,) = page.of("html")
    assert root["lang"] == "en"
    ids = [a["id"] for _, a, _ in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    targets = [str(a["href"]) for a in page.of("a")]
    assert {target for target in targets if target.startswith("#")} <= {f"#{name}" for name in ids}
    levels = [int(tag[1]) for tag, _, _ in page.elements if tag in ("h1", "h2", "h3")]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert len(page.of("caption")) == len(page.of("table"))
    assert all(a.get("scope") in ("row", "col") for a in page.of("th"))
    for attributes in page.of("svg"):
        assert attributes["role"] == "img"
        assert attributes["aria-label"]
    for _, attributes, _ in page.elements:
        if attributes.get("role") == "region":
            assert attributes["tabindex"] == "0"
            assert attributes.get("aria-label") or attributes["aria-labelledby"] in ids

"""Lays out the pages of the site in ``build/docs``, of which mkdocs makes it: ``make docs``.

The pages in ``docs/`` and those of other folders become one folder. Links between them are kept. A link to a
file that is no page becomes its text.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import kafka_log_lake
from tools import options_doc, tables_doc
from tools.api_doc import described

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "docs"
# Pages outside of docs/, and the names that they have on the site
_OTHERS = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "performance.md",
    "benchmarks/FORMATS.md": "format_claims.md",
    "pipelines/views/README.md": "inner_views.md",
    "tests/README.md": "promises.md",
    "conformance/README.md": "conformance.md",
}
# Pages that are made of the code for the site alone
MADE = {"view_columns.md": tables_doc.views, "inner_columns.md": tables_doc.inner_views}
# What the comments of a page name, and the text that takes the place of each on the site
PARTS: dict[str, Callable[[], str]] = {
    "options": options_doc.settings,
    **{
        f"options of {name}": partial(options_doc.arguments, name)
        for name in ("export", "mcp", "recover", "maintain", "dump", "restore", "quality-report")
    },
    "columns of tables": tables_doc.shared_columns,
    **{part: partial(tables_doc.tables, part) for part in tables_doc.PARTS},
}
PART = re.compile(r"^<!-- on the site: (.+) -->$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def sources() -> dict[Path, str]:
    """Returns the pages of the checkout, and the name that each has on the site."""
    found = {path: path.name for path in sorted((ROOT / "docs").glob("*.md"))}
    return found | {ROOT / path: name for path, name in _OTHERS.items()}


def page(path: Path, names: dict[Path, str]) -> str:
    """Returns the text of a page with the links that it has on the site."""

    def link(found: re.Match[str]) -> str:
        image, words, target, anchor = found.groups()
        if "://" in target:
            return found[0]
        file = (path.parent / target).resolve()
        if file in names:
            return f"[{words}]({names[file]}{anchor or ''})"
        if file.is_relative_to(ROOT / "docs") and file.is_file():
            return f"{image}[{words}]({file.relative_to(ROOT / 'docs')})"
        return words

    return _LINK.sub(link, PART.sub(lambda found: _part(found[1]), path.read_text()))


def _part(name: str) -> str:
    """Returns the docstring of a name of the package, or one of PARTS."""
    of_package = name.removeprefix("kafka_log_lake.")
    return described(of_package) if of_package != name else PARTS[name]()


def texts() -> dict[str, str]:
    """Returns the text of each page of the site, by the page's name."""
    names = sources()
    return {name: page(path, names) for path, name in names.items()} | {
        name: made() for name, made in MADE.items()
    }


def llms_text(pages: dict[str, str]) -> str:
    """Returns ``llms.txt``: the pages of the site, each with its first sentence and its sections."""
    lines = [
        "# kafka-log-lake",
        "",
        "> Turns Kafka's log files into tables, without a broker.",
        "",
        "## Pages",
        "",
    ]
    for name, page_text in pages.items():
        text = _LINK.sub(lambda link: link[2], page_text)
        text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).replace("**", "")
        title = re.search(r"^# (.+)", text, re.MULTILINE)
        first = re.search(r"^(?![#|>`!<-])(\S.*?\.)(?=\s)", text, re.MULTILINE | re.DOTALL)
        sections = "; ".join(re.findall(r"^## (.+)", text, re.MULTILINE))
        about = [" ".join(first[1].split()) if first else "", f"Sections: {sections}." if sections else ""]
        said = " ".join(filter(None, about)) or "a list"
        lines.append(f"- [{title[1] if title else name}]({name.removesuffix('.md')}.html): {said}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the pages, their images and schemas, and ``llms.txt``, the list for language models."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for folder in ("images", "schemas"):
        shutil.copytree(ROOT / "docs" / folder, PAGES / folder)
    shutil.copy(ROOT / "docs" / "file_worker.js", PAGES)
    pages = texts()
    for name, text in pages.items():
        (PAGES / name).write_text(text)
    with (PAGES / "index.md").open("a") as home:
        home.write(f"\nThese pages are of version {kafka_log_lake.__version__}.\n")
    (PAGES / "llms.txt").write_text(llms_text(pages))


if __name__ == "__main__":
    main()

"""Questions of users lead to their answers on the site: by two clicks, and by one search."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
import yaml

from tests.support.docs import ROOT
from tools import site


@dataclass(frozen=True)
class Section:
    """A heading of a page of the site, and the text below it."""

    page: str
    title: str
    text: str


def sections() -> list[Section]:
    """Returns what the search of the site lists: each heading, in the order of the pages."""
    names = site.sources()
    found = []
    for path, name in names.items():
        text = re.sub(r"^```.*?^```$", "", site.page(path, names), flags=re.MULTILINE | re.DOTALL)
        parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
        found += [Section(name, *part) for part in zip(parts[1::2], parts[2::2], strict=True)]
    return found


SECTIONS = sections()
# What somebody types into the search, and words of the answer
QUESTIONS = {
    "counts differ": "Compaction, aborted transactions and transaction markers leave gaps",
    "schema id": "value_schema_id",
    "who wrote offset": "producer_id",
    "log damaged": "scan PATH",
    "find key": "find PATH --key K",
    "personal data": "--exclude-topics",
    "delete person": "maintain --lake lake --vacuum-hours 0",
    "topic cost": "another codec",
    "tiered topic": "--tier",
    "records damage": "recover",
    "consumer group lag": "group_lag",
    "time zone": "UTC",
    "pandas": ".df()",
    "exit codes": "3 damage",
    "merge copies": "recover --source",
    "hanging transaction": "hanging_transactions",
    "excel": "export --lake",
}


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_search_leads_to_the_answer(words: str) -> None:
    """The search of the site puts headings that have all words before all else."""
    patterns = [re.compile(rf"\b{re.escape(word)}", re.IGNORECASE) for word in words.split()]
    titled = [one for one in SECTIONS if all(pattern.search(one.title) for pattern in patterns)]
    assert any(QUESTIONS[words] in one.text for one in titled[:4]), [one.title for one in titled]


@pytest.mark.parametrize("words", QUESTIONS)
def test_two_clicks_lead_to_the_answer(words: str) -> None:
    """The first one on the page of questions, which the menu names; the second one on the question there."""
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert {"FAQ": "faq.md"} in menu
    questions = [one for one in SECTIONS if one.page == "faq.md"]
    assert any(
        QUESTIONS[words] in one.text and all(word in one.title.lower() for word in words.split())
        for one in questions
    )

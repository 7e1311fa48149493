"""The model of the protocol: searched through whole, and again with steps that are known to be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import protocol
from tests.support.protocol import SECOND, Version, World, at, commit_of


def test_no_order_of_steps_kills_and_commits_of_others_shows_what_is_not_so() -> None:
    found, problem, way = protocol.search(World(kills=1))
    assert not problem, way
    assert found > 10_000


def test_two_kills_without_a_reader_leave_nothing_undone() -> None:
    assert protocol.search(World(reader=None))[1] == ""


def ledger_first(world: World, job: Any) -> Any:
    """The intent is followed by the ledger's commit, then by those of the data."""
    world, _ = protocol.replace_ledger(world, job)
    return world, job._replace(step="data 0")


def newest(world: World) -> Any:
    """A reader that opens the newest version of each table."""
    reader = world.reader or protocol.Reader()
    if reader.ledger is None:
        yield world._replace(reader=protocol.Reader(world.ledger[-1]))
    elif len(reader.seen) < 2:
        rows = world.data[len(reader.seen)][-1].rows
        yield world._replace(reader=reader._replace(seen=(*reader.seen, rows)))


def appended_first(world: World, job: Any, place: int) -> Any:
    """New rows come with one commit, old ones go with another."""
    versions = world.data[place]
    if commit_of(versions, job.intent.run) is None and (job.intent.run, place) in world.written:
        both = (*versions, Version(protocol.BOTH), Version(SECOND, job.intent.run))
        world = world._replace(data=at(world.data, place, both))
    return world, job._replace(step=f"data {place + 1}" if place == 0 else "ledger")


def forgotten(world: World, job: Any) -> Any:
    """A run that can't be finished is forgotten: what it has committed stays."""
    return protocol.remove_intent(world, job)


def forgets(world: World, job: Any) -> Any:
    """A job removes the intents that it finds."""
    return protocol.recover(world._replace(intents=frozenset()), job)


def removed_early(world: World, job: Any) -> Any:
    """The intent goes before the ledger's commit."""
    world, job = protocol.replace_rows(world, job, 1)
    if job.step == "ledger":
        kept = frozenset(one for one in world.intents if one.run != job.intent.run)
        world = world._replace(intents=kept)
    return world, job


def unnamed(world: World, job: Any) -> Any:
    """The ledger does not name the tables that went back."""
    return world, job._replace(step="remove intent")


def not_decoded_again(world: World, job: Any) -> Any:
    """The ledger names tables that could not go back, and says nothing of it."""
    return protocol.back_ledger(world, job._replace(leaves=False))


@pytest.mark.parametrize(
    ("step", "other"),
    [
        ("data 0", ledger_first),
        ("data 1", lambda world, job: appended_first(world, job, 1)),
        ("data 1", removed_early),
        ("take back", forgotten),
        ("recover", forgets),
        ("back ledger", unnamed),
        ("back ledger", not_decoded_again),
    ],
)
def test_the_search_finds_what_is_wrong_with_another_protocol(
    monkeypatch: pytest.MonkeyPatch, step: str, other: Any
) -> None:
    monkeypatch.setitem(protocol.STEPS, step, other)
    assert protocol.search(World(kills=1))[1]


def test_a_reader_of_the_newest_versions_is_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "read", newest)
    assert "decode has" in protocol.search(World(kills=0, others=0, vacuums=0))[1]

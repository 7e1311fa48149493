"""A short life of logs from a fixed seed: whatever happens to the files, the tables hold what a decoding of
them gives. ``make soak`` runs thousands of steps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from tests.soak.changes import KINDS, Changes
from tests.soak.life import Soak
from tests.soak.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SEED, STEPS = 57, 50


def test_the_tables_follow_the_files_through_their_lives(spark: SparkSession, tmp_path: Path) -> None:
    soak = Soak(spark, tmp_path, SEED, steps_a_life=STEPS // 2)
    soak.go(STEPS)
    assert soak.reports == []
    assert (soak.steps, soak.lives) == (STEPS, 2)


def test_the_same_seed_gives_the_same_steps(tmp_path: Path) -> None:
    assert steps_of(tmp_path / "one") == steps_of(tmp_path / "two")


def steps_of(place: Path) -> list[str]:
    """What a world does, and the files that it comes to."""
    draw = random.Random(SEED)
    world = World(place / "logs", draw)
    changes = Changes(world)
    changes.start(2, with_links=True)
    printed: list[str] = []
    while len(printed) < 80:
        done = getattr(changes, draw.choice(KINDS))()
        printed += [done] if done else []
        world.write()
    files = {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*.log") if p.is_file()}
    return [*printed, *map(repr, sorted(files.items()))]

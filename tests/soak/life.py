"""The lives of logs between runs: a small world changes at random, jobs run, and the tables are compared.

A life is one world with a separate lake; a step is a change of the world or a run of a job. After each run
the tables hold what ``tests.soak.policy`` says, and so does each version that the run made, read plainly,
or the life ends with a report.
The dice depend on the seed alone: SOAK_SEED=n repeats all lives, ``--life n/m`` one of them.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.lake.create import create_tables
from tests.soak import look
from tests.soak.changes import DISKS, KINDS, Changes
from tests.soak.policy import How, Tables
from tests.soak.world import Listed, World
from tests.support.dying import POINTS, DiedError, arrange
from tests.support.logs import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS_A_LIFE = 60
_RUNS = 0.42  # of all steps; the others change the world
_SHOWN_STEPS, _SHOWN_LINES = 60, 40
# Changes that need several segments, or what another change left: drawn more often
_SELDOM_POSSIBLE = ("retention", "compaction", "merge", "merge_by_copy", "copies_end", "damage", "repair")
# What a run step does: kind -> how often
_KINDS_OF_RUNS = {
    "decode": 48,
    "ingest": 12,
    "from raw": 10,
    "redecode": 5,
    "verify": 4,
    "one copy": 6,
    "one disk": 5,
    "die": 14,
    "vacuum": 4,
    "optimize": 3,
}


@dataclass
class Life:
    """One world and its lake. only: the kinds of changes it may have, besides growth and rolling."""

    spark: SparkSession
    place: Path
    name: str
    only: Sequence[str] = KINDS
    runs: Sequence[str] = tuple(_KINDS_OF_RUNS)
    steps: list[str] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.name)
        self.world = World(self.place / "logs", self.draw)
        self.changes = Changes(self.world, with_transactions=self.draw.random() < 0.7)
        links = "link" in self.only and self.draw.random() < 0.3
        self.changes.start(self.draw.randint(1, 2), links)
        self.lake = self.place / "lake"
        create_tables(str(self.lake))
        self.decoded, self.raw = Tables(), Tables(raw=True)
        self.versions = look.Versions(self.lake)
        self.number = 0
        self.kinds = [kind for kind in KINDS if kind in {*self.only, "growth", "roll"}]
        self.kinds += [kind for kind in _SELDOM_POSSIBLE * 2 if kind in self.kinds]
        self.kinds += ["growth"] * (2 + len(self.kinds) // 6) + ["roll"] * (1 + len(self.kinds) // 6)

    def step(self) -> None:
        """One change of the world, or one run and what it left."""
        if self.draw.random() >= _RUNS:
            printed = ""
            while not printed:
                kind = self.draw.choice(self.kinds)
                printed = getattr(self.changes, kind)()
            self.did[kind] += 1
            self._note("".join(self.changes.asides) + printed)
            self.changes.asides.clear()
            self.world.write()
            return
        weights = [_KINDS_OF_RUNS[kind] for kind in self.runs]
        (kind,) = self.draw.choices(self.runs, weights)
        self.did[kind] += 1
        self.number += 1
        getattr(self, "_" + kind.replace(" ", "_"))()

    def _note(self, what: str) -> None:
        self.steps.append(f"{len(self.steps) + 1:4d} {what}")

    # Jobs

    def _decode(self) -> None:
        self._run("decode")

    def _verify(self) -> None:
        self._run("decode", verify_content=True)

    def _one_copy(self) -> None:
        self._run("decode", one_copy=True)

    def _redecode(self) -> None:
        self._run(
            "decode", redecode=self.draw.choice(["/disk-1/", "/t0-0/", "/t1-0/", r"0\.log", r"[1-5]\.log"])
        )

    def _one_disk(self) -> None:
        self._run("decode", disks={self.draw.choice(DISKS[:2])})

    def _ingest(self) -> None:
        self._run("ingest")

    def _from_raw(self) -> None:
        if self.raw.known:
            self._run("from raw")

    def _die(self) -> None:
        """A run that dies, perhaps a VACUUM, and the same run again."""
        job = self.draw.choice(["decode"] * 4 + ["ingest"] + ["from raw"] * bool(self.raw.known))
        more: dict[str, Any] = self.draw.choice([{}, {}, {"redecode": "/disk-1/"}, {"verify_content": True}])
        settings = self._settings(job, **(more if job == "decode" else {}))
        point = self.draw.choice(sorted(POINTS))
        self._note(f"{job} {_shown(settings)} dies {point}")
        before, raw_before = self.decoded, self.raw
        self._expect(job, settings)
        patched: list[tuple[Any, str, Any]] = []

        def die() -> None:
            raise DiedError

        def patch(owner: Any, name: str, value: Any) -> None:
            patched.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

        arrange(POINTS[point], die, patch)
        try:
            self._start(job, settings)
        except DiedError:
            pass
        finally:
            for owner, name, original in patched:
                setattr(owner, name, original)
        self._look_between(before)
        if self.draw.random() < 0.5:
            self._vacuum()
        self.decoded, self.raw = before, raw_before
        if not self.wrong:
            self._run(job)

    def _settings(self, job: str, disks: set[str] | None = None, **more: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {"lake": str(self.lake), **more}
        if job == "from raw":
            settings["from_raw"] = True
        else:
            sources = [self.world.root / disk for disk in sorted(disks or ())]
            settings["source"] = tuple(str(s) for s in sources if s.is_dir()) or (str(self.world.root),)
            settings["follow_symlinks"] = True
        if self.draw.random() < 0.4:
            settings["read"] = self.draw.choice(["direct", "binary"])
        if self.draw.random() < 0.2:
            settings["max_content"] = 100
        if self.draw.random() < 0.2:
            settings["max_files_per_run"] = self.draw.randint(1, 2)
        if self.draw.random() < 0.1:
            settings["slice_bytes"] = self.draw.choice([100, 500])
        return settings

    def _run(self, job: str, **more: Any) -> None:
        settings = self._settings(job, **more)
        self._note(f"{job} {_shown(settings)}")
        before = self.decoded
        self._expect(job, settings)
        self._start(job, settings)
        self._compare(before)

    def _start(self, job: str, settings: dict[str, Any]) -> None:
        run = ingest_raw.run if job == "ingest" else decode_batches.run
        try:
            run(self.spark, Settings(**settings))
        except UserError as error:
            if "no segments" not in str(error) and "nothing was landed" not in str(error):
                self.wrong.append(f"the job ended with: {error}")
        except Exception:
            self.wrong.append(f"the job failed: {traceback.format_exc()}")

    def _expect(self, job: str, settings: dict[str, Any]) -> None:
        """What the tables must hold after a run."""
        self.number += 1
        sources = {Path(source).name for source in settings.get("source", ())}
        disks = None if self.world.root.name in sources else sources
        listing = self.world.listing(disks)
        how = How(
            one_copy=settings.get("one_copy", False),
            compare_all=settings.get("verify_content", False) or job == "from raw",
            redecode=settings.get("redecode", ""),
        )
        if job == "ingest":
            self.raw = self.raw.after(listing, self.world.exists, how, self.number)
            return
        exists = self.world.exists
        if job == "from raw":
            listing, how, known = *self._landed(how), self.raw.known
            folders = {one.folder for one in known.values()}
            exists = lambda uri: uri in known or uri in folders or self.world.exists(uri)  # noqa: E731
        self.decoded = self.decoded.after(listing, exists, how, self.number)

    def _landed(self, how: How) -> tuple[dict[str, Listed], How]:
        """Landed bytes as a listing gives them."""
        listing: dict[str, Listed] = {}
        for one in self.raw.known.values():
            listed = listing.setdefault(one.folder, Listed(one.topic, one.partition, None, {}))
            listed.topic_id = max(filter(None, (listed.topic_id, one.topic_id)), default=None)
            listed.topic_ids[one.base], listed.log_starts[one.base] = one.topic_id, one.log_start
            listed.files[one.base] = one.content.data, one.mtime, one.touched
        landed_at = {uri: (one.changed, one.seen) for uri, one in self.raw.known.items()}
        return listing, How(how.one_copy, True, how.redecode, landed_at)

    # Upkeep

    def _vacuum(self) -> None:
        self._note("VACUUM")
        for table in TABLES:
            delta = DeltaTable(str(self.lake / table))
            delta.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        self.versions.skip()

    def _optimize(self) -> None:
        self._note("OPTIMIZE")
        for table in TABLES[:3]:
            DeltaTable(str(self.lake / table)).optimize.compact()
        self._compare(self.decoded)

    # Looks

    def _compare(self, before: Tables) -> None:
        self.wrong += self.versions.differences(before, self.decoded)
        held = look.read(self.lake)
        self.wrong += look.differences(held, self.decoded) + look.landed(self.lake, self.raw)
        left = sorted(path.name for path in self.lake.glob("_runs/*") if path.name != "lock")
        self.wrong += [f"left in _runs: {name}" for name in left]

    def _look_between(self, before: Tables) -> None:
        """After a death every segment has its rows of before or those of after, and the view agrees."""
        held = look.read(self.lake)
        self.wrong += self.versions.differences(before, self.decoded)
        mixed = Tables()
        for uri in before.known.keys() | self.decoded.known.keys():
            old, new = before.known.get(uri), self.decoded.known.get(uri)
            one = new or old
            assert one is not None
            mixed.known[uri] = look.either(one, old, new)
        printed = look.differences(held, mixed, is_healthy=False)
        self.wrong += [f"between two runs: {line}" for line in printed]

    def report(self) -> str:
        lines = [f"DIFFERENCE in life {self.name}, step {len(self.steps)}", *self.steps[-_SHOWN_STEPS:]]
        lines += [f"  {line}" for line in self.wrong[:_SHOWN_LINES]]
        if len(self.wrong) > _SHOWN_LINES:
            lines.append(f"  and {len(self.wrong) - _SHOWN_LINES} lines more")
        return "\n".join(lines)


def _shown(settings: dict[str, Any]) -> str:
    hidden = ("lake", "from_raw", "follow_symlinks")
    shown = {name: value for name, value in settings.items() if name not in hidden}
    if "source" in shown:
        shown["source"] = " ".join(Path(source).name for source in shown["source"])
    return " ".join(f"{name}={value}" for name, value in shown.items() if value != "logs")


@dataclass
class Soak:
    """Lives one after the other, up to a number of steps."""

    spark: SparkSession
    place: Path
    seed: int
    only: Sequence[str] = KINDS
    runs: Sequence[str] = tuple(_KINDS_OF_RUNS)
    steps_a_life: int = STEPS_A_LIFE
    steps: int = 0
    lives: int = 0
    did: Counter[str] = field(default_factory=Counter)
    reports: list[str] = field(default_factory=list)

    def go(self, steps: int, most_reports: int = 1) -> None:
        while self.steps < steps and len(self.reports) < most_reports:
            self.lives += 1
            self.one(f"{self.seed}/{self.lives}", min(self.steps_a_life, steps - self.steps))

    def one(self, name: str, steps: int = STEPS_A_LIFE) -> None:
        place = self.place / name.replace("/", "-")
        life = Life(self.spark, place, name, self.only, self.runs)
        while len(life.steps) < steps and not life.wrong:
            life.step()
        self.steps += len(life.steps)
        self.did += life.did
        if life.wrong:
            self.reports.append(life.report())
            print(self.reports[-1], flush=True)
        elif self.lives % 5 == 0:
            print(f"{self.steps} steps in {self.lives} lives", flush=True)
        shutil.rmtree(place)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=int(os.environ.get("SOAK_STEPS") or 2000))
    parser.add_argument("--seed", type=int, default=os.environ.get("SOAK_SEED") or None)
    parser.add_argument("--life", help="one life alone, as a report names it: seed/number")
    parser.add_argument(
        "--only", nargs="*", default=KINDS, help="kinds of changes, besides growth and rolling"
    )
    parser.add_argument("--runs", nargs="*", default=tuple(_KINDS_OF_RUNS), help="kinds of runs")
    parser.add_argument("--most-reports", type=int, default=1)
    given = parser.parse_args(arguments)
    seed = int(given.seed or random.SystemRandom().randrange(10**6))
    from kafka_log_lake.pipelines.engine.session import session

    began = time.monotonic()
    print(f"{given.steps} steps, SOAK_SEED={seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="life-") as folder,
        session(Settings(cores=2)) as spark,
    ):
        soak = Soak(spark, Path(folder), seed, given.only, given.runs)
        if given.life:
            soak.one(given.life)
        else:
            soak.go(given.steps, given.most_reports)
    for kind, count in sorted(soak.did.items()):
        print(f"{kind:<15} {count:5d}")
    seconds = time.monotonic() - began
    print(f"{soak.steps} steps in {soak.lives} lives, {seconds:.0f} s, {len(soak.reports)} differences")
    return 1 if soak.reports else 0


if __name__ == "__main__":
    sys.exit(main())

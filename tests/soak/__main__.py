"""Kills jobs with SIGKILL at random moments, runs them again to their end, compares their tables.

``make soak``; SOAK_KILLS (50) says how many, SOAK_SEED repeats a sequence as far as the machine's timing
allows. Exits with 1 where a table differs from an undisturbed run's, a job does not come to its end, or
something is left behind that VACUUM would not take.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak import scenario, victims
from tests.soak.victims import EMBEDDED, PHASES, PROCESSES, STANDALONE, VICTIMS, Job
from tests.support.cluster import Cluster, standalone
from tools import package

# How long after a phase has begun a kill may come, seconds
_LATER = {"start": 5.0, "plan": 2.0, "stage": 0.5}
_LATER_ELSE = 0.3
_KILLS_A_LAKE = 7
# What a lake was before its jobs are killed: not there, or one that knows an earlier state of the logs
NEW, KNOWING = "new", "knowing"
_RUNS_TO_THE_END = 20


@dataclass
class Soak:
    """One soak: its place, its dice, and what it counted. code: the project as a zip, for the cluster."""

    place: Path
    draw: random.Random
    kills: int
    cluster: Cluster
    code: Path
    expected: dict[str, scenario.State]
    counted: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    ended: Counter[tuple[str, int]] = field(default_factory=Counter)
    lakes: int = 0
    orphans: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def logs(self) -> Path:
        return self.place / "logs"

    @property
    def done(self) -> int:
        return sum(self.counted.values())

    def one_lake(self) -> None:
        """A lake whose jobs are killed a few times, then brought to the end and looked at.

        Two of three are new: their jobs append, where those of the others also replace and merge.
        """
        where = self.draw.choices([PROCESSES, EMBEDDED, STANDALONE], [4, 3, 1])[0]
        start = self.draw.choices([NEW, KNOWING], [2, 1])[0]
        lake = self.place / f"lake-{self.lakes}"
        if start == KNOWING:
            scenario.copy(self.place / KNOWING, lake)
        self.lakes += 1
        several = self.draw.choices([scenario.SEVERAL_RUNS, ()], [1, 3])[0]
        options = [*scenario.ARGUMENTS, *several]
        before, code = len(self.wrong), -1
        for _ in range(self.draw.randint(1, _KILLS_A_LAKE)):
            if self.done < self.kills and code:
                code = self.kill_one(lake, where, options)
        if code:
            self.finish(lake, where, options)
        self.look_at(lake, start)
        if len(self.wrong) == before:
            shutil.rmtree(lake)

    def start(self, lake: Path, where: str, options: list[str]) -> Job:
        cluster = self.cluster if where == STANDALONE else None
        log = self.place / "job.log"
        embedded = where == EMBEDDED
        return victims.start(
            lake, self.logs, log, embedded=embedded, cluster=cluster, code=self.code, options=options
        )

    def kill_one(self, lake: Path, where: str, options: list[str]) -> int:
        """Starts a job, waits for a phase and a little longer, kills; the job's exit code.

        A job that has little left to do may end before.
        """
        phase, kind = self.draw.choice(PHASES[:-1]), self.draw.choice(VICTIMS[where])
        job = self.start(lake, where, options)
        reached = victims.reaches(job, phase)
        while job.is_alive and not reached():
            time.sleep(0.002)
        victims.pause(self.draw.uniform(0, _LATER.get(phase, _LATER_ELSE)), job)
        pids = job.victims(kind)
        while job.is_alive and not pids:
            pids = job.victims(kind)
        at = job.phase()
        killed = victims.kill(pids, self.draw)
        code = job.wait()
        if killed is None:
            print(f"       {where}: ended before its {kind} was killed", flush=True)
            return code
        self.counted[where, kind, at] += 1
        self.ended[kind, code] += 1
        print(f"{self.done:4d}   {where}, {kind}, {at}: exit code {code}", flush=True)
        survives = kind in (victims.WORKER, victims.EXECUTOR)
        if survives and code != 0:
            self.wrong.append(f"{where}, {kind} killed, {at}: exit code {code}: {job.said()[-400:]}")
        return code

    def finish(self, lake: Path, where: str, options: list[str]) -> None:
        """Runs the job until it ends well. It may be refused while a killed one still has a process."""
        for _ in range(_RUNS_TO_THE_END):
            job = self.start(lake, where, options)
            code = job.wait()
            if code == 0:
                return
            if "another run is writing" not in job.said():
                self.wrong.append(f"{where}: the run after a kill ended with {code}: {job.said()[-400:]}")
            time.sleep(0.5)
        self.wrong.append(f"{lake}: the job never came to its end")

    def look_at(self, lake: Path, start: str) -> None:
        self.wrong += [f"{lake}: {d}" for d in scenario.state(lake).differences(self.expected[start])]
        self.wrong += [f"{lake}: left behind: {name}" for name in scenario.left_behind(lake)]
        self.orphans += scenario.orphans(lake)

    def report(self) -> None:
        print()
        for (where, kind, phase), count in sorted(self.counted.items()):
            print(f"{where:<11} {kind:<15} {phase:<24} {count:4d}")
        for (kind, code), count in sorted(self.ended.items()):
            print(f"a job whose {kind} was killed ended with {code}: {count}")
        print(f"{self.done} kills in {self.lakes} lakes; {self.orphans} data files left for VACUUM")
        for line in self.wrong:
            print(f"WRONG: {line}")
        print("every table as an undisturbed run's" if not self.wrong else f"{len(self.wrong)} faults")


def undisturbed(place: Path) -> dict[str, scenario.State]:
    """The tables of runs over the second state that nobody killed, by what the lake knew before."""
    logs = place / "logs"

    def decode(lake: Path) -> None:
        job = victims.start(lake, logs, place / "job.log", options=scenario.ARGUMENTS)
        if job.wait():
            sys.exit(job.said())

    scenario.first_state(logs)
    decode(place / KNOWING)
    scenario.second_state(logs)
    decode(scenario.copy(place / KNOWING, place / f"undisturbed-{KNOWING}"))
    decode(place / f"undisturbed-{NEW}")
    return {start: scenario.state(place / f"undisturbed-{start}") for start in (NEW, KNOWING)}


def main() -> int:
    kills = int(os.environ.get("SOAK_KILLS") or 50)
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(10**6))
    print(f"{kills} kills, SOAK_SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        place = Path(folder)
        expected = undisturbed(place)
        code = package.make_zip(package.make_wheel(place / "package"))
        with standalone(place / "cluster", hosts=("127.0.0.1", "127.0.0.2"), cores=1) as cluster:
            soak = Soak(place, random.Random(seed), kills, cluster, code, expected)
            while soak.done < kills and soak.lakes < 4 * kills:
                soak.one_lake()
        soak.report()
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

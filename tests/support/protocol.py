"""The protocol of a run's commits as a model, and a search through all that may happen to it.

Two jobs decode one segment, whose file was rewritten since it was decoded first. Each may be killed between
any two steps; others commit to tables and VACUUM them without retention; the file may vanish. One reader
opens the tables of a published state one after the other, others read any version of any table plainly. The
steps are those of ``pipelines.lake.commit`` and ``pipelines.lake.published``, by the same names.

A table's version is the decode that the segment's rows are of: FIRST, SECOND, or BOTH for rows that are
doubled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

FIRST, SECOND, BOTH = "first", "second", "both"
DATA = ("records", "batches")
_RUNS = 9  # a wrong protocol may begin runs for ever


class Version(NamedTuple):
    """A version of a table. run: whose commit it is, 0 for others'. undone: it takes the run's rows back.

    names: of the ledger, the version of each of DATA. again: of the ledger, the segment is decoded anew once
    its file can be read.
    """

    rows: str
    run: int = 0
    undone: bool = False
    names: tuple[int, ...] = ()
    again: bool = False


class Intent(NamedTuple):
    run: int
    taken_back: bool = False


class Job(NamedTuple):
    """step: what it does next. intent: what it carries out; leaves: it can't bring a table back."""

    step: str = "idle"
    intent: Intent | None = None
    leaves: bool = False


class Reader(NamedTuple):
    """Of a published state. seen: the ledger's row, then what each of DATA gave; None: its files are gone."""

    ledger: Version | None = None
    seen: tuple[str | None, ...] = ()


class World(NamedTuple):
    """data: of each of DATA the versions; ledger: its versions. written: (run, table) of files that no
    version names. intents: in ``_runs``. floors: of each of DATA, the oldest version whose files VACUUM left.
    free: the next run's number. has_file: whether the rewritten file is there. kills, others, vacuums: how
    many more. reader: None for none.
    """

    data: tuple[tuple[Version, ...], ...] = ((Version(FIRST, 1),), (Version(FIRST, 1),))
    ledger: tuple[Version, ...] = (Version(FIRST, 1, names=(0, 0)),)
    written: frozenset[tuple[int, int]] = frozenset()
    intents: frozenset[Intent] = frozenset()
    floors: tuple[int, ...] = (0, 0)
    free: int = 2
    has_file: bool = True
    kills: int = 2
    others: int = 1
    vacuums: int = 1
    jobs: tuple[Job, ...] = (Job(), Job())
    reader: Reader | None = Reader()


def at(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def commit_of(versions: tuple[Version, ...], run: int) -> int | None:
    """The place of a run's newest commit to a table."""
    return next((i for i in reversed(range(len(versions))) if versions[i].run == run), None)


# A job


def steps(world: World, number: int) -> Iterator[World]:
    """What may become of a world by one step of a job."""
    job = world.jobs[number]
    done = STEPS[job.step](world, job)
    if done is None:
        return
    world, job = done
    yield world._replace(jobs=at(world.jobs, number, job))


def idle(world: World, job: Job) -> tuple[World, Job] | None:
    is_free = all(one.step == "idle" for one in world.jobs)  # the lock; a killed job holds none
    return (world, Job("recover")) if is_free else None


def recover(world: World, job: Job) -> tuple[World, Job]:
    if not world.intents:
        row = world.ledger[-1]
        is_new = row.rows == FIRST or row.again
        return world, Job("write files" if is_new and world.has_file else "idle")
    intent = min(world.intents, key=lambda one: one.run)
    missing = [
        place
        for place in range(len(DATA))
        if commit_of(world.data[place], intent.run) is None and (intent.run, place) not in world.written
    ]
    is_published = commit_of(world.ledger, intent.run) is not None
    goes_back = intent.taken_back or (missing and not is_published)
    return world, Job("take back" if goes_back else "data 0", intent)


def write_files(world: World, job: Job) -> tuple[World, Job]:
    run = world.free
    made = frozenset((run, place) for place in range(len(DATA)))
    return world._replace(written=world.written | made, free=run + 1), Job("write intent", Intent(run))


def write_intent(world: World, job: Job) -> tuple[World, Job]:
    assert job.intent is not None
    return world._replace(intents=world.intents | {job.intent}), job._replace(step="data 0")


def replace_rows(world: World, job: Job, place: int) -> tuple[World, Job]:
    """One commit: the run's file comes, files with the segment's rows go."""
    assert job.intent is not None
    following = job._replace(step=f"data {place + 1}" if place + 1 < len(DATA) else "ledger")
    run = job.intent.run
    if commit_of(world.ledger, run) is not None:
        return world, job._replace(step="remove intent")
    if commit_of(world.data[place], run) is not None:
        return world, following
    if (run, place) not in world.written:  # VACUUM came after the look
        return world, job._replace(step="take back")
    versions = (*world.data[place], Version(SECOND, run))
    world = world._replace(data=at(world.data, place, versions), written=world.written - {(run, place)})
    return world, following


def replace_ledger(world: World, job: Job) -> tuple[World, Job]:
    assert job.intent is not None
    names = tuple(len(versions) - 1 for versions in world.data)
    version = Version(SECOND, job.intent.run, names=names)
    return world._replace(ledger=(*world.ledger, version)), job._replace(step="remove intent")


def remove_intent(world: World, job: Job) -> tuple[World, Job]:
    assert job.intent is not None
    kept = frozenset(one for one in world.intents if one.run != job.intent.run)
    return world._replace(intents=kept), Job("recover")


# Taking back


def take_back(world: World, job: Job) -> tuple[World, Job]:
    assert job.intent is not None
    taken = Intent(job.intent.run, taken_back=True)
    kept = frozenset(one for one in world.intents if one.run != taken.run)
    return world._replace(intents=kept | {taken}), Job("back 0", taken)


def go_back(world: World, job: Job, place: int) -> tuple[World, Job]:
    """The table returns to the version before the run's commit, unless others have committed since."""
    assert job.intent is not None
    following = job._replace(step=f"back {place + 1}" if place + 1 < len(DATA) else "back ledger")
    versions = world.data[place]
    own = commit_of(versions, job.intent.run)
    if own is None or versions[own].undone:
        return world, following
    if own != len(versions) - 1 or own - 1 < world.floors[place]:
        return world, following._replace(leaves=True)
    version = Version(versions[own - 1].rows, job.intent.run, undone=True)
    return world._replace(data=at(world.data, place, (*versions, version))), following


def back_ledger(world: World, job: Job) -> tuple[World, Job]:
    """Names the tables that went back; or keeps what is there, and has the segment decoded again."""
    assert job.intent is not None
    run = job.intent.run
    has_commits = any(commit_of(versions, run) is not None for versions in world.data)
    if not has_commits or commit_of(world.ledger, run) is not None:
        return world, job._replace(step="remove intent")
    names = tuple(len(versions) - 1 for versions in world.data)
    number = world.free if job.leaves else run
    again = job.leaves or world.ledger[-1].again
    version = Version(world.ledger[-1].rows, number, names=names, again=again)
    world = world._replace(ledger=(*world.ledger, version), free=max(world.free, number + 1))
    return world, job._replace(step="remove intent")


STEPS = {
    "idle": idle,
    "recover": recover,
    "write files": write_files,
    "write intent": write_intent,
    "data 0": lambda world, job: replace_rows(world, job, 0),
    "data 1": lambda world, job: replace_rows(world, job, 1),
    "ledger": replace_ledger,
    "remove intent": remove_intent,
    "take back": take_back,
    "back 0": lambda world, job: go_back(world, job, 0),
    "back 1": lambda world, job: go_back(world, job, 1),
    "back ledger": back_ledger,
}


# What else happens


def events(world: World) -> Iterator[World]:
    for number, job in enumerate(world.jobs):
        if job.step != "idle" and world.kills:
            yield world._replace(jobs=at(world.jobs, number, Job()), kills=world.kills - 1)
    for place, versions in enumerate(world.data):
        if world.others:
            more = (*versions, Version(versions[-1].rows))
            yield world._replace(data=at(world.data, place, more), others=world.others - 1)
    if world.vacuums:
        floors = tuple(len(versions) - 1 for versions in world.data)
        yield world._replace(written=frozenset(), floors=floors, vacuums=world.vacuums - 1)
    if world.has_file:
        yield world._replace(has_file=False)
    yield from read(world)


def read(world: World) -> Iterator[World]:
    """Yields the world after the next step of the reader of a published state."""
    reader = world.reader
    if reader is None:
        return
    if reader.ledger is None:
        yield world._replace(reader=Reader(world.ledger[-1]))
    elif len(reader.seen) < len(DATA):
        place = len(reader.seen)
        versions, chosen = world.data[place], reader.ledger.names[place]
        for at_ in range(chosen + 1, len(versions)):
            if versions[at_].run > reader.ledger.run:
                break
            chosen = at_
        rows = versions[chosen].rows if chosen >= world.floors[place] else None
        yield world._replace(reader=reader._replace(seen=(*reader.seen, rows)))


# What must hold


def wrong(world: World) -> str:
    """Returns what a reader would see wrongly, in words; "" for nothing."""
    for name, versions in zip(DATA, world.data, strict=True):
        if any(version.rows == BOTH for version in versions):
            return f"a version of {name} has rows twice"
    ledger = world.reader and world.reader.ledger
    if world.reader and ledger and not ledger.again:
        for name, rows in zip(DATA, world.reader.seen, strict=False):
            if rows not in (None, ledger.rows):
                return f"the state of the {ledger.rows} decode has {name} of the {rows}"
    return ""


def unfinished(world: World) -> str:
    """Returns what is left undone when no job has anything to do; "" for nothing."""
    newest = {versions[-1].rows for versions in (*world.data, world.ledger)}
    if world.intents:
        return "an intent is never carried out"
    if world.has_file and newest != {SECOND}:
        return "the file is there and not decoded"
    if len(newest) > 1 and not world.ledger[-1].again:
        return "the newest versions are of different decodes"
    return ""


def search(world: World) -> tuple[int, str, list[World]]:
    """Worlds that may be, and the first wrong one with the way to it; "" where there is none."""
    before: dict[World, World | None] = {world: None}
    waiting = deque([world])
    while waiting:
        one = waiting.popleft()
        found = [*steps(one, 0), *steps(one, 1)]
        is_over = all(job.step == "idle" for job in one.jobs) and not one.intents
        problem = wrong(one) or (unfinished(one) if is_over and not _has_work(one) else "")
        if problem:
            return len(before), problem, _way(before, one)
        for following in [*found, *events(one)]:
            if following not in before and following.free < _RUNS:
                before[following] = one
                waiting.append(following)
    return len(before), "", []


def _has_work(world: World) -> bool:
    row = world.ledger[-1]
    return bool(world.intents) or (world.has_file and (row.rows == FIRST or row.again))


def _way(before: dict[World, World | None], world: World) -> list[World]:
    way: list[World] = []
    one: World | None = world
    while one is not None:
        way.append(one)
        one = before[one]
    return way[::-1]

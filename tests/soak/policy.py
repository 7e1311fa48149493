"""What the tables must hold after each run: a fresh decode of the files that are there, and of gone ones what
the policy keeps.

The rules of ``pipelines.plan`` again, from whole files where the planner has only fingerprints::

    gone from the front of its folder          stays: retention
    an earlier segment covers it               goes: merged
    the one before has its modification time   goes: merged, and none of its records is left
    after one that lost batches               goes: truncated, or cleaned away
    its topic was made again                   goes
    else, a hole in the middle                 stays
    its folder is gone                         goes where another folder holds its first offset
    other folders that are there               stay, but for --one-copy

What a job can't see, bits turned over in place under the same headers, leaves two states that may be: the
tables say which (``Known.may_be``).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.soak.decoded import Content, Decoding, landed_end, rows_of
from tests.soak.world import Listed
from tests.support.segment_maker import segment_name


@dataclass(frozen=True)
class How:
    """What a run requests.

    landed_at: where landed bytes are decoded, when each segment was landed, and when it was last found to be
    the same. A lake knows when bytes changed alone, so where one was found the same in between, either state
    may be there until the next run over the files.
    """

    one_copy: bool = False
    compare_all: bool = False
    redecode: str = ""
    landed_at: dict[str, tuple[int, int]] | None = None


@dataclass
class Known:
    """A segment that the tables know.

    may_be: what its rows are of; a fresh decode's first. may_go: whether its rows may be there or not. seen:
    the last run that saw the file as it is here. changed: the run that found it so first. touched: where bits
    were turned over in place.
    """

    uri: str
    folder: str
    topic: str
    partition: int
    base: int
    topic_id: str | None
    log_start: int
    mtime: int
    may_be: list[Content]
    seen: int
    changed: int
    touched: frozenset[int] = frozenset()
    may_go: bool = False

    @property
    def content(self) -> Content:
        return self.may_be[0]


@dataclass
class Tables:
    """The tables of a lake by their segments; raw: ``raw_segments`` instead, which only knows lengths."""

    raw: bool = False
    known: dict[str, Known] = field(default_factory=dict)
    now: int = 0

    def after(self, listing: dict[str, Listed], exists: Callable[[str], bool], how: How, now: int) -> Tables:
        """The tables after a run over these files. exists: whether a file or folder is there."""
        made = copy.deepcopy(self)
        made.now = now
        before = {uri: (one.content, one.mtime) for uri, one in self.known.items()}
        kept = made._kept(listing, exists, how)
        for folder in sorted(kept & listing.keys()):
            made._look_at(folder, listing[folder], how)
        for folder in sorted(listing):
            made._drop_gone(folder, listing[folder], exists, before, how)
        made._drop_leaving(listing, exists, kept, how)
        return made

    def logs(self) -> dict[tuple[str, int, str], list[Decoding]]:
        found: dict[tuple[str, int, str], list[Decoding]] = {}
        for one in self.known.values():
            rows = rows_of(one.content)
            found.setdefault((one.topic, one.partition, one.folder), []).append(
                Decoding(one.base, one.log_start, rows)
            )
        return found

    # What is there

    def _look_at(self, folder: str, listed: Listed, how: How) -> None:
        last = max((base for base, (data, _, _) in listed.files.items() if data), default=-1)
        old = self._of(folder)
        for base, (data, mtime, touched) in sorted(listed.files.items()):
            topic_id = listed.topic_ids.get(base, listed.topic_id)
            uri = f"{folder}/{segment_name(base)}"
            content = Content(data, last > base)
            was = self.known.get(uri)
            if was is None:
                self._meet(folder, base, listed, content, old, how)
            elif how.landed_at is None:
                self.known[uri] = self._again(was, content, mtime, touched, topic_id, how)
            else:
                self._look_at_landed(was, content, mtime, touched, how.landed_at[uri])

    def _meet(
        self, folder: str, base: int, listed: Listed, content: Content, old: dict[int, Known], how: How
    ) -> None:
        """A segment that the tables do not know. old: those of its folder that they do."""
        uri, (_, mtime, touched) = f"{folder}/{segment_name(base)}", listed.files[base]
        topic_id = listed.topic_ids.get(base, listed.topic_id)
        made = Known(
            uri,
            folder,
            listed.topic,
            listed.partition,
            base,
            topic_id,
            listed.log_starts.get(base, min(listed.files)),
            mtime,
            [content],
            seen=self.now,
            changed=self.now,
            touched=touched,
        )
        if how.landed_at is not None:
            landed, seen = how.landed_at[uri]
            changed = {base: replace(one, seen=one.changed) for base, one in old.items()}
            if self._is_outlived(changed, base, seen, topic_id):
                return
            made.may_go = self._is_outlived(old, base, landed, topic_id)
        self.known[uri] = made

    def _again(
        self,
        was: Known,
        content: Content,
        mtime: int,
        touched: frozenset[int],
        topic_id: str | None,
        how: How,
    ) -> Known:
        """A known segment at another look."""
        may_be = [content]
        is_recreated = None not in (topic_id, was.topic_id) and topic_id != was.topic_id
        is_requested = bool(how.redecode) and re.search(how.redecode, was.uri) is not None
        if not (is_recreated or is_requested or how.compare_all):
            unseen = self._unseen(was, content, mtime, touched)
            may_be += [unseen] if unseen else []
        is_same = content.data == was.content.data or len(may_be) > 1
        changed = was.changed if is_same else self.now
        topic_id = topic_id or was.topic_id
        now = replace(was, may_be=may_be, mtime=mtime, topic_id=topic_id, touched=touched)
        return replace(now, seen=self.now, changed=changed)

    def _look_at_landed(
        self, was: Known, content: Content, mtime: int, touched: frozenset[int], landed_at: tuple[int, int]
    ) -> None:
        """A known segment whose landed bytes are listed: they count where they are of a later state.

        Of bits turned over in place no run need have taken notice, so either state may be there.
        """
        landed, seen = landed_at
        both = [content, was.content] if seen > was.seen else [was.content, content]
        old, new = was.content.data, content.data
        is_unseen = len(old) == len(new) and all(
            old[at] == new[at] or at in touched | was.touched for at in range(len(old))
        )
        is_open = landed <= was.seen and was.changed < seen
        may_be = both if is_unseen or is_open else both[:1]
        changed = was.changed if may_be[0].data == old else self.now
        now = replace(was, may_be=may_be, mtime=mtime, changed=changed)
        self.known[was.uri] = replace(now, seen=max(seen, was.seen))

    def _unseen(self, was: Known, now: Content, mtime: int, touched: frozenset[int]) -> Content | None:
        """What the rows may be of where bits in the middle changed unseen."""
        decoded = self._decoded_bytes(was.content)
        old, new = was.content.data[:decoded], now.data[:decoded]
        if old == new or len(new) < decoded:
            return None
        if any(old[at] != new[at] and at not in touched for at in range(decoded)):
            return None
        is_touched = mtime != was.mtime or len(now.data) != len(was.content.data)
        if not self.raw and rows_of(was.content).quarantine and is_touched:
            return None  # where there is damage all bytes are compared
        return Content(old + now.data[decoded:], now.has_successor)

    def _decoded_bytes(self, content: Content) -> int:
        return landed_end(content.data)[0] if self.raw else rows_of(content).decoded_bytes

    def _reach(self, base: int, content: Content) -> int:
        reach = landed_end(content.data)[1] if self.raw else rows_of(content).reach
        return base - 1 if reach is None else reach

    def _is_outlived(self, old: dict[int, Known], base: int, landed_at: int, topic_id: str | None) -> bool:
        """Whether the tables know a later state of the folder, in which these landed bytes are no more."""
        later = [one for one in old.values() if one.seen >= landed_at]
        if not later:
            return False
        newest = max(later, key=lambda one: one.seen)
        is_recreated = None not in (newest.topic_id, topic_id) and newest.topic_id != topic_id
        return is_recreated or any(one.base < base <= self._reach(one.base, one.content) for one in later)

    # What is gone

    def _drop_gone(
        self,
        folder: str,
        listed: Listed,
        exists: Callable[[str], bool],
        before: dict[str, tuple[Content, int]],
        how: How,
    ) -> None:
        here = {base: one for base, one in self._of(folder).items() if base in listed.files}
        for base, one in self._of(folder).items():
            if base in listed.files or exists(one.uri):
                continue
            if self._is_recreated(one, {folder: listed}, how):
                del self.known[one.uri]
            elif base > min(listed.files):
                fate = self._fate(one, here, before)
                one.may_go = fate == "may go"
                if fate == "goes":
                    del self.known[one.uri]

    def _is_recreated(self, one: Known, folders: dict[str, Listed], how: How) -> bool:
        """Whether all these folders, listed later than the segment was seen, have another topic id."""
        landed_at = [
            at for uri, (_, at) in (how.landed_at or {}).items() if uri.rpartition("/")[0] in folders
        ]
        is_later = how.landed_at is None or max(landed_at) > one.seen
        return is_later and all(
            None not in (f.topic_id, one.topic_id) and f.topic_id != one.topic_id for f in folders.values()
        )

    def _of(self, folder: str) -> dict[int, Known]:
        return {one.base: one for one in self.known.values() if one.folder == folder}

    def _fate(self, gone: Known, here: dict[int, Known], before: dict[str, tuple[Content, int]]) -> str:
        """What becomes of a gone segment after others of its folder."""
        fates = {"stays"}
        for earlier in (here[base] for base in sorted(here) if base < gone.base):
            reach = self._reach(earlier.base, earlier.content)
            was, mtime = before.get(earlier.uri, (None, earlier.mtime))
            if reach >= gone.base:
                return "goes"
            if earlier.base == max(base for base in here if base < gone.base):
                # the cleaner merged it into this one and left none of its records
                fates |= {"goes"} if mtime != earlier.mtime == gone.mtime else set()
            if was is None or earlier.content.data.startswith(was.data[: self._decoded_bytes(was)]):
                continue
            sound = landed_end(was.data)[0] if self.raw else rows_of(was).sound_end
            is_cut = not earlier.content.data.startswith(was.data[:sound])
            is_seen = len(earlier.may_be) == 1
            fates.add("goes" if is_cut and is_seen and reach <= self._reach(earlier.base, was) else "may go")
        return "goes" if "goes" in fates else "may go" if "may go" in fates else "stays"

    # Folders of a topic-partition

    def _folders(self, listing: dict[str, Listed]) -> dict[tuple[str, int], dict[str, tuple[int, int, int]]]:
        """Of each listed topic-partition its folders, and how far each reaches: by files, or as known."""
        found: dict[tuple[str, int], dict[str, tuple[int, int, int]]] = {}
        for folder, listed in listing.items():
            sizes = {base: len(data) for base, (data, _, _) in listed.files.items()}
            found.setdefault((listed.topic, listed.partition), {})[folder] = _extent(sizes)
        for one in self.known.values():
            own = found.get((one.topic, one.partition))
            if own is not None and one.folder not in listing:
                own[one.folder] = _extent({b: len(k.content.data) for b, k in self._of(one.folder).items()})
        return found

    def _kept(self, listing: dict[str, Listed], exists: Callable[[str], bool], how: How) -> set[str]:
        kept: set[str] = set()
        for folders in self._folders(listing).values():
            there = {f: reach for f, reach in folders.items() if f in listing or exists(f)}
            if how.one_copy:
                best = max(there, key=lambda folder: (*there[folder], [-ord(c) for c in folder]))
                for uri in [u for u, one in self.known.items() if one.folder in there.keys() - {best}]:
                    del self.known[uri]
                there = {best: there[best]}
            kept |= there.keys()
        return kept

    def _drop_leaving(
        self, listing: dict[str, Listed], exists: Callable[[str], bool], kept: set[str], how: How
    ) -> None:
        """Rows of folders that are gone, where a kept one holds their offsets or the topic is another."""
        here = [one for one in self.known.values() if one.folder in kept and one.folder in listing]
        here = [one for one in here if one.base in listing[one.folder].files]
        for one in [k for k in self.known.values() if k.folder not in listing and not exists(k.folder)]:
            own = [k for k in here if (k.topic, k.partition) == (one.topic, one.partition)]
            is_held = any(k.base <= one.base <= self._reach(k.base, k.content) for k in own)
            others = {k.folder: listing[k.folder] for k in own}
            if is_held or (others and self._is_recreated(one, others, how)):
                del self.known[one.uri]


def _extent(sizes: dict[int, int]) -> tuple[int, int, int]:
    last = max(sizes)
    return last, sizes[last], sum(sizes.values())

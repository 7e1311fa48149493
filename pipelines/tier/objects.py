"""Lists the objects of a tier, and finds by their names which plugin wrote them.

- Kafka's LocalTieredStorage: ``<topic>-<partition>-<topic id>/<20 digits>-<segment id>.<suffix>``, a file
  for each index; the ``.log`` is the segment byte for byte.
- Aiven's plugin: ``<prefix><topic>-<topic id>/<partition>/<20 digits>-<segment
  id>.{log,indexes,rsm-manifest}``. The prefix stands before the topic without a separator, so that the
  manifest alone tells the topic's name.
- Any other folder with a ``.rsm-manifest`` next to the object: the manifest tells its log.
- Any other folder ``<topic>-<partition>`` or ``<topic>/<partition>`` with ``.log`` objects whose names begin
  with the base offset in 20 digits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.listing.naming import PARTITION_FOLDER
from kafka_log_lake.pipelines.listing.uris import canonical, local_path, parse_source
from kafka_log_lake.udfs.format.file_names import OFFSET_DIGITS, SEGMENT_SUFFIX
from kafka_log_lake.udfs.format.layout import MAX_OFFSET
from kafka_log_lake.udfs.reads import use_tier_roots
from kafka_log_lake.udfs.storage.byte_source import MANIFEST, SourceError, reason_of
from kafka_log_lake.udfs.storage.foreign import LOCAL_TIER, PLUGIN_TIER, name_kind
from kafka_log_lake.udfs.storage.store import canonical_uri, open_store
from kafka_log_lake.udfs.storage.tier_manifest import Manifest
from kafka_log_lake.udfs.storage.tier_object import read_manifest

LOCAL, PLUGIN, PLAIN = "LocalTieredStorage", "Aiven's plugin", "plain segments"
_UUID = "[A-Za-z0-9_-]{22}"
_OBJECT = re.compile(rf"({OFFSET_DIGITS})-({_UUID})(\.[A-Za-z0-9_-]+)")
_PLAIN_OBJECT = re.compile(rf"({OFFSET_DIGITS})(?:[._-].*)?\.log")
_LOCAL_FOLDER = re.compile(rf"(?s)(?:.*/)?([^/]+)-([0-9]+)-({_UUID})")
_PLUGIN_FOLDER = re.compile(rf"(?s)(?:.*/)?([^/]+)-({_UUID})/([0-9]+)")
_SUFFIXES = {
    *(SEGMENT_SUFFIX, MANIFEST, ".indexes", ".index", ".timeindex", ".txnindex"),
    *(".leader_epoch_checkpoint", ".leader-epoch-checkpoint", ".snapshot"),
}
_THREADS = 16  # that read manifests: a store takes some 20 ms a request
_PARQUET = "Parquet or Iceberg: it holds rows, no segments; read it as a table"


@dataclass
class TierSegment:
    """The objects of one segment in a tier.

    layout: LOCAL, PLUGIN or PLAIN. topic, topic_id, segment_id: by the names, or the manifest; an id is None
    where the layout has none. files: suffix -> (URI, bytes). modified: microseconds since 1970 UTC, of the
    ``.log``; changed: of the newest object, 0 if unknown. problem: why its bytes can't be read; None where
    nothing is known against them.
    """

    layout: str
    topic: str
    partition: int
    topic_id: str | None
    segment_id: str | None
    base: int
    files: dict[str, tuple[str, int]] = field(default_factory=dict)
    modified: int = 0
    changed: int = 0
    manifest: Manifest | None = None
    problem: str | None = None

    @property
    def uri(self) -> str | None:
        """Returns the URI by which ``open_source`` opens the segment; None without a ``.log`` object."""
        log = self.files.get(SEGMENT_SUFFIX)
        if log is None or self.layout != PLUGIN:
            return log and log[0]
        return log[0].removesuffix(SEGMENT_SUFFIX) + MANIFEST

    @property
    def length(self) -> int:
        """Returns the bytes of the segment, as far as the object or the manifest tells; 0 where neither
        does.
        """
        if self.manifest is not None:
            return self.manifest.size
        return self.files.get(SEGMENT_SUFFIX, ("", 0))[1] if self.layout != PLUGIN else 0

    @property
    def stored_bytes(self) -> int:
        """Returns the bytes of all objects."""
        return sum(size for _, size in self.files.values())

    @property
    def name(self) -> str:
        """Returns the URI of its ``.log`` object, or of the first of its objects."""
        return (self.files.get(SEGMENT_SUFFIX) or next(iter(self.files.values()), ("", 0)))[0]


@dataclass
class Tier:
    """What lies in a tier.

    other: URI -> what kind of file it is, of those that are of no segment; other_sizes: its bytes.
    unplaced: segments of which neither the folder nor the manifest names the log; their files are in other.
    """

    roots: tuple[str, ...] = ()
    segments: list[TierSegment] = field(default_factory=list)
    other: dict[str, str] = field(default_factory=dict)
    other_sizes: dict[str, int] = field(default_factory=dict)
    unplaced: list[TierSegment] = field(default_factory=list)

    @property
    def layouts(self) -> Counter[str]:
        """Counts segments by layout."""
        return Counter(segment.layout for segment in self.segments)

    def others_text(self) -> Iterator[str]:
        """Yields a sentence for each kind of files that are of no segment."""
        for kind, count in sorted(Counter(self.other.values()).items()):
            yield f"{count} x {kind}"


def list_tier(places: Sequence[str]) -> Tier:
    """Lists the objects at or below the values of ``--tier``, and reads their manifests.

    Raises a UserError for a place that can't be listed.
    """
    tier = Tier()
    by_stem: dict[str, TierSegment] = {}
    for place in places:
        path = local_path(parse_source(place).path)
        root = canonical(path) if path is not None else canonical_uri(parse_source(place).path)
        tier.roots += (root,)
        files = list(_files(root))
        manifests = {uri.removesuffix(MANIFEST) for uri, _, _ in files if uri.endswith(MANIFEST)}
        for uri, size, modified in files:
            _add(uri, size, modified, by_stem, tier, manifests)
    use_tier_roots(tier.roots)
    _read_manifests(by_stem.values())
    ordered = sorted(
        by_stem.values(), key=lambda segment: (segment.topic, segment.partition, segment.base, segment.name)
    )
    tier.segments = [segment for segment in ordered if segment.topic]
    tier.unplaced = [segment for segment in ordered if not segment.topic]
    for segment in tier.unplaced:
        segment.problem = segment.problem or "its manifest names no topic and partition"
        tier.other |= {uri: segment.problem for uri, _ in segment.files.values()}
        tier.other_sizes |= dict(segment.files.values())
    return tier


def _files(root: str) -> Iterator[tuple[str, int, int]]:
    """Yields URI, bytes and modification time (microseconds since 1970 UTC) of every object below a root."""
    from pyarrow import fs

    try:
        system, path = open_store(root)
        if system.get_file_info(path).type == fs.FileType.NotFound:
            raise UserError(f"--tier: no such path: {root}")
        prefix = root.rstrip("/").removesuffix(path.rstrip("/"))
        listed = system.get_file_info(fs.FileSelector(path.rstrip("/"), recursive=True))
    except (OSError, ValueError) as error:
        raise UserError(f"--tier {root} can't be opened: {reason_of(error)}") from None
    for info in listed:
        if info.type == fs.FileType.File:
            yield prefix + info.path, info.size or 0, (info.mtime_ns or 0) // 1000


def _add(
    uri: str,
    size: int,
    modified: int,
    by_stem: dict[str, TierSegment],
    tier: Tier,
    manifests: Collection[str],
) -> None:
    """Adds an object to its segment, or to the files that are of none. manifests: their URIs, without
    suffix.
    """
    folder, _, name = uri.rpartition("/")
    stem, suffix, made = _segment_of(folder, name, manifests)
    if made is None or made.base > MAX_OFFSET:
        tier.other[uri] = _kind(folder, name)
        tier.other_sizes[uri] = size
        return
    segment = by_stem.setdefault(f"{folder}/{stem}", made)
    segment.files[suffix] = uri, size
    segment.changed = max(segment.changed, modified)
    if suffix == SEGMENT_SUFFIX:
        segment.modified = modified


def _segment_of(folder: str, name: str, manifests: Collection[str]) -> tuple[str, str, TierSegment | None]:
    """Returns the stem and suffix of an object's name, and a new segment without objects; None if it is of
    none.
    """
    match = _OBJECT.fullmatch(name)
    if match is not None and match[3] in _SUFFIXES:
        stem, suffix = name.removesuffix(match[3]), match[3]
        base, segment_id = int(match[1]), match[2]
        if of := _PLUGIN_FOLDER.fullmatch(folder):
            return stem, suffix, TierSegment(PLUGIN, of[1], int(of[3]), of[2], segment_id, base)
        if f"{folder}/{stem}" in manifests:  # which tells the rest
            return stem, suffix, TierSegment(PLUGIN, "", -1, None, segment_id, base)
        if of := _LOCAL_FOLDER.fullmatch(folder):
            return stem, suffix, TierSegment(LOCAL, of[1], int(of[2]), of[3], segment_id, base)
    plain = _PLAIN_OBJECT.fullmatch(name)
    if plain is None:
        return name, "", None
    place = folder.rpartition("/")[2]
    if of := PARTITION_FOLDER.fullmatch(place):
        topic, partition = of[1], int(of[2])
    elif place.isascii() and place.isdigit() and "/" in folder and not _PLUGIN_FOLDER.fullmatch(folder):
        topic, partition = folder.split("/")[-2], int(place)
    else:
        return name, "", None
    segment_id = match[2] if match else None
    return name, SEGMENT_SUFFIX, TierSegment(PLAIN, topic, partition, None, segment_id, int(plain[1]))


def _kind(folder: str, name: str) -> str:
    """Names what an object is that is of no segment."""
    if name.endswith((".parquet", ".avro", ".metadata.json")) and not name.startswith("."):
        return _PARQUET
    kind = name_kind(folder, name)
    return "other file" if kind in (None, LOCAL_TIER, PLUGIN_TIER) else str(kind)


def _read_manifests(segments: Iterable[TierSegment]) -> None:
    """Reads the manifests of the plugin's segments, several at a time."""
    some = [segment for segment in segments if segment.layout == PLUGIN]
    if not some:
        return
    with ThreadPoolExecutor(min(_THREADS, len(some))) as threads:
        list(threads.map(_read_manifest, some))


def _read_manifest(segment: TierSegment) -> None:
    place = segment.files.get(MANIFEST)
    if place is None:
        segment.problem = "its manifest is missing"
        return
    try:
        segment.manifest = read_manifest(place[0])
    except SourceError as error:
        segment.problem = str(error)
        return
    log = segment.manifest.log
    if log is not None and segment.topic:
        segment.topic = log[0]
    elif log is not None:
        segment.topic, segment.partition, segment.topic_id = log

"""``kafka-log-lake find PATH``: prints the records of log segments that match. Needs no Java and no lake.

Uses the listing and the decoder of ``decode_batches``, in worker processes on all cores. Writes nothing.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from kafka_log_lake.pipelines.find.lake_search import LakeSearch
    from kafka_log_lake.udfs.values.schemas.registry import Registry

from kafka_log_lake.pipelines.cli.commands.find import FIND
from kafka_log_lake.pipelines.cli.errors import NotAllSearched, NotFound, UserError, needs_extra
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.streams import replaced_file
from kafka_log_lake.pipelines.cli.terminal import counted_noun, first_names, room_of_lines, wants_colour
from kafka_log_lake.pipelines.cli.values import check_times, option
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.find.copies import CopyLocator
from kafka_log_lake.pipelines.find.output import MatchTable, MoreFields, Write, write_lines, writer_of
from kafka_log_lake.pipelines.find.request import Request, make_request
from kafka_log_lake.pipelines.find.search import LogSearch
from kafka_log_lake.pipelines.find.unsearched import Unsearched, check_partitions, known_partitions
from kafka_log_lake.pipelines.listing.list_segments import TopicFilter, no_segments_error
from kafka_log_lake.pipelines.listing.uris import is_named, parse_source, resolve
from kafka_log_lake.pipelines.plan.listed import list_sources
from kafka_log_lake.udfs.files import DamageWarning
from kafka_log_lake.udfs.storage.byte_source import shown_name

log = logging.getLogger(__name__)
_SHOWN = 20
_OF_SEGMENTS = ("follow_symlinks", "include_swap", "include_deleted", "max_batch_uncompressed")


def search(settings: Settings, request: Request, topic: str | None = None) -> LogSearch | LakeSearch:
    """Returns the search over all segments of ``settings.source``, or over ``settings.lake``.

    topic: the topic of segments whose folder's name does not tell it; the request has their partition.
    Raises a UserError if there is no segment, or no lake.
    """
    if settings.lake is not None:
        if settings.source or topic is not None:
            raise UserError("find reads log segments or a lake: PATH and --topic do not go with --lake")
        refused = [name for name in _OF_SEGMENTS if getattr(settings, name) != getattr(Settings, name)]
        if refused:
            raise UserError(f"{', '.join(map(option, refused))}: only for segments, not for --lake")
        try:
            from kafka_log_lake.pipelines.find.lake_search import (
                LakeSearch,  # loads DuckDB, which segments do not need
            )
        except ModuleNotFoundError as error:
            raise needs_extra("--lake", error) from None
        topics = TopicFilter(settings.topics, settings.exclude_topics)
        of_lake = LakeSearch(request=request, lake=settings.lake, topics=topics, threads=settings.cores)
        if request.looks_into_values:
            of_lake.registry = _registry(of_lake, settings)
        return of_lake
    if not settings.source:
        raise UserError("name what to search: find PATH, or find --lake LAKE")
    copies: CopyLocator | None = None
    if is_named(settings.source):
        from kafka_log_lake.pipelines.recover.sides import SidesOfCopies  # few searches need it

        copies = SidesOfCopies(settings)
    settings = dataclasses.replace(
        settings, source=tuple(parse_source(source).path for source in settings.source)
    )
    partition = _named_partition(request) if topic is not None else None
    listing = list_sources(settings, topic=topic, partition=partition, may_be_empty=True)
    roots = tuple(resolve(settings.source).folders)
    topics = TopicFilter(settings.topics, settings.exclude_topics)
    known = known_partitions(listing, roots, topics)
    if not known:
        raise no_segments_error(settings.source, listing)
    check_partitions(known, request)
    looked = LogSearch(
        request=request,
        listing=listing,
        topics=topics,
        roots=roots,
        copies=copies,
        processes=settings.processes,
        max_batch_uncompressed=settings.max_batch_uncompressed,
    )
    if request.looks_into_values:
        looked.registry = _registry(looked, settings)
    return looked


def _registry(looked: LogSearch | LakeSearch, settings: Settings) -> Registry:
    """Returns the schemas of the logs or the lake, joined with those that options name."""
    from kafka_log_lake.pipelines.typed.sources import (
        read_sources,  # loads decoders, which other searches do not need
    )
    from kafka_log_lake.udfs.values.apps.topic_format import TopicFormats
    from kafka_log_lake.udfs.values.schemas.registry import Registry

    others = read_sources(settings.schemas, settings.registry, settings.formats)
    known = looked.schemas()
    if settings.formats is not None:
        known.formats = TopicFormats()  # not those that the lake keeps
    return Registry.joined([known, *others])


def _named_partition(request: Request) -> int:
    named = [number for numbers, wanted in request.partitions if wanted for number in numbers]
    if len(named) != 1:
        raise UserError(
            "--topic is for segments whose folder's name does not give it: pass --partition N too"
        )
    return named[0]


def find(
    path: str | os.PathLike[str] | Sequence[str] = (),
    *,
    lake: str | None = None,
    topics: str | None = None,
    exclude_topics: str | None = None,
    topic: str | None = None,
    committed: bool = False,
    limit: int | None = None,
    only: str | None = None,
    trust_partitioner: bool = False,
    context: int = 0,
    superseded: bool = False,
    include_deleted: bool | None = None,
    cores: int | None = None,
    max_batch_uncompressed: int | None = None,
    tier: str | Sequence[str] = (),
    tier_key: str | Sequence[str] = (),
    on_unsearched: Callable[[Unsearched], None] | None = None,
    **conditions: object,
) -> Iterator[pa.RecordBatch]:
    """Yields the records that match, in the order of the log within a partition, in worker processes.

    Parameters
    ----------
    path: log directory, partition folder, ``.log`` file or glob, or several; of brokers' disks with names,
        "NAME=PATH", further columns say whose record it is.
    lake: searched in place of path; it needs the wheel's extra. None: path.
    topics, exclude_topics: regular expressions for the whole name of a topic; None: all topics, none
        excluded.
    topic: topic of the segments where the name of their folder does not tell it; with ``partition=``.
    committed: whether only what a READ_COMMITTED consumer gets is searched.
    limit: the most matches; None: all.
    only: "first" or "last": that match of each partition, or ``limit`` of them; None: all.
    trust_partitioner: whether partitions that Kafka's partitioner would not give the key are skipped.
    context: records before and after each match; above 0 the column ``is_match`` marks the matches.
    superseded: whether to add the column ``superseded``: whether a later record of the key follows in the
        log; null where that is not known.
    include_deleted: whether ``.log.deleted`` files and folders -delete, -stray and -future are read; None:
        no.
    cores: worker processes; None: all cores.
    max_batch_uncompressed: bytes; a batch that decompresses to more is not searched. None: 256 MiB.
    tier: objects of tiered storage that belong to path, a folder or URI or several; both are one log then.
    tier_key: private keys of encrypted objects, "ID=FILE.pem", one or several.
    on_unsearched: called at the end with each range that could not be searched; None: a DamageWarning for
        each, and for records that lie under wrong offsets.
    conditions: the options of the command by their names: ``key=``, ``value_contains=``, ``not_header=``; a
        value or a list of values, as text or as bytes. All of them must hold.

    Returns
    -------
    Iterator of pa.RecordBatch. The search begins when the first one is asked for; without a match there may
    be none.

    Raises
    ------
    UserError: a wrong value, an unknown condition, no segment in the path, or no lake.

    Source of the rule
    ------------------
    ``udfs.batches.transactions`` (committed), ``udfs.batches.account`` (what could not be searched).
    """
    sources = (os.fspath(path),) if isinstance(path, str | os.PathLike) else tuple(path)
    named: dict[str, Any] = {"topics": topics, "exclude_topics": exclude_topics, "cores": cores}
    named |= {"max_batch_uncompressed": max_batch_uncompressed, "lake": lake}
    named["include_deleted"] = include_deleted
    named |= {"tier": _several(tier), "tier_key": _several(tier_key)}
    settings = Settings(source=sources, **{name: value for name, value in named.items() if value is not None})
    others = {"committed": committed, "limit": limit, "only": only, "trust_partitioner": trust_partitioner}
    others |= {"context": context, "superseded": superseded}
    looked = search(settings, make_request(conditions, **others), topic)
    yield from looked
    for unsearched_range in looked.unsearched:
        if on_unsearched is None:
            warnings.warn(DamageWarning(text_of(unsearched_range)), stacklevel=2)
        else:
            on_unsearched(unsearched_range)
    for line in looked.displaced if on_unsearched is None else ():
        warnings.warn(DamageWarning(line), stacklevel=2)


def _several(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def text_of(unsearched: Unsearched) -> str:
    """Describes what could not be searched in one line, with the offsets that may be in it."""
    damage = unsearched.damage
    if damage is None:
        return f"{unsearched.name} could not be searched: {unsearched.why}{unsearched.held}"
    offsets = "no offset is missing there"
    if damage.first_lost is not None:
        last = "the end of the log" if damage.last_lost is None else f"{damage.last_lost}"
        offsets = f"offsets {damage.first_lost} to {last} may be in it"
    size = counted_noun(damage.size, "byte")
    place = f"{size} at byte {damage.position} of {shown_name(damage.segment)}"
    return f"{unsearched.name}: {place} could not be searched ({damage.reason}): {offsets}{unsearched.held}"


def run(
    settings: Settings,
    path: Sequence[str],
    format: str,  # noqa: A002  # the option's name
    output: str | None = None,
    topic: str | None = None,
    committed: bool = False,
    limit: int | None = None,
    first: bool = False,
    last: bool = False,
    count: bool = False,
    trust_partitioner: bool = False,
    typed: bool = False,
    context: int | None = None,
    superseded: bool = False,
    **conditions: object,
) -> None:
    """Prints or writes the matches. Raises NotFound without any, NotAllSearched if damage may hide some."""
    if first and last:
        raise UserError("give --first or --last, not both")
    if typed and format not in ("json", "table"):
        raise UserError("--typed needs --format table or json")
    request = make_request(
        conditions,
        committed=committed,
        limit=limit,
        context=context or 0,
        superseded=superseded,
        only="first" if first else "last" if last else None,
        count=count,
        trust_partitioner=trust_partitioner,
    )
    check_times(request.since, request.until)
    has_formats = settings.schemas or settings.registry or settings.formats
    if has_formats and not (typed or request.looks_into_values):
        named = "--schemas, --registry and --formats"
        raise UserError(f"{named} are for --typed and --where-json PATH=VALUE: add one of them")
    looked = search(dataclasses.replace(settings, source=(*path, *settings.source)), request, topic)
    if output is not None and isinstance(looked, LogSearch):
        _check_output(output, looked)
    with replaced_file(output, "--output") if output else nullcontext(sys.stdout.buffer) as file:
        if count:
            for _ in looked:
                pass
            file.write(f"{looked.found}\n".encode())
        else:
            more = _typed_fields(looked, settings) if typed else None
            _writer(format, output, looked, more)(file, looked)
    _report(looked)


def _check_output(output: str, looked: LogSearch) -> None:
    """Raises a UserError if the output file is one of the segments."""
    if f"file://{os.path.realpath(output)}" in looked.listing.segments.column("segment").to_pylist():
        raise UserError(f"--output: {output} is a segment, and is not overwritten")


def _typed_fields(looked: LogSearch | LakeSearch, settings: Settings) -> MoreFields:
    from kafka_log_lake.pipelines.find.typed import (
        TypedValues,  # loads decoders, which other searches do not need
    )

    return TypedValues(looked.sample, looked.registry or _registry(looked, settings)).fields


def _writer(kind: str, output: str | None, looked: LogSearch | LakeSearch, more: MoreFields | None) -> Write:
    if kind != "table":
        return writer_of(kind, looked.schema, more)
    is_terminal = output is None and sys.stdout.isatty()
    width = room_of_lines() if output is None else 0
    is_coloured = is_terminal and wants_colour()
    table = MatchTable(width, is_coloured, keys_first=looked.request.looks_at_keys, more=more)
    return partial(write_lines, lines=table.lines)


def _report(looked: LogSearch | LakeSearch) -> None:
    """Logs what could not be searched. Raises NotFound or NotAllSearched if nothing matched."""
    for unsearched_range in looked.unsearched[:_SHOWN]:
        log.warning("%s", text_of(unsearched_range))
    if len(looked.unsearched) > _SHOWN:
        left = counted_noun(len(looked.unsearched) - _SHOWN, "more range")
        log.warning("and %s could not be searched", left)
    for line in looked.displaced[:_SHOWN]:
        log.warning("%s", line)
    if len(looked.displaced) > _SHOWN:
        log.warning("and the records of %d more ranges of offsets", len(looked.displaced) - _SHOWN)
    if looked.found:
        return
    searched = f"{counted_noun(looked.segments, 'segment')} searched"
    if looked.passed_over:
        others = counted_noun(looked.passed_over, "partition")
        searched += f", {others} skipped because of --trust-partitioner"
    if isinstance(looked, LogSearch) and looked.without:
        searched += f"; {first_names(looked.without, 3)}"
    if looked.unsearched:
        ranges = counted_noun(len(looked.unsearched), "range")
        raise NotAllSearched(f"not found, and {ranges} could not be searched; {searched}")
    raise NotFound(f"not found; {searched}")


main = partial(run_command, FIND, run, with_spark=False)

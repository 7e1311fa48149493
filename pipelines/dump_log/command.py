"""``kafka-log-lake dump FILE...``: prints the same lines as Kafka's ``kafka-dump-log.sh``.

Needs no Java and no lake, writes nothing. What the tool leaves out comes with ``--more``, objects with
``--json``.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from kafka_log_lake.pipelines.cli.commands.dump import DUMP
from kafka_log_lake.pipelines.cli.errors import JobError, UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.cli.status import say
from kafka_log_lake.pipelines.cli.terminal import printable
from kafka_log_lake.pipelines.engine.run_command import run_command
from kafka_log_lake.pipelines.listing.naming import DELETED_SUFFIX
from kafka_log_lake.pipelines.tier.keys import use_keys

LOG, INDEXES = ".log", ".indexes"
LOGS = (LOG, ".checkpoint")  # record batches
_INDEXES = (".index", ".timeindex", ".txnindex", ".snapshot")
_NAMES = (
    "a segment's name ends in .log, an index's in .index, .timeindex or .txnindex, a snapshot's in .snapshot "
    "or .checkpoint"
)
_MOST_BYTES = 0x7FFFFFFF  # the tool's own default


class _Dump:
    """Prints files as the tool does, one after the other."""

    def __init__(self, settings: Settings, options: dict[str, Any]) -> None:
        from kafka_log_lake.pipelines.dump_log import (  # the decoder: --help does not need it
            index_text,
            log_text,
            payloads,
        )

        self._options = options
        self._more, self._json = options["more"], options["json"]
        self._max_bytes = min(options["max_bytes"], _MOST_BYTES)
        limit = settings.max_batch_uncompressed
        self._decoders = [
            _decoder(payloads.decoder, option, options[option.replace("-", "_")])
            for option in ("value-decoder-class", "key-decoder-class")
        ]
        topics = [topic for name, topic in payloads.TOPIC_OF.items() if options[name]]
        if len(topics) > 1:
            raise UserError("one decoder of an internal topic can be given, not two")
        has_decoder = options["key_decoder_class"] or options["value_decoder_class"]
        contents = bool(options["print_data_log"] or topics or has_decoder)
        self._prints = log_text.Prints(
            records=contents or options["deep_iteration"] or self._json,
            contents=contents,
            metadata=not options["skip_record_metadata"],
            more=self._more,
            key_kind=self._decoders[1].kind,
            value_kind=self._decoders[0].kind,
            topic=topics[0] if topics else None,
            release=options["as"],
            max_batch_uncompressed=limit,
        )
        self.found = index_text.IndexProblems()
        self._index_text = index_text.IndexText(
            self.found,
            sanity_only=options["index_sanity_check"],
            verify_only=options["verify_index_only"],
            max_message_size=min(options["max_message_size"], _MOST_BYTES),
            max_batch_uncompressed=limit,
        )

    @property
    def prints_all(self) -> bool:
        """Returns whether printing goes on after damage."""
        return bool(self._more or self._json)

    def dump(self, path: str) -> bool:
        """Prints a file; returns whether its name is known. Raises Refused, OSError or SourceError."""
        from kafka_log_lake.udfs.indexes.files import DELETED, broker_file

        name = os.path.basename(path).removesuffix(DELETED)
        if not self._json:
            _write(f"Dumping {path}\n".encode(errors="surrogateescape"))
        if name.endswith(LOGS):
            self._log(path)
        elif name.endswith(INDEXES):
            self._split(path)
        elif name.endswith(_INDEXES) or broker_file(name):
            for line in self._entries(path):
                _write(line + b"\n")
        else:
            say(f"Ignoring unknown file {printable(path)}")
            return False
        return True

    def _entries(self, path: str) -> Iterator[bytes]:
        if not self._json:
            return (line.encode(errors="surrogateescape") for line in self._index_text.lines(path))
        from kafka_log_lake.pipelines.dump_log.objects import entry_objects

        return (_object(path, entry_object) for entry_object in entry_objects(path))

    def _split(self, path: str) -> None:
        """Prints each index in an ``.indexes`` object of tiered storage, as if it were a file next to it."""
        from kafka_log_lake.pipelines.dump_log.objects import content_objects
        from kafka_log_lake.udfs.indexes.tier_indexes import split_indexes

        indexes = split_indexes(path)

        def read(path: str, beside: str | None) -> bytes:
            return indexes[os.path.join(os.path.dirname(path), beside) if beside else path]

        text = dataclasses.replace(self._index_text, read=read)
        for name, data in indexes.items():
            if self._json:
                for entry_object in content_objects(name, data):
                    _write(_object(name, entry_object) + b"\n")
                continue
            _write(f"Dumping {name}\n".encode(errors="surrogateescape"))
            for line in text.lines(name):
                _write(line.encode(errors="surrogateescape") + b"\n")

    def _log(self, path: str) -> None:
        from kafka_log_lake.pipelines.dump_log.log_text import LogText
        from kafka_log_lake.udfs.decoder.kafka_reader import Refused
        from kafka_log_lake.udfs.storage.opening import open_named

        source = open_named(path)
        try:
            length = min(source.size(), self._max_bytes)
            if self._json:
                from kafka_log_lake.pipelines.dump_log.objects import log_objects

                for log_object in log_objects(source, length, self._prints):
                    _write(_object(path, log_object) + b"\n")
                return
            try:
                _write(_heading(path).encode() + b"\n")
            except Refused:
                if not self._more:
                    raise
            self._note_decoders()
            text = LogText(source, length, self._prints)
            for output in text:
                _write(output)
            if text.gaps:
                self.found.gaps[os.path.abspath(path)] = text.gaps
            if text.end < length and self._max_bytes == _MOST_BYTES:
                left, name = length - text.end, os.path.basename(path)
                _write(f"Found {left} invalid bytes at the end of {name}\n".encode())
        finally:
            source.close()

    def _note_decoders(self) -> None:
        for decoder in self._decoders if self._prints.topic is None else ():
            if decoder.note is not None:
                _write(decoder.note.encode() + b"\n")


def _decoder(make: Any, option: str, name: str | None) -> Any:
    try:
        return make(name or "string")
    except ValueError as error:
        raise UserError(f"--{option} {error}") from None


def _heading(path: str) -> str:
    """Returns what the tool prints of a log's or snapshot's name. Raises Refused where the tool fails."""
    from kafka_log_lake.pipelines.dump_log.index_text import base_of
    from kafka_log_lake.udfs.decoder.kafka_reader import Refused
    from kafka_log_lake.udfs.indexes.kraft_snapshot import BOOTSTRAP, snapshot_id

    name = os.path.basename(path)
    if name.endswith((LOG, DELETED_SUFFIX)):
        return f"Log starting offset: {base_of(path)}"
    if name == BOOTSTRAP:
        return "KRaft bootstrap snapshot"
    snapshot = snapshot_id(name)
    if snapshot is None:
        raise Refused("its name does not begin with 20 digits of an offset and 10 of an epoch")
    return f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}"


def _logs_in(folder: str) -> list[str]:
    """Lists the ``.log`` and ``.log.deleted`` files of a folder by name. Raises a UserError without any."""
    logs = sorted(name for name in os.listdir(folder) if name.endswith((LOG, DELETED_SUFFIX)))
    if not logs:
        raise UserError(f"{folder} has no .log or .log.deleted file")
    return [os.path.join(folder, name) for name in logs]


def _object(path: str, fields: dict[str, object]) -> bytes:
    """Returns a line of JSON. Bytes of a path that are not UTF-8 become escapes of lone surrogates."""
    return json.dumps({"file": path, **fields}, ensure_ascii=False).encode(errors="backslashreplace")


def _write(output: Any) -> None:
    """Writes text as it is; on a terminal, control characters are escaped."""
    if sys.stdout.isatty():
        lines = bytes(output).decode(errors="replace").split("\n")
        sys.stdout.write("\n".join(map(printable, lines)))
    else:
        sys.stdout.buffer.write(output)


def run(settings: Settings, file: Sequence[str], files: str | None = None, **options: object) -> None:
    """Prints the files. files: more of them, separated by commas.

    Raises a UserError for a file that is not there or not known, a JobError where the tool fails.
    """
    from kafka_log_lake.udfs.decoder.kafka_reader import Refused
    from kafka_log_lake.udfs.storage.byte_source import SourceError

    use_keys(settings.tier_key)
    file = (*file, *files.split(",")) if files else file
    if not file:
        raise UserError("FILE is missing: name a .log file, an index, a snapshot or a checkpoint file")
    if settings.include_deleted:
        file = [log_path for path in file for log_path in (_logs_in(path) if os.path.isdir(path) else [path])]
    for path in file:
        if os.path.isdir(path):
            logs = "*.log" if glob.glob("*.log", root_dir=path) else "TOPIC-0/*.log"
            raise UserError(f"{path} is a folder: name files in it, such as {os.path.join(path, logs)}")
        try:
            os.stat(path)
        except OSError as error:
            raise UserError(f"{path}: it can't be opened: {error.strerror}") from None
    dump = _Dump(settings, options)
    known = 0
    try:
        for path in file:
            known += dump.dump(path)
    except Refused as why:
        hint = "" if dump.prints_all or not path.endswith(LOGS) else "; --more prints what follows, too"
        raise JobError(f"{path}: {why}{hint}") from None
    except (OSError, SourceError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        sys.stdout.flush()
    for line in dump.found.lines():
        say(printable(line))
    if not known:
        raise UserError(f"not a file of Kafka, by its name: {_NAMES}")


main = partial(run_command, DUMP, run, with_spark=False)

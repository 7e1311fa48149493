"""Declares the command ``dump``: its settings, its arguments and its help."""

from __future__ import annotations

import math
from functools import partial

from kafka_log_lake.pipelines.cli.declaration import Argument, Command, Screen
from kafka_log_lake.pipelines.cli.values import from_0
from kafka_log_lake.udfs.values.internal.releases import NEWEST, RELEASES

_bytes = partial(Argument, metavar="BYTES", parse=from_0(math.inf, "must be a whole number of bytes"))
DUMP = Command(
    "dump",
    "dump_log",
    "Print segments, indexes and snapshots: the same lines as kafka-dump-log.sh. Needs no Java.",
    ("include_deleted", "tier_key", "max_batch_uncompressed"),
    (
        Argument("file", "a .log, an index, a snapshot or a checkpoint file", many=True, is_optional=True),
        Argument("files", "files separated by commas, as kafka-dump-log.sh takes them", metavar="LIST"),
        Argument("print_data_log", "print keys and values of records", is_switch=True),
        Argument("deep_iteration", "print records, without keys and values", is_switch=True),
        Argument("skip_record_metadata", "print only keys and values", is_switch=True),
        Argument("key_decoder_class", "string, long, integer, bytes, or Kafka's class", metavar="NAME"),
        Argument("value_decoder_class", "the same, for values", metavar="NAME"),
        Argument("offsets_decoder", "decode records of __consumer_offsets", is_switch=True),
        Argument("transaction_log_decoder", "of __transaction_state", is_switch=True),
        Argument("cluster_metadata_decoder", "of __cluster_metadata", is_switch=True),
        Argument("remote_log_metadata_decoder", "of __remote_log_metadata", is_switch=True),
        Argument("share_group_state_decoder", "of __share_group_state", is_switch=True),
        Argument("as", "the release of Kafka whose tool's text is printed", choices=RELEASES, default=NEWEST),
        Argument("index_sanity_check", "check an index as a broker does when it starts", is_switch=True),
        Argument("verify_index_only", "compare an index with its segment, print no entry", is_switch=True),
        _bytes("max_message_size", "largest batch of an index", default="5242880"),
        _bytes("max_bytes", "read only the first bytes of a log", default="2147483647"),
        Argument("more", "print header values and damage too, and what follows damage", is_switch=True),
        Argument("json", "print one JSON object per batch, record or entry", is_switch=True),
    ),
    extra="",
    screen=Screen(
        "FILE... [OPTIONS]",
        "Print the lines of kafka-dump-log.sh (Kafka 4.1 to 4.4) for the same flags. No Java.",
        (
            ("Files", "FILE: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint, *-checkpoint"),
            ("", "files: separated by commas", "include_deleted: a folder of logs"),
            ("Records", "print_data_log", "deep_iteration", "skip_record_metadata"),
            (
                *("Decoders", "key_decoder_class", "value_decoder_class", "offsets_decoder"),
                *("transaction_log_decoder", "cluster_metadata_decoder"),
                *("remote_log_metadata_decoder", "share_group_state_decoder", "as"),
            ),
            ("Indexes", "index_sanity_check", "verify_index_only", "max_message_size"),
            ("Bounds", "max_bytes", "max_batch_uncompressed"),
            ("More", "more: also print header values, damage, and what follows it"),
            ("", "json: one JSON object per batch, record, damage or index entry"),
        ),
        (
            "--print-data-log orders-0/00000000000000000000.log",
            "--offsets-decoder __consumer_offsets-7/*.log",
            "--verify-index-only orders-0/*.index orders-0/*.timeindex",
        ),
        "0 printed, 1 where kafka-dump-log.sh fails too, 2 no file of Kafka.",
        "docs/dump.md",
    ),
)

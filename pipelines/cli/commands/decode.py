"""Declares the command ``decode``: its settings, its arguments and its help."""

from __future__ import annotations

from kafka_log_lake.pipelines.cli.declaration import Command, Screen
from kafka_log_lake.pipelines.cli.setting_names import SETTING_NAMES

DECODE = Command(
    "decode",
    "decode_batches",
    "Decode Kafka log segments into Delta tables.",
    tuple(name for name in SETTING_NAMES if name != "include_deleted"),
    is_configurable=True,
    continues=True,
    screen=Screen(
        "--source PATH... --lake LAKE [OPTIONS]",
        "Decode Kafka log segments into Delta tables. A later run decodes only what is new. The sources are "
        "only read.",
        (
            ("Sources", "source: log directory, partition folder, .log file, glob or URI; several times"),
            ("Topics", "topics: only these (whole name)", "exclude_topics"),
            ("Lake", "lake: its folder or URI; created if missing"),
            ("Records", "since", "until"),
            ("Values", "typed: keys and values by their schemas; --no-typed: not"),
            ("", "mode: latest, also one row per key; cdc, also the tables that Debezium captured"),
            ("Running", "watch: repeat until Ctrl-C", "cores: processes (default: all cores)"),
            ("Output", "json: one JSON object", "fail_on_damage: exit with 3 if damage was found"),
            ("More", "--help-all: all options", "--config FILE.yml: settings from a file"),
        ),
        (
            "--source /var/lib/kafka/data --lake lake",
            "--source backup --topics 'payments.*' --lake lake",
        ),
        "0 done, 2 a wrong source or lake, 3 damage and --fail-on-damage.",
    ),
)

"""Declares the arguments that several commands take."""

from __future__ import annotations

from functools import partial

from kafka_log_lake.pipelines.cli.declaration import Argument

number = partial(Argument, metavar="N")
AT = Argument(
    "at", "an earlier state: the id of a run (table runs), or a time in UTC; DuckDB only", metavar="RUN|TIME"
)
LOG = Argument(
    "log",
    "in a lake of several copies: healed (default), or the name of a copy decoded by --with-copies",
    metavar="NAME",
)

"""The root of the errors that callers are meant to catch. ``pipelines.cli.errors`` has those of the jobs."""

from __future__ import annotations

# Package that is imported -> the extra that brings it, for those who have installed none or another one
EXTRA_OF = {
    **dict.fromkeys(("pyspark", "py4j", "delta", "pandas", "prometheus_client"), "spark"),
    **dict.fromkeys(("duckdb", "deltalake"), "sql"),
    **dict.fromkeys(("jinja2", "markupsafe", "vl_convert"), "report"),
    **dict.fromkeys(("grpc", "grpc_status"), "connect"),
    **dict.fromkeys(("Crypto", "cryptography"), "tier"),
    **dict.fromkeys(("grpc_tools", "google"), "typed"),
    "matplotlib": "notebooks",
    "textual": "browse",
    "openlineage": "lineage",
    "fsspec": "fsspec",
    "xlsxwriter": "export",
    "mcp": "mcp",
    "confluent_kafka": "restore",
}


def install(extra: str) -> str:
    """Returns the commands that bring the packages of an extra. No index of packages has this one."""
    return f"in a clone, pip install '.[{extra}]', or uvx --from '.[{extra}]' kafka-log-lake"


class JobError(Exception):
    """The root of all expected failures: one line of text that says what is wrong and how to go on.

    ``except JobError`` around any call of this package catches them all. A command prints the text, without a
    traceback, and exits with ``exit_code``. This class itself, code 1: the work failed; run it again.
    """

    exit_code = 1

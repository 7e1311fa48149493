"""The one door to every storage: a URI -> the file system that holds it, and how other libraries open it too.

Workers and driver list, read and write through pyarrow, the driver commits through deltalake, Spark reads
through Hadoop. On S3 all of them take endpoint, region and credentials from the AWS_* variables of the
environment: this module says to each what it does not find there itself. ``s3a://`` is ``s3://``.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from udfs.source.byte_source import local_path

# What the other libraries read of the environment; a driver passes it on to its workers
S3_VARIABLES = (
    *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)
# URI schemes of object stores, where nothing is renamed and a file appears when it is closed
_OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")
_OF_PYARROW = (*_OBJECT_STORES, "file", "hdfs", "viewfs")
_SDK = "software.amazon.awssdk"
_ATTEMPTS = 10  # the last waits half a minute in all
_CONNECT_SECONDS = 10.0


def scheme_of(uri: str) -> str:
    """The scheme of a canonical URI or path, ``file`` for a path."""
    scheme, separator, _ = uri.partition("://")
    return scheme if separator else "file"


def canonical(uri: str) -> str:
    """A URI under the one name of its scheme: ``s3a`` and ``s3n`` are Hadoop's names of ``s3``."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri
    scheme = scheme.lower()
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"


def is_object_store(uri: str) -> bool:
    """Whether a canonical URI is of an object store."""
    return scheme_of(uri) in _OBJECT_STORES


def is_s3(uri: str) -> bool:
    return scheme_of(uri) == "s3"


def worker_opens(uri: str) -> bool:
    """Whether a worker can open a canonical URI itself; Spark reads all others."""
    return scheme_of(uri) in _OF_PYARROW


def open_store(uri: str) -> tuple[Any, str]:
    """The ``pyarrow.fs.FileSystem`` of a canonical URI or local path, and the path in it.

    Raises OSError or ValueError where it can't be opened.
    """
    from pyarrow import fs

    path = local_path(uri)
    if path is not None:
        return fs.LocalFileSystem(), path
    if is_s3(uri):
        # One a process: a forked one must not use the connections of its parent
        return _s3(os.getpid(), _endpoint(), _region(uri)), uri.removeprefix("s3://").rstrip("/")
    return fs.FileSystem.from_uri(uri)


def reason_of(error: BaseException) -> str:
    """What a store's error says, in one line; its name where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def deltalake_options(uri: str) -> dict[str, str] | None:
    """``storage_options`` of deltalake for a table; None where its own defaults will do."""
    if not is_s3(uri):
        return None
    options = {"conditional_put": "etag", "AWS_REGION": _region(uri)}
    endpoint = _endpoint()
    if endpoint:
        options |= {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower(),
        }
    return options


def hadoop_options(uri: str) -> dict[str, str]:
    """Settings of Hadoop with which Spark opens a canonical URI."""
    if not is_s3(uri):
        return {}
    options = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3a.aws.credentials.provider": f"{_SDK}.auth.credentials.DefaultCredentialsProvider",
        "fs.s3a.endpoint.region": _region(uri),
    }
    endpoint = _endpoint()
    if endpoint:
        options |= {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": str(not endpoint.startswith("http://")).lower(),
        }
    return options


def _endpoint() -> str | None:
    """The URL of another server than Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def _region(uri: str) -> str:
    """As the environment says; else that of the bucket, which Amazon tells anybody."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named:
        return named
    return "us-east-1" if _endpoint() else _region_of_bucket(uri.split("/")[2])


@cache
def _region_of_bucket(bucket: str) -> str:
    from pyarrow import fs

    return str(fs.resolve_s3_region(bucket))


@cache
def _s3(process: int, endpoint: str | None, region: str) -> Any:
    from pyarrow import fs

    scheme, _, host = (endpoint or "https://").partition("://")
    return fs.S3FileSystem(
        region=region,
        scheme=scheme,
        endpoint_override=host.rstrip("/") or None,
        connect_timeout=_CONNECT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        allow_delayed_open=True,  # a small file is one request
    )

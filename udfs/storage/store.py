"""Opens the file system of a URI, and tells deltalake and Spark how to open it: all storage goes by here.

Workers and driver list, read and write through pyarrow, the driver commits through deltalake, Spark reads
through Hadoop. On S3 all of them take endpoint, region and credentials from the AWS_* variables of the
environment, and where it has none from the configuration of the Spark session (``use_settings_of``): this
module says to each what it does not find there itself. ``s3a://`` is ``s3://``.

Sources may be in other stores too, which fsspec opens where its package of the protocol is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from kafka_log_lake.udfs import reads
from kafka_log_lake.udfs.errors import install
from kafka_log_lake.udfs.storage.byte_source import path_of_uri, reason_of
from kafka_log_lake.udfs.storage.tier_keys import VARIABLE

if TYPE_CHECKING:
    from pyarrow import fs

_KEY, _SECRET, _TOKEN = _CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
# What the other libraries read of the environment; a driver passes it on to its workers
S3_VARIABLES = (*_ENDPOINTS, *_REGIONS, *_CREDENTIALS)
# Of them those that the configuration of a Spark session may replace
_OF_SESSION: dict[str, str] = {}
# URI schemes of object stores, where nothing is renamed and a file appears when it is closed
_OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")
_OF_HADOOP = ("hdfs", "viewfs")  # pyarrow opens them by Hadoop's library in C
_OF_PYARROW = (*_OBJECT_STORES, "file", *_OF_HADOOP)
# Mounts of Databricks -> the same for Spark; Volumes first, as they are below the other's
MOUNTS = {"file:///Volumes/": "dbfs:/Volumes/", "file:///dbfs/": "dbfs:/"}
_SDK = "software.amazon.awssdk"
_ATTEMPTS = 10  # the last waits half a minute in all
_CONNECT_SECONDS = 10.0


def use_settings_of(hadoop: Callable[[str], str | None]) -> None:
    """Takes the S3 settings that the environment lacks from those of Hadoop's client.

    hadoop: the value of a setting, such as ``fs.s3a.access.key``; None for one that is not set. Credentials
    are taken together: the environment has its own where it names a key or a profile.
    """
    _OF_SESSION.clear()
    if not any(os.environ.get(name) for name in (_KEY, "AWS_PROFILE")):
        keys = {_KEY: "access.key", _SECRET: "secret.key", _TOKEN: "session.token"}
        credentials = {name: hadoop(f"fs.s3a.{key}") for name, key in keys.items()}
        _OF_SESSION.update({name: value for name, value in credentials.items() if value})
    endpoint, region = hadoop("fs.s3a.endpoint"), hadoop("fs.s3a.endpoint.region")
    if endpoint and not endpoint.endswith("amazonaws.com") and not any(map(os.environ.get, _ENDPOINTS)):
        scheme = "http" if hadoop("fs.s3a.connection.ssl.enabled") == "false" else "https"
        _OF_SESSION[_ENDPOINTS[0]] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if region and not any(map(os.environ.get, _REGIONS)):
        _OF_SESSION[_REGIONS[0]] = region


def store_variables() -> dict[str, str]:
    """Returns the environment variables with which another process opens stores and encrypted objects
    alike.
    """
    of_s3 = {name: os.environ[name] for name in S3_VARIABLES if name in os.environ}
    of_s3 |= {name: os.environ[name] for name in (VARIABLE, reads.VARIABLE) if name in os.environ}
    return _OF_SESSION | of_s3 | {k: v for k, v in os.environ.items() if k.startswith("FSSPEC_")}


def scheme_of(uri: str) -> str:
    """Returns the scheme of a canonical URI or path, ``file`` for a path."""
    scheme, separator, _ = uri.partition("://")
    return scheme if separator else "file"


def canonical_uri(uri: str) -> str:
    """Returns a URI with its scheme in lower case and ``s3`` for Hadoop's ``s3a`` and ``s3n``."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri
    scheme = scheme.lower()
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"


def is_object_store(uri: str) -> bool:
    """Says whether a canonical URI is of an object store, or of a store that is listed and read like one."""
    return scheme_of(uri) in _OBJECT_STORES or is_of_fsspec(uri)


def is_s3(uri: str) -> bool:
    """Says whether a canonical URI is of S3 or a store with its interface."""
    return scheme_of(uri) == "s3"


def worker_opens(uri: str) -> bool:
    """Says whether a worker can open a canonical URI itself; Spark reads all others."""
    scheme = scheme_of(uri)
    return _has_libhdfs() if scheme in _OF_HADOOP else scheme in _OF_PYARROW or is_of_fsspec(uri)


def is_of_fsspec(uri: str) -> bool:
    """Says whether fsspec opens a canonical URI: pyarrow does not know its scheme, a package does."""
    return _why_not_fsspec(scheme_of(uri)) is None


def missing_package(uri: str) -> str:
    """Says what to install so that fsspec opens a canonical URI, after a semicolon; "" if not known."""
    why_not = _why_not_fsspec(scheme_of(uri))
    return f"; {why_not}" if why_not else ""


@cache
def _why_not_fsspec(scheme: str) -> str | None:
    """Says why fsspec does not open a scheme: what to install, or "". None where it does."""
    if scheme in _OF_PYARROW:
        return ""
    try:
        from fsspec.registry import get_filesystem_class
    except ModuleNotFoundError:
        return f"fsspec may know {scheme}://: {install('fsspec')}, and the package of this protocol"
    try:
        get_filesystem_class(scheme)
    except ImportError as error:
        return reason_of(error)
    except ValueError:
        return ""
    return None


@cache
def _has_libhdfs() -> bool:
    """Says whether Hadoop's library in C, by which pyarrow opens HDFS, lies where pyarrow looks for it."""
    home = os.environ.get("HADOOP_HOME")
    folders = (os.environ.get("ARROW_LIBHDFS_DIR"), home and f"{home}/lib/native")
    return any(os.path.exists(f"{folder}/libhdfs.so") for folder in folders if folder)


def spark_uri(uri: str) -> str:
    """Returns how Spark's JVM names a canonical URI: it does not see what Databricks mounts for Python."""
    mount = next((prefix for prefix in MOUNTS if uri.startswith(prefix)), None)
    if mount is None or "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        return uri
    return MOUNTS[mount] + uri.removeprefix(mount)


def open_store(uri: str) -> tuple[fs.FileSystem, str]:
    """Returns the ``pyarrow.fs.FileSystem`` of a canonical URI or local path, and the path in it.

    Raises OSError or ValueError where it can't be opened.
    """
    from pyarrow import fs

    path = path_of_uri(uri)
    if path is not None:
        return fs.LocalFileSystem(), path
    if is_s3(uri):
        # One a process: a forked one must not use the connections of its parent
        credentials = tuple(_OF_SESSION.get(name) for name in _CREDENTIALS)
        return _s3(os.getpid(), _endpoint(), _region(uri), credentials), uri.removeprefix("s3://").rstrip("/")
    why_not = _why_not_fsspec(scheme_of(uri))
    if why_not is None:
        from kafka_log_lake.udfs.storage.protocols import open_protocol

        return open_protocol(uri)
    if why_not:
        raise ValueError(why_not)
    return fs.FileSystem.from_uri(uri)


def deltalake_options(uri: str) -> dict[str, str] | None:
    """Returns the ``storage_options`` of deltalake for a table; None where its defaults will do."""
    if not is_s3(uri):
        return None
    options = {"conditional_put": "etag", "AWS_REGION": _region(uri)}
    options |= {name: _OF_SESSION[name] for name in _CREDENTIALS if name in _OF_SESSION}
    endpoint = _endpoint()
    if endpoint:
        options |= {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower(),
        }
    return options


def hadoop_options(uri: str) -> dict[str, str]:
    """Returns the Hadoop settings with which Spark opens a canonical URI."""
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
    """Returns the URL of an S3 server that is not Amazon's; None for Amazon's."""
    return _first(_ENDPOINTS)


def _first(names: Sequence[str]) -> str | None:
    values = [os.environ.get(name) or _OF_SESSION.get(name) for name in names]
    return next(filter(None, values), None)


def _region(uri: str) -> str:
    """Returns the region that the settings name; else that of the bucket, which Amazon tells anybody."""
    named = _first(_REGIONS)
    if named:
        return named
    return "us-east-1" if _endpoint() else _region_of_bucket(uri.split("/")[2])


@cache
def _region_of_bucket(bucket: str) -> str:
    from pyarrow import fs

    return str(fs.resolve_s3_region(bucket))


@cache
def _s3(
    process: int, endpoint: str | None, region: str, credentials: tuple[str | None, str | None, str | None]
) -> object:
    """Opens S3 once in each process. credentials: those that the environment does not have."""
    from pyarrow import fs

    scheme, _, host = (endpoint or "https://").partition("://")
    key, secret, token = credentials
    return fs.S3FileSystem(
        access_key=key,
        secret_key=secret,
        session_token=token,
        region=region,
        scheme=scheme,
        endpoint_override=host.rstrip("/") or None,
        connect_timeout=_CONNECT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        allow_delayed_open=True,  # a small file is one request
    )

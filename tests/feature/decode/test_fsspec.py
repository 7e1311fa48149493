"""Sources that fsspec opens: logs behind a web server, and a protocol with everything in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import numpy as np
import pytest

import kafka_log_lake
from kafka_log_lake import read_segment
from kafka_log_lake.pipelines import decode_batches, ingest_raw
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.settings import Settings
from kafka_log_lake.pipelines.listing.list_segments import list_segments
from kafka_log_lake.pipelines.listing.stores import list_files
from kafka_log_lake.pipelines.listing.uris import resolve
from kafka_log_lake.udfs.storage import store
from kafka_log_lake.udfs.storage.object_source import BLOCK_BYTES, ObjectSource
from tests.support import as_command
from tests.support.logs import batch, batches, contents, put, rows, two_topics
from tests.support.scanned import found
from tests.support.web_server import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = two_topics(tmp_path / "disk" / "logs")
    put(folder / "b-3", 6, *batches(6, 2), b"garbage" * 100, *batches(12, 2))
    return folder


@pytest.fixture
def url(logs: Path) -> Iterator[str]:
    with serving(logs.parent) as address:
        yield f"{address}/logs"


def placed(lake: str, place: str) -> dict[str, list[str]]:
    """The rows of a lake whose sources lie below a place, wherever that is. HTTP tells seconds alone."""
    return {
        name: sorted(
            repr({k: v for k, v in row.items() if k != "modified"}).replace(place, "") for row in table
        )
        for name, table in contents(lake).items()
    }


def test_a_job_in_processes_decodes_what_a_web_server_has(url: str, logs: Path, tmp_path: Path) -> None:
    local, remote = str(tmp_path / "local"), str(tmp_path / "remote")
    as_command.decode(None, Settings(lake=local, source=(str(logs),)))
    done = as_command.decode(None, Settings(lake=remote, source=(url,), slice_bytes=500))
    assert (done.warnings, done.segments) == ([], 5)
    assert len(rows(remote, "quarantine")) == 1
    assert placed(remote, url) == placed(local, f"file://{logs}")


def test_a_second_run_notices_what_was_written_since(url: str, logs: Path, tmp_path: Path) -> None:
    settings = Settings(lake=str(tmp_path / "lake"), source=(url,))
    as_command.decode(None, settings)
    assert as_command.decode(None, settings).segments == 0
    path = logs / "a-0" / f"{60:020d}.log"
    path.write_bytes(path.read_bytes() + batch(120))
    assert as_command.decode(None, settings).segments == 1
    # Other bytes under the same name, with the length and the time of before
    path = logs / "a-0" / f"{0:020d}.log"
    was = path.stat()
    path.write_bytes(b"".join(batch(3 * i, 3, base_timestamp=9000) for i in range(10)))
    assert path.stat().st_size == was.st_size
    os.utime(path, ns=(was.st_mtime_ns, was.st_mtime_ns))
    assert as_command.decode(None, Settings(**{**vars(settings), "verify_content": True})).segments == 1
    assert {
        row["timestamp_ms"] for row in rows(settings.require_lake(), "records") if row["offset"] == 3
    } >= {9000}


def test_scan_and_find_read_what_a_web_server_has(url: str) -> None:
    logs = {log.partition_dir: log.records for log in found(url).logs}
    assert logs == {f"{url}/a-0": 120, f"{url}/b-3": 18}
    unsearched: list[object] = []
    matches = kafka_log_lake.find(url, key="k1", offset="31", on_unsearched=unsearched.append)
    (row,) = [row for part in matches for row in part.to_pylist()]
    assert (row["topic"], row["value"], len(unsearched)) == ("a", b"v31", 1)


def test_a_segment_is_decoded_by_its_url(url: str, logs: Path) -> None:
    name = f"a-0/{30:020d}.log"
    remote, local = read_segment(f"{url}/{name}"), read_segment(logs / name)
    assert remote.drop(["segment"]) == local.drop(["segment"])
    assert remote.column("segment").unique().to_pylist() == [f"{url}/{name}"]
    assert read_segment(f"file://{logs}/{name}") == local
    with pytest.raises(FileNotFoundError, match=r"/a-0/1\.log: it is gone$"):
        read_segment(f"{url}/a-0/1.log")
    with pytest.raises(ValueError, match=r"^committed=True needs the folder of a local file: "):
        read_segment(f"{url}/{name}", committed=True)
    with pytest.raises(OSError, match=r"sftp://host/1\.log: it can't be opened: .* requires \"paramiko\""):
        read_segment("sftp://host/1.log")


def test_globs_and_single_files_of_a_web_server(url: str) -> None:
    assert list_segments(f"{url}/a-*").segments.num_rows == 3
    one = list_segments(f"{url}/a-0/{30:020d}.log").segments
    assert one.column("wanted").to_pylist() == [False, True, False]
    with pytest.raises(UserError, match=rf"^no such path: {url}/none$"):
        list_segments(f"{url}/none")


@pytest.mark.spark
def test_tasks_of_spark_read_what_a_web_server_has(
    spark: SparkSession, url: str, logs: Path, tmp_path: Path
) -> None:
    local, remote = str(tmp_path / "local"), str(tmp_path / "remote")
    as_command.decode(None, Settings(lake=local, source=(str(logs),)))
    assert ingest_raw.run(spark, Settings(lake=remote, source=(url,))).warnings == []
    landed: dict[str, bytes] = {}
    for row in sorted(rows(remote, "raw_segments"), key=lambda row: row["chunk_position"]):
        landed[row["segment"]] = landed.get(row["segment"], b"") + row["content"]
    assert landed == {f"{url}/{p.relative_to(logs)}": p.read_bytes() for p in logs.rglob("*.log")}
    decode_batches.run(spark, Settings(lake=remote, source=(url,)))
    assert placed(remote, url) == placed(local, f"file://{logs}")
    read = spark.read.format("kafka_log").load(url)
    assert read.where("topic = 'a'").count() == 120
    with pytest.raises(UserError, match=r"^az://logs/kafka can't be opened: .*; Install adlfs "):
        decode_batches.run(spark, Settings(lake=str(tmp_path / "other"), source=("az://logs/kafka",)))
    with pytest.raises(
        UserError, match=rf"^--read binary: Spark does not open {url}/a-0/0+\.log, fsspec does"
    ):
        decode_batches.run(spark, Settings(lake=str(tmp_path / "other"), source=(url,), read="binary"))


def test_a_server_that_gives_whole_files_alone_is_left_with_a_reason(tmp_path: Path) -> None:
    large = [batch(offset, 1, text="x" * 100_000) for offset in range(300)]
    put(tmp_path / "logs" / "a-0", 0, *large)
    with serving(tmp_path / "logs", gives_parts=False) as address:
        done = as_command.decode(None, Settings(lake=str(tmp_path / "lake"), source=(address,)))
    (warning,) = done.warnings
    assert warning.endswith("it can't be read: the server gives no part of a file, only all of it")


@pytest.mark.parametrize(
    "modified", ["Sat, 99 Nov 99999 04:06:00 GMT", "28-Nov-2026 04:06", "yesterday, noon"]
)
def test_a_time_that_nobody_can_read_takes_no_file_away(logs: Path, modified: str) -> None:
    with serving(logs.parent, modified=modified) as address:
        listing = list_segments(f"{address}/logs")
    assert (listing.segments.num_rows, listing.unreadable) == (5, {})


def test_a_server_that_does_not_answer_is_not_an_empty_folder(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        pass
    with pytest.raises(UserError, match=rf"^{address}/logs can't be opened: Cannot connect to host"):
        list_segments(f"{address}/logs")


def tells_no_time(*_: object) -> None:
    raise NotImplementedError


def test_a_protocol_is_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    content = os.urandom(5 * BLOCK_BYTES // 2)
    memory.pipe({"/of-test/a-0/00000000000000000000.log": content, "/of-test/a-0/x.txt": b""})
    files, named = list_files("memory://of-test")
    assert files.column("path").to_pylist() == ["memory://of-test/a-0/00000000000000000000.log"]
    assert (files.column("length").to_pylist(), named) == ([len(content)], set())
    view, seen = np.empty(2 << 20, dtype=np.uint8), bytearray()
    source = ObjectSource("memory://of-test/a-0/00000000000000000000.log")
    source.check_unchanged(files.column("modified")[0].as_py())
    while size := source.read_into(len(seen), view):
        seen += view[:size].tobytes()
    assert bytes(seen) == content
    monkeypatch.setattr(type(memory), "modified", tells_no_time)
    files, _ = list_files("memory://of-test")
    assert files.column("modified").to_pylist() == [0]
    source.check_unchanged(0)
    source.close()
    memory.rm("/of-test", recursive=True)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UserError, match=r"^az://logs/kafka can't be listed without Spark: .*; Install adlfs "
    ):
        list_segments("az://logs/kafka")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.registry", None)
    store._why_not_fsspec.cache_clear()
    with pytest.raises(UserError, match=r"; fsspec may know sftp://: .*pip install '\.\[fsspec\]'"):
        list_segments("sftp://host/kafka")
    store._why_not_fsspec.cache_clear()


@pytest.mark.parametrize("host", ["h.example", "h.example:8080"])
def test_a_password_in_a_uri_is_refused_and_not_repeated(host: str) -> None:
    with pytest.raises(UserError, match="keep this password") as refused:
        list_segments(f"https://user:secret@{host}/logs")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("uri", ["abfss://logs@account.example/a", "hdfs://user@node:8020/a", "s3://b/c:d@e"])
def test_a_user_or_a_port_alone_is_no_password(uri: str) -> None:
    assert resolve([uri]).remote == [uri]


def test_a_lake_is_not_written_through_fsspec(url: str, logs: Path) -> None:
    with pytest.raises(
        UserError, match=r"^--lake: http://.* is opened by fsspec, which here reads sources alone$"
    ):
        as_command.decode(None, Settings(lake=f"{url}/lake", source=(str(logs),)))


def test_workers_get_the_settings_of_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSSPEC_HTTP_BLOCK_SIZE", "1000000")
    assert store.store_variables()["FSSPEC_HTTP_BLOCK_SIZE"] == "1000000"

"""Names of files on Databricks: ``dbfs:/...``, the mounts ``/Volumes`` and ``/dbfs``; the bundle's pins."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.lake.address import lake_address
from kafka_log_lake.pipelines.listing import uris
from kafka_log_lake.pipelines.listing.uris import local_path
from tests.support.logs import batches, put, rows

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("dbfs:/Volumes/main/kafka/logs/a-0", "/Volumes/main/kafka/logs/a-0"),
        ("dbfs:///Volumes/main/kafka/logs/a-0", "/Volumes/main/kafka/logs/a-0"),
        ("/Volumes/main/kafka/logs/a-0", "/Volumes/main/kafka/logs/a-0"),
        ("file:/Volumes/main/kafka/logs/a-0", "/Volumes/main/kafka/logs/a-0"),
        ("dbfs:/FileStore/logs", "/dbfs/FileStore/logs"),
        ("DBFS:/FileStore/logs", "/dbfs/FileStore/logs"),
        ("/dbfs/FileStore/logs", "/dbfs/FileStore/logs"),
        ("dbfs:/VolumesOfMine/logs", "/dbfs/VolumesOfMine/logs"),
    ],
)
def test_every_name_of_a_file_leads_to_the_one_mount(source: str, path: str) -> None:
    assert local_path(source) == path


@pytest.fixture
def dbfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the mount /dbfs."""
    folder = tmp_path / "dbfs"
    folder.mkdir()
    monkeypatch.setattr(uris, "DBFS", str(folder))
    return folder


def test_a_source_of_dbfs_is_decoded_once_by_whichever_name(dbfs: Path, tmp_path: Path) -> None:
    put(dbfs / "FileStore" / "logs" / "a-0", 0, *batches(0, 3))
    lake = ["--lake", str(tmp_path / "lake")]
    named = ["--source", "dbfs:/FileStore/logs", "--source", f"{dbfs}/FileStore/logs"]
    assert main(["decode", *named, *lake]) == 0
    assert main(["decode", "--source", "dbfs:/FileStore/*/a-0", *lake]) == 0
    assert sorted(row["offset"] for row in rows(str(tmp_path / "lake"), "records")) == list(range(9))
    (segment,) = rows(str(tmp_path / "lake"), "segments")
    assert segment["partition_dir"] == f"file://{dbfs}/FileStore/logs/a-0"


def test_a_path_without_its_scheme_is_told_the_name_that_is_there(
    dbfs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(dbfs / "FileStore" / "logs" / "a-0", 0, *batches(0, 3))
    assert main(["scan", "/FileStore/logs"]) == 2
    line = "error: no such path: /FileStore/logs; on DBFS there is dbfs:/FileStore/logs\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("dbfs:/FileStore/logs", "/Volumes/<catalog>/<schema>/<volume>/..."),
        ("dbfs:/Volumes/main/kafka/logs", "run the command there, or name the Volume's folder in its bucket"),
        ("/Volumes/main/kafka/logs", "run the command there, or name the Volume's folder in its bucket"),
    ],
)
def test_without_the_mount_one_line_says_what_to_use(
    name: str, instead: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_folder = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: path not in ("/dbfs", "/Volumes") and is_folder(path))
    for command in (["scan", name], ["decode", "--source", str(ROOT / "tests/data/corpus"), "--lake", name]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert instead in said
        assert said.count("\n") == 1
    with pytest.raises(UserError, match="there is no /"):
        lake_address(name)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP])
def test_a_lake_where_commits_are_not_safe_is_refused(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FUSE mounts have no hard links: what deltalake does without them overwrites another job's commit."""

    def no_link(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    monkeypatch.setattr(os, "link", no_link)
    decode = ["decode", "--source", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake")]
    assert main(decode) == 2
    said = capsys.readouterr().err
    assert "--sink catalog with --lake CATALOG.SCHEMA" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "lake").exists()
    monkeypatch.undo()
    assert main(decode) == 0
    lock = sorted(path.name for path in (tmp_path / "lake" / "_runs").iterdir())
    assert lock == ["lock"]
    monkeypatch.setattr(os, "link", no_link)
    assert main(decode) == 2
    assert len(rows(str(tmp_path / "lake"), "records")) == 9


def test_an_answer_is_whole_where_nothing_can_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_rename(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    monkeypatch.setattr(os, "replace", no_rename)
    output = tmp_path / "found.jsonl"
    for _ in range(2):  # the second one takes the place of the first
        assert main(["find", str(tmp_path / "logs"), "--output", str(output), "--format", "json"]) == 0
    assert len(output.read_text().splitlines()) == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.jsonl", "logs"]


def test_executors_read_by_the_data_source_without_what_commands_print_with(tmp_path: Path) -> None:
    """The environment of ``make package`` has no rich."""
    put(tmp_path / "logs" / "a-0", 0, *batches(0, 3))
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "from pipelines.dataframes.source import KafkaLogSource\n"
        "source = KafkaLogSource({'path': sys.argv[1]})\n"
        "from pyspark.sql.types import LongType, StructType\n"
        "assert 'offset' in source.schema()\n"
        "reader = source.reader(StructType().add('offset', LongType()))\n"
        "print(sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "logs")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "9\n", done.stderr


def locked() -> dict[str, str]:
    """Versions of the lock file, by package."""
    lines = (ROOT / "requirements.lock").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;\\]+)", lines, re.MULTILINE))


def test_the_bundle_pins_what_the_project_is_tested_with() -> None:
    """Ranges as in pyproject.toml; Numba as in the lock file, as the wheel's machine code is made by it."""
    bundle = yaml.safe_load((ROOT / "databricks" / "databricks.yml").read_text())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    declared = {Requirement(text).name: Requirement(text) for text in extras["spark"]}
    jobs = [target["resources"]["jobs"]["kafka_log"] for target in bundle["targets"].values()]
    serverless = jobs[0]["environments"][0]["spec"]["dependencies"]
    assert serverless[0] == "../dist/*.whl"
    classic = jobs[1]["tasks"][0]["libraries"]
    assert [one.get("whl") or one["pypi"]["package"] for one in classic] == serverless
    pins = {Requirement(text).name: Requirement(text) for text in serverless[1:]}
    assert pins.keys() == {"deltalake", "duckdb", "numba"}
    assert {name: pins[name] for name in ("deltalake", "duckdb")} == {
        name: declared[name] for name in ("deltalake", "duckdb")
    }
    assert str(pins["numba"]) == f"numba=={locked()['numba']}"
    for name, pin in pins.items():
        assert pin.specifier.contains(locked()[name])

"""Lakes that earlier versions made, as files: this version reads them and goes on with them."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import pytest

from kafka_log_lake import connect, decode_folder
from kafka_log_lake.pipelines.cli.program import main
from tests.support import corpus, logs, typed_corpus

LAKES = sorted((Path(__file__).parents[1] / "data/lakes").glob("*.tar.xz"))
# The logs of which each was made: tests/data/README.md
LOGS = (
    *(corpus.ROOT / "v2-headers/headers.v1-0", corpus.ROOT / "hostile/bitflip-crc-v2-none-0"),
    *(corpus.ROOT / "mixed-magic/mixed.magic-0", corpus.ROOT / "v2-txn-interleaved/tx-interleaved-0"),
    *(typed_corpus.DATA / "_schemas-0", typed_corpus.DATA / "avro-bare-0"),
)


def rows_of(folder: Path) -> Counter[tuple[object, ...]]:
    """Returns the records of a partition folder, as the segments themselves give them."""
    columns = ["topic", "partition", "offset", "key", "value"]
    batches = decode_folder(str(folder), on_damage="ignore")
    return Counter(tuple(row[name] for name in columns) for one in batches for row in one.to_pylist())


@pytest.mark.parametrize("archive", LAKES, ids=lambda path: path.name)
def test_a_lake_of_an_earlier_version_is_continued_and_read(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    lake = str(tmp_path / "lake")
    # What it lacks is one line, with the way out
    assert main(["query", "--lake", lake, "SELECT * FROM topics"]) == 2
    assert "the next decode computes it" in capsys.readouterr().err
    logs.put(tmp_path / "more/new-0", 0, logs.batch(0))
    (tmp_path / "more/meta.properties").write_text("version=1\ncluster.id=shop-1\nnode.id=1\n")
    assert main(["decode", "--source", str(tmp_path / "more"), "--lake", lake, "--typed"]) == 0

    database = connect(lake)
    held = database.sql("SELECT topic, partition, offset, key, value FROM records WHERE topic <> 'new'")
    expected: Counter[tuple[object, ...]] = Counter()
    for folder in LOGS:
        expected += rows_of(folder)
    assert Counter(held.fetchall()) == expected
    assert database.sql("SELECT count(*) FROM records WHERE topic = 'new'").fetchall() == [(3,)]
    typed = database.sql('SELECT count(*) FROM typed."avro-bare" WHERE value IS NOT NULL').fetchall()
    assert typed > [(100,)]
    assert database.sql("SELECT count(*) FROM lost_offsets").fetchall() == [(1,)]
    assert database.sql("SELECT cluster_id FROM runs ORDER BY began_at").fetchall() == [(None,), ("shop-1",)]
    # Nothing is decoded twice, and nothing is lost by a run that has nothing to do
    capsys.readouterr()
    assert main(["decode", "--source", str(tmp_path / "more"), "--lake", lake]) == 0
    assert "nothing new" in capsys.readouterr().out

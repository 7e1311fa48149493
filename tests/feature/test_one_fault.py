"""One damaged batch reads the same wherever it is shown: field, expected, found, and place."""

from __future__ import annotations

import html
import json
from pathlib import Path

import duckdb
import pytest

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.program import main
from tests.support import corpus

HOSTILE = corpus.ROOT / "hostile"
# One of each kind: a checksum, a header, a codec, a payload, and fields of a record
CASES = (
    *(
        "bitflip-payload-v2-none",
        "bitflip-crc-v0-none",
        "codec-5",
        "gzip-corrupt-head",
        "count-negative-none",
    ),
    *("count-too-small-none", "key-length-beyond-none", "header-count-huge-none", "header-key-null-none"),
    *("value-length-beyond-zstd", "control-short-key", "magic-3"),
)


def rows(lake: Path, statement: str) -> list[dict[str, object]]:
    database: duckdb.DuckDBPyConnection = connect(str(lake))
    return database.sql(statement).to_arrow_table().to_pylist()


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_batch_reads_the_same_in_all_places(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, lake, report = HOSTILE / f"{case}-0", tmp_path / "lake", tmp_path / "report"
    main(["decode", "--source", str(source), "--lake", str(lake)])
    (damage,) = rows(lake, "SELECT position, detail, reason FROM quarantine")
    detail, position = str(damage["detail"]), damage["position"]
    assert ": expected " in detail
    batches = rows(lake, f"SELECT error FROM batches WHERE position = {position} AND status <> 'ok'")
    assert [batch["error"] for batch in batches] in ([detail], [])
    capsys.readouterr()

    main(["scan", "--json", str(source)])
    (log,) = json.loads(capsys.readouterr().out)["logs"]
    assert [(one["position"], one["detail"]) for one in log["damages"]] == [(position, detail)]

    (segment,) = source.glob("*.log")
    main(["inspect", "--json", str(segment)])
    inspected = json.loads(capsys.readouterr().out)
    assert (inspected["position"], inspected["problem"]) == (position, detail)

    main(["quality-report", "--lake", str(lake), "--output", str(report)])
    assert detail in html.unescape(report.joinpath("quality.html").read_text())

    capsys.readouterr()
    main(["dump", "--print-data-log", "--files", str(segment)])
    said = capsys.readouterr().err
    # As Kafka's tool, it prints a batch whose checksum is wrong or whose magic is higher, and stops at others
    assert detail in said or damage["reason"] in ("crc_mismatch", "unknown_magic")

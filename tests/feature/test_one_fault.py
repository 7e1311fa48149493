"""One damaged batch reads the same wherever it is shown: field, expected, found, and place."""

from __future__ import annotations

import html
import json

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


Shown = tuple[duckdb.DuckDBPyConnection, str]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """By case, a lake that has it and the text of the page on its quality, which shows eight segments."""
    made: dict[str, Shown] = {}
    for cases in (CASES[::2], CASES[1::2]):
        folder = tmp_path_factory.mktemp("shown")
        sources = [word for case in cases for word in ("--source", str(HOSTILE / f"{case}-0"))]
        main(["decode", *sources, "--lake", str(folder / "lake")])
        main(["quality-report", "--lake", str(folder / "lake"), "--output", str(folder / "report")])
        page = html.unescape(folder.joinpath("report", "quality.html").read_text())
        made |= dict.fromkeys(cases, (connect(folder / "lake"), page))
    return made


def rows(lake: duckdb.DuckDBPyConnection, statement: str) -> list[dict[str, object]]:
    return lake.sql(statement).to_arrow_table().to_pylist()


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_batch_reads_the_same_in_all_places(
    case: str, shown: dict[str, Shown], capsys: pytest.CaptureFixture[str]
) -> None:
    (lake, page), source = shown[case], HOSTILE / f"{case}-0"
    (damage,) = rows(lake, f"SELECT position, detail, reason FROM quarantine WHERE topic = '{case}'")
    detail, position = str(damage["detail"]), damage["position"]
    assert ": expected " in detail
    of_batch = f"topic = '{case}' AND position = {position} AND status <> 'ok'"
    batches = rows(lake, f"SELECT error FROM batches WHERE {of_batch}")
    assert [batch["error"] for batch in batches] in ([detail], [])
    assert detail in page
    capsys.readouterr()

    main(["scan", "--json", str(source)])
    (log,) = json.loads(capsys.readouterr().out)["logs"]
    assert [(one["position"], one["detail"]) for one in log["damages"]] == [(position, detail)]

    (segment,) = source.glob("*.log")
    main(["inspect", "--json", str(segment)])
    inspected = json.loads(capsys.readouterr().out)
    assert (inspected["position"], inspected["problem"]) == (position, detail)

    main(["dump", "--print-data-log", "--files", str(segment)])
    said = capsys.readouterr().err
    # As Kafka's tool, it prints a batch whose checksum is wrong or whose magic is higher, and stops at others
    assert detail in said or damage["reason"] in ("crc_mismatch", "unknown_magic")

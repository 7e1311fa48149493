"""``export``: one topic in one file, as programs that know nothing of Kafka read it."""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from python_calamine import CalamineWorkbook

from kafka_log_lake import connect
from kafka_log_lake.pipelines.cli.errors import UserError
from kafka_log_lake.pipelines.cli.program import main
from kafka_log_lake.pipelines.export import workbook
from kafka_log_lake.pipelines.export.workbook import CellsCut, write_xlsx
from tests.support import logs
from tests.support.docs import ROOT, blocks
from tests.support.segment_maker import Batch, Record, flip

SHOP = Path(__file__).parents[1] / "data/shop"
# A folder may be named so, and a shell would run it
NAMED_BADLY = "$(touch pwned);`id` 'x' \"=1\""
VALUES = (
    *(b"=HYPERLINK(1)", b"+1+1", b"-2+3", b"@SUM(1)", b"\t=1", b"'=1", "\uff1d1".encode(), b"plain"),
    *(b"\x1b[31mred\x07\x00", "\u202eturned".encode(), b"two\r\nlines", b'a,"b"', b"", None, b"-12.5"),
    *(b"\xff\xfe\x00", b"\xed\xa0\x80", b'{"a": [1, {"b": null}]}', b"_x0041_", b"x" * 40_000),
)
# What a cell shows of them; None is an empty one
CELLS = (
    *("=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(1)", "\t=1", "'=1", "\uff1d1", "plain"),
    *("\\x1b[31mred\\x07\\x00", "\\u202eturned", "two\r\nlines", 'a,"b"', "", None, "-12.5"),
    *(None, None, '{"a": [1, {"b": null}]}', "_x0041_"),
)
GUARDED = range(7)  # of VALUES: in CSV an apostrophe stands before them


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("export")
    records = tuple(
        Record(key=b"k%d" % i, value=one, headers=((b"h", b"=1"),)) for i, one in enumerate(VALUES)
    )
    logs.put(root / "logs" / f"{NAMED_BADLY}-0", 0, Batch(records).encode())
    logs.put(root / "logs/empty-0", 0)
    logs.put(root / "logs/txn-0", 0, logs.data(0, 7), logs.marker(1, 7, commit=False), logs.batch(2))
    logs.put(root / "logs/txn-0", 5, flip(logs.batch(5), 70))
    for folder in ("orders-0", "orders-1", "orders-2", "_schemas-0"):
        shutil.copytree(SHOP / folder, root / "logs" / folder)
    assert main(["decode", "--source", str(root / "logs"), "--lake", str(root / "lake")]) == 0
    return str(root / "lake")


def export(lake: str, topic: str, path: Path, *more: str) -> int:
    return main(["export", "--lake", lake, "--topic", topic, "--output", str(path), *more])


def sheet(path: Path) -> list[list[Any]]:
    return CalamineWorkbook.from_path(str(path)).get_sheet_by_name("records").to_python(skip_empty_area=False)


def test_hostile_texts_are_texts_in_a_workbook(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "made.xlsx"
    assert export(lake, NAMED_BADLY, file) == 0
    names, *rows = sheet(file)
    assert names[:5] == ["partition", "offset", "timestamp", "key", "value"]
    value, encoded = names.index("value"), names.index("value_bytes")
    assert [row[1] for row in rows] == list(range(len(VALUES)))
    assert [row[value] or None for row in rows[:-1]] == [cell or None for cell in CELLS]
    assert [row[encoded] for row in rows if row[encoded]] == ["//4A", "7aCA"]
    assert rows[0][2] == "2023-11-14T22:13:20.000000Z"
    # A cell of Excel holds no more, and the file says so, and so does the command
    assert rows[-1][value].endswith("... (cut: 40,000 characters)")
    assert len(rows[-1][value]) == 32_767
    assert "1 cell longer than the 32,767 characters" in capsys.readouterr().err
    assert not Path("pwned").exists()


def test_hostile_texts_are_no_formulas_in_csv(lake: str, tmp_path: Path) -> None:
    file = tmp_path / "made.csv"
    assert export(lake, NAMED_BADLY, file) == 0
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["value"] for row in rows[:-1]] == [
        f"'{cell}" if at in GUARDED else cell or "" for at, cell in enumerate(CELLS)
    ]
    assert rows[-1]["value"] == "x" * 40_000
    assert rows[0]["timestamp"] == "2023-11-14T22:13:20.000000Z"
    assert json.loads(rows[0]["headers"]) == [{"key": "h", "value": "PTE="}]
    assert [row["is_tombstone"] for row in rows] == [str(one is None).lower() for one in VALUES]


def test_a_typed_topic_in_each_format(lake: str, tmp_path: Path) -> None:
    """The same records in all: those of the typed table, which no transaction hides."""
    files = {form: tmp_path / f"orders.{form}" for form in ("parquet", "csv", "xlsx", "duckdb")}
    for file in files.values():
        assert export(lake, "orders", file) == 0
    expected = connect(lake).sql(
        "SELECT t.partition, t.offset, t.value.item AS item, t.value.amount AS amount FROM typed.orders t "
        "SEMI JOIN committed_records c ON c.topic = 'orders' AND c.partition = t.partition "
        "AND c.offset = t.offset ORDER BY ALL"
    )
    rows = expected.fetchall()
    assert len(rows) > 100
    with duckdb.connect(str(files["duckdb"]), read_only=True) as made:
        listed = 'SELECT partition, "offset", value.item, value.amount FROM orders ORDER BY ALL'
        assert made.sql(listed).fetchall() == rows
    table = pq.read_table(files["parquet"])
    assert table.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert [(*row,) for row in table.select(["partition", "offset"]).to_pandas().itertuples(index=False)] == [
        row[:2] for row in rows
    ]
    with files["csv"].open(newline="", encoding="utf-8") as lines:
        found = [(int(r["partition"]), int(r["offset"]), r["value.item"]) for r in csv.DictReader(lines)]
    assert found == [row[:3] for row in rows]
    names, *cells = sheet(files["xlsx"])
    amounts = [row[names.index("value.amount")] for row in cells]
    assert amounts == pytest.approx([float(row[3]) for row in rows])
    assert {"key_error", "value_error", "key_bytes", "value_bytes"} <= {*names} & {*table.column_names}


def test_what_is_left_out_is_said(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(lake, "txn", tmp_path / "t.parquet") == 0
    assert pq.read_table(tmp_path / "t.parquet").column("offset").to_pylist() == [2, 3, 4]
    said = capsys.readouterr().err
    assert "3 records of txn written" in said
    assert "left out: 1 record of aborted" in said
    assert "1 damaged range of txn" in said


@pytest.mark.parametrize("form", ["parquet", "csv", "xlsx", "duckdb"])
def test_an_empty_topic_is_a_file_with_its_columns(lake: str, tmp_path: Path, form: str) -> None:
    file = tmp_path / "empty"
    assert export(lake, "empty", file, "--format", form) == 0
    readers = {
        "parquet": lambda: pq.read_table(file).column_names,
        "csv": lambda: file.read_text().strip().split(","),
        "xlsx": lambda: sheet(file)[0],
        "duckdb": lambda: duckdb.connect(str(file)).sql("FROM empty").columns,
    }
    assert readers[form]()[:4] == ["partition", "offset", "timestamp", "key"]


def test_a_file_that_is_there_stays(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("parquet", "csv", "xlsx", "duckdb"):
        file = tmp_path / f"kept.{form}"
        file.write_text("mine")
        assert export(lake, "txn", file) == 2
        assert "add --overwrite" in capsys.readouterr().err
        assert file.read_text() == "mine"
        assert export(lake, "txn", file, "--overwrite") == 0
        assert file.stat().st_size > 10
    assert sorted(one.suffix for one in tmp_path.iterdir()) == [".csv", ".duckdb", ".parquet", ".xlsx"]


def test_a_database_replaces_no_device(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert export(lake, "txn", pipe, "--format", "duckdb") == 2
    assert capsys.readouterr().err.endswith("is no file, and a database of DuckDB needs one\n")
    assert [*tmp_path.iterdir()] == [pipe]
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--topic", "order"], "the lake has no topic order; did you mean orders?"),
        ([], "--topic is missing"),
        (["--topic", "txn", "--output", "a.txt"], "must end in one of"),
        (["--topic", "txn", "--output", "no/folder.csv"], "there is no folder"),
    ],
)
def test_a_wrong_call_is_one_line(
    lake: str,
    argv: list[str],
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "--lake", lake, *argv]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert line in said
    assert not list(tmp_path.iterdir())


def test_without_a_file_the_topic_names_it(lake: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "--lake", lake, "--topic", NAMED_BADLY, "--format", "csv"]) == 0
    (made,) = tmp_path.iterdir()
    assert made.name == "__touch_pwned___id___x____1_.csv"


def test_the_masked_file_of_the_faq_names_no_person(lake: str, tmp_path: Path, monkeypatch: Any) -> None:
    (commands,) = blocks(ROOT / "docs/faq.md", "sh")
    first, second = commands.splitlines()
    assert first.startswith("SECRET=")
    (tmp_path / "lake").symlink_to(lake)
    monkeypatch.chdir(tmp_path)
    # a session of Spark in this process would choose the other engine, as it does in a notebook
    assert main([*shlex.split(second.replace("$SECRET", "of mine"))[1:], "--engine", "duckdb"]) == 0
    masked = pq.read_table("orders.parquet")
    assert masked.column_names == ["timestamp", "customer", "item", "amount"]
    persons = connect(lake).sql("SELECT value.customer_id::VARCHAR, value.item FROM typed.orders").fetchall()
    hashed = [(sha256(f"of mine{person}".encode()).hexdigest(), item) for person, item in persons]
    assert sorted(zip(*masked.select(["customer", "item"]).to_pydict().values(), strict=True)) == sorted(
        hashed
    )


def test_the_person_whom_the_faq_deletes_is_gone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    decode = ["decode", "--source", str(SHOP), "--lake", "lake"]
    of_person = (
        "SELECT (SELECT count(*) FROM records WHERE topic = 'customers' AND CAST(key AS VARCHAR) = '6'),"
    )
    of_person += " (SELECT count(*) FROM typed.customers WHERE key = '6'), (SELECT count(*) FROM records)"
    assert main(decode) == 0
    (before,) = connect("lake").sql(of_person).fetchall()
    (code,) = blocks(ROOT / "docs/faq.md", "python")
    exec(code, {})
    assert main(["maintain", "--lake", "lake", "--vacuum-hours", "0"]) == 0
    assert main(decode) == 0
    (after,) = connect("lake").sql(of_person).fetchall()
    assert before[0] == before[1] == 3
    assert after == (0, 0, before[2] - 3)


def test_records_that_the_typed_table_lacks_are_no_loss(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behind = str(tmp_path / "lake")
    shutil.copytree(lake, behind)
    logs.put(tmp_path / "orders-0", 1_000_000, logs.batch(1_000_000))
    assert main(["decode", "--source", str(tmp_path / "orders-0"), "--lake", behind, "--no-typed"]) == 0
    capsys.readouterr()
    assert export(behind, "orders", tmp_path / "o.csv") == 2
    assert "3 records of orders not in its typed table" in capsys.readouterr().err
    assert export(behind, "orders", tmp_path / "o.csv", "--values", "text") == 0
    assert (tmp_path / "o.csv").read_text().splitlines()[-1].split(",")[1] != ""


def test_numbers_and_times_of_a_workbook_are_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {
        "big": pa.array([2**63 - 1, 10**15 - 1, None]),
        "float": pa.array([0.1, float("nan"), float("-inf")]),
        "decimal": pa.array([None, "1.50", "-99999999999999999999.99"]).cast(pa.decimal128(38, 2)),
        "at": pa.array([datetime(2024, 2, 29, 1, 2, 3, 4, UTC), None, None], pa.timestamp("us", "UTC")),
        "nested": pa.array([{"a": [1, None], "=b": "=1"}, None, {"a": [], "=b": "\x07"}]),
        "wide": pa.array(["\U0001f600" * 20_000, "\ufffe\uffff", "ok"]),
    }
    batch = pa.record_batch(columns)
    cut = CellsCut()
    with (tmp_path / "w.xlsx").open("wb") as file:
        assert write_xlsx(file, batch.schema, [batch], cut) == 3
    names, *rows = sheet(tmp_path / "w.xlsx")
    found = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    assert found["big"] == ["9223372036854775807", 10**15 - 1, ""]
    assert found["float"] == [0.1, "nan", "-inf"]
    assert found["decimal"] == ["", 1.5, "-99999999999999999999.99"]
    assert found["at"][0] == "2024-02-29T01:02:03.000004Z"
    assert json.loads(found["nested"][0]) == {"a": [1, None], "=b": "=1"}
    assert cut.count == 1
    assert found["wide"][0].endswith("(cut: 20,000 characters)")
    assert len(found["wide"][0].encode("utf-16-le")) // 2 <= 32_767
    monkeypatch.setattr(workbook, "ROWS", 3)
    with (tmp_path / "w.xlsx").open("wb") as file, pytest.raises(UserError, match="use --format csv"):
        write_xlsx(file, batch.schema, [batch], cut)

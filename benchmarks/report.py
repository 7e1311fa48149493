"""Results: stored as JSON part by part, printed as one table, drawn as one picture."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Scale, Spread, machine, say, short, versions

LATEST = Path(__file__).with_name("latest.json")
PLOT = Path(__file__).with_name("latest.png")
TINY = Path(__file__).with_name("work") / "tiny.json"


def store(scale: str = "") -> Path:
    """Where results go: those of the tiny scale only show that the scripts run, and stay out of the way."""
    return TINY if scale == "tiny" else LATEST


def load(path: Path = LATEST) -> dict[str, Any]:
    """Results by part; empty where nothing was measured yet."""
    return json.loads(path.read_text())["parts"] if path.exists() else {}


def run_part(part: str, measure: Callable[[Scale], list[Row]], scale: Scale) -> None:
    """Measure one part and put its rows in the place of those that were there."""
    say(f"{part} ({scale.name})")
    about: dict[str, object] = {"size": scale.name, "machine": machine(), "versions": versions()}
    began = time.monotonic()
    rows = measure(scale)
    about["seconds"] = round(time.monotonic() - began, 1)
    path = store(scale.name)
    parts = load(path) | {part: {**about, "rows": [_rounded(row.to_dict()) for row in rows]}}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"parts": parts}, indent=1) + "\n")


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def print_table(parts: dict[str, Any], only: Sequence[str]) -> None:
    """One line a row: ours, the peer, the ratio with its spread, the goal and whether it is met."""
    lines: list[tuple[str, ...]] = [("", "ours", "peer", "", "ratio", "goal", "")]
    for part in only:
        if part not in parts:
            continue
        lines.append((part.upper(), "", "", "", "", "", ""))
        lines += [_cells(row) for row in parts[part]["rows"]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for part in only:
        if part in parts:
            about = parts[part]
            at = about["machine"]
            print(
                f"{part}: {about['size']}, {about['seconds']:.0f} s, {at['cores']} x {at['cpu']}, "
                f"load before {at['load_before']}"
            )


def _spread(stored: dict[str, float] | None) -> Spread | None:
    return None if stored is None else Spread(**stored)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    theirs, ratio, ours = _spread(row["theirs"]), _spread(row["ratio"]), _spread(row["ours"])
    assert ours is not None
    goal = "" if row["goal"] is None else f"{'>=' if row['at_least'] else '<='} {short(row['goal'])}"
    verdict = {None: "", True: "met", False: "MISSED"}[row["met"]]
    return (
        f"  {row['name']}",
        f"{short(ours.median)} {row['unit']}" if ratio else f"{ours.text()} {row['unit']}",
        row["peer"],
        f"{short(theirs.median)} {row['unit']}" if theirs else "",
        ratio.text() if ratio else "",
        goal,
        " ".join(filter(None, [verdict, row["note"]])),
    )


def draw(parts: dict[str, Any], path: Path = PLOT) -> None:
    """How many times the peer's speed ours is: a bar a row, with the spread, the goal and both figures."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = [row for part in _DRAWN for row in parts.get(part, {}).get("rows", []) if _is_drawn(row)]
    if not rows:
        return
    figure, axis = plt.subplots(figsize=(8, 1.2 + 0.36 * len(rows)), layout="constrained")
    bars = [_speed(row) for row in rows]
    whiskers = [[b.median - b.low for b in bars], [b.high - b.median for b in bars]]
    axis.barh(range(len(rows)), [b.median for b in bars], 0.6, xerr=whiskers, color=_OURS, ecolor="#555555")
    axis.axvline(1, color="black", linewidth=1)
    goals = [(_goal(row), place) for place, row in enumerate(rows) if row["goal"] is not None]
    axis.plot(*zip(*goals, strict=True), "D", color="#d62728", markersize=4, label="goal")
    for place, (row, bar) in enumerate(zip(rows, bars, strict=True)):
        end = max(bar.high, 1, _goal(row) * 1.05)
        axis.text(end, place, f"  {bar.median:.2f}x: {_figures(row)}", va="center", fontsize=7)
    axis.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.7 * max(*(b.high for b in bars), *(goal for goal, _ in goals)))
    about = next(parts[part] for part in _DRAWN if part in parts)
    at = f"{about['machine']['cores']} cores, {about['machine']['cpu']}, size {about['size']}"
    axis.set_title(f"speed of ours, the peer's being 1 ({at})", fontsize=9, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=8, loc="lower right", frameon=False)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


_DRAWN = ("kernels", "job", "broker")
_OURS = "#1f77b4"


def _is_drawn(row: dict[str, object]) -> bool:
    return row["goal"] is not None and row["ratio"] is not None and row["unit"] in ("MB/s", "s")


def _speed(row: dict[str, Any]) -> Spread:
    ratio = Spread(**row["ratio"])
    if row["at_least"]:
        return ratio
    return Spread(1 / ratio.median, 1 / ratio.high, 1 / ratio.low)


def _goal(row: dict[str, Any]) -> float:
    return float(row["goal"] if row["at_least"] else 1 / row["goal"])


def _figures(row: dict[str, Any]) -> str:
    unit = row["unit"]
    ours, theirs = short(row["ours"]["median"]), short(row["theirs"]["median"])
    return f"{ours} {unit}, {row['peer']} {theirs} {unit}"

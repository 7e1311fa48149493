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
    about: dict[str, Any] = {"size": scale.name, "machine": machine(), "versions": versions()}
    began = time.monotonic()
    rows = measure(scale)
    about["seconds"] = round(time.monotonic() - began, 1)
    path = store(scale.name)
    parts = load(path) | {part: {**about, "rows": [_rounded(row.to_dict()) for row in rows]}}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"parts": parts}, indent=1) + "\n")


def _rounded(value: Any) -> Any:
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
    """Bars of ours against the peers: the kernels in MB/s, the job in seconds."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels = [(p, t) for p, t in _PANELS.items() if _drawn(parts, p)]
    if not panels:
        return
    counts = [len(_drawn(parts, part)) for part, _ in panels]
    figure, axes = plt.subplots(
        len(panels),
        1,
        figsize=(8, 1 + 0.55 * sum(counts)),
        squeeze=False,
        height_ratios=counts,
        layout="constrained",
    )
    for axis, (part, title) in zip(axes[:, 0], panels, strict=True):
        _panel(axis, _drawn(parts, part), title, logarithmic=part == "kernels")
    at = parts[panels[0][0]]["machine"]
    figure.suptitle(f"{at['cores']} cores, {at['cpu']}", fontsize=9)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


_PANELS = {
    "kernels": "bytes to Arrow columns, one thread, checksums checked (MB/s, longer is better)",
    "job": "source to committed Delta tables (s, shorter is better)",
}


def _drawn(parts: dict[str, Any], part: str) -> list[dict[str, Any]]:
    unit = "MB/s" if part == "kernels" else "s"
    rows = parts.get(part, {}).get("rows", [])
    return [r for r in rows if r["theirs"] and r["unit"] == unit and not r["name"].startswith("floor")]


def _panel(axis: Any, rows: list[dict[str, Any]], title: str, logarithmic: bool) -> None:
    places = range(len(rows))
    for offset, key, colour in ((-0.2, "ours", "#1f77b4"), (0.2, "theirs", "#bbbbbb")):
        bars = axis.barh(
            [place + offset for place in places], [r[key]["median"] for r in rows], 0.38, color=colour
        )
        names = ["ours" if key == "ours" else r["peer"] for r in rows]
        texts = [f"{name} {short(r[key]['median'])}" for name, r in zip(names, rows, strict=True)]
        axis.bar_label(bars, texts, padding=3, fontsize=7)
    axis.set_yticks(places, [f"{r['name']}\n{r['ratio']['median']:.2f}x" for r in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_title(title, fontsize=9, loc="left")
    axis.margins(x=0.25)
    if logarithmic:
        axis.set_xscale("log")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)

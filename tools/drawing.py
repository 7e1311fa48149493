"""Draws a picture as SVG: rectangles, lines and texts on a white card, which reads on dark pages too."""

from __future__ import annotations

from html import escape

WIDTH = 960
INK, DIM, LINE = "#1c2530", "#5b6775", "#c3cad2"
_STYLE = (
    "text{font:13px system-ui,'Segoe UI','DejaVu Sans',sans-serif}"
    ".m{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".s{font-size:12px}.b{font-weight:600;font-size:15px}"
)


class Drawing:
    """A picture of WIDTH pixels that grows downwards. Positions are pixels from its upper left corner."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str, edge: str = LINE) -> None:
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{edge}"/>'
        )

    def line(self, x: float, y: float, to_x: float, to_y: float, colour: str = INK, width: float = 1) -> None:
        self._parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{colour}" '
            f'stroke-width="{width:g}"/>'
        )

    def text(
        self, x: float, y: float, words: str, kind: str = "", anchor: str = "start", colour: str = INK
    ) -> None:
        """Writes words whose baseline is at y. kind: m for bytes, s for small, b for a heading."""
        shown = f' class="{kind}"' if kind else ""
        at = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{shown}{at} fill="{colour}">{escape(words)}</text>')

    def svg(self, height: float) -> str:
        """Returns the file's text."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">'
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style>"
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8" fill="#fff" '
            f'stroke="{LINE}"/>'
        )
        return "\n".join([head, *self._parts, "</svg>\n"])

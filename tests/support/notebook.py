"""Runs a notebook with values of its widgets: ``python -m tests.support.notebook PATH NAME=VALUE...``."""

from __future__ import annotations

import runpy
import sys


class Widgets:
    """The part of ``dbutils`` that the notebooks use, with values that somebody typed in."""

    def __init__(self, **values: str) -> None:
        self.values = values
        self.defaults: dict[str, str] = {}
        self.widgets = self

    def text(self, name: str, default: str) -> None:
        self.defaults[name] = default

    def get(self, name: str) -> str:
        assert name in self.defaults, f"the widget {name} was read before it was made"
        return self.values.get(name, self.defaults[name])


def main(path: str, *values: str) -> None:
    widgets = Widgets(**dict(value.split("=", 1) for value in values))
    runpy.run_path(path, init_globals={"dbutils": widgets, "display": lambda figure: None})


if __name__ == "__main__":
    main(*sys.argv[1:])

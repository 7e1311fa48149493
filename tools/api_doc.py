"""Writes what a name of the package does, from its docstring: ``described("find")`` gives Markdown.

It reads the sources: what the package exports is imported when it is first asked for.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_ITEM = re.compile(r"^(\*{0,2}\w[\w, .*]*): ", re.MULTILINE)


def _exports() -> dict[str, tuple[str, str]]:
    """Returns the module and the attribute of each name that the package exports."""
    tree = ast.parse((ROOT / "kafka_log_lake" / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_EXPORTS":
            found: dict[str, tuple[str, str]] = ast.literal_eval(node.value)
            return found
    raise ValueError("kafka_log_lake has no _EXPORTS")


def _definition(module: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    path = ROOT / "kafka_log_lake" / (module.removeprefix("kafka_log_lake.").replace(".", "/") + ".py")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
    raise ValueError(f"{module} defines no {name}")


def _signature(name: str, node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {name}"
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{name}({ast.unparse(node.args)}){result}"
    if len(line) <= 90:
        return line
    arguments = re.sub(r", (?=[\w*]+(?::|=|, |$))", ",\n    ", ast.unparse(node.args))
    return f"{name}(\n    {arguments},\n){result}"


def _marked(text: str) -> str:
    """Returns a docstring as Markdown: sections in bold, their items as a list."""
    parts = _SECTION.split(inspect.cleandoc(text))
    lines = [parts[0].replace("``", "`").strip()]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        items = re.sub(r"\n    +", " ", body.strip()).replace("``", "`")
        listed = _ITEM.sub(r"- `\1`: ", items)
        lines += [f"**{title}**", listed]
    return "\n\n".join(lines)


def described(name: str) -> str:
    """Returns the heading, the signature and the docstring of a name, as Markdown."""
    module, attribute = _exports()[name]
    node = _definition(module, attribute)
    signature = textwrap.dedent(_signature(name, node))
    text = _marked(ast.get_docstring(node) or "")
    return f"## {name}\n\n```python\n{signature}\n```\n\n{text}\n"

"""Mends each page of the site while mkdocs makes it: it loads nothing from another host.

mkdocs calls these functions by their names, also where mike runs it.
"""

from __future__ import annotations

import re

# Pages opened as files search without the network: docs/file_worker.js takes the place of the theme's script
_SHIM = "https://unpkg.com/iframe-worker/shim"
_LOADED = re.compile(
    r'<script[^>]+src="?https?:|<link[^>]+rel="?stylesheet"?[^>]+href="?https?:|<img[^>]+src="?https?:'
)


def on_post_page(output: str, **context: object) -> str:
    """Returns the page with our script; ends the build where it loads something from another host."""
    output = output.replace(_SHIM, "file_worker.js")
    if found := _LOADED.search(output):
        raise SystemExit(f"{context['page']} loads something from another host: {found[0]}")
    return output


def on_post_template(output_content: str, template_name: str, **_: object) -> str:
    """Does the same for pages that no Markdown is of, such as 404.html."""
    return (
        on_post_page(output_content, page=template_name)
        if template_name.endswith(".html")
        else output_content
    )

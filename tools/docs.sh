#!/usr/bin/env bash
# The site of the documentation, in build/site. Called by `make docs`; its packages lie in build/docs-env alone.
set -euo pipefail
cd "$(dirname "$0")/.."
env=build/docs-env
if ! cmp -s docs/requirements.lock "$env/requirements.lock"; then
    "${PYTHON:-python3}" -m venv --clear "$env"
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.lock
    cp docs/requirements.lock "$env/requirements.lock"
fi
"$env/bin/python" -m tools.site
NO_MKDOCS_2_WARNING=1 "$env/bin/mkdocs" build --strict --quiet
# Pages opened as files search without the network: docs/file_worker.js takes the place of the theme's script
sed -i 's#https://unpkg.com/iframe-worker/shim#file_worker.js#' build/site/*.html
if grep -lE '<script[^>]+src="https?:|<link[^>]+rel="stylesheet"[^>]+href="https?:|<img[^>]+src="https?:' build/site/*.html; then
    echo "docs: these pages load something from another host" >&2
    exit 1
fi
echo "build/site/index.html"

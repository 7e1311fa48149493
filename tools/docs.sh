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
echo "build/site/index.html"

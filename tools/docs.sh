#!/usr/bin/env bash
# The site of the documentation: `make docs` makes build/site; `make docs-version` (docs.sh version) adds it to
# those of earlier releases, in the branch gh-pages. Its packages lie in build/docs-env alone.
set -euo pipefail
cd "$(dirname "$0")/.."
env=build/docs-env
if ! cmp -s docs/requirements.lock "$env/requirements.lock"; then
    "${PYTHON:-python3}" -m venv --clear "$env"
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.lock
    cp docs/requirements.lock "$env/requirements.lock"
fi
.venv/bin/python -m tools.site
export NO_MKDOCS_2_WARNING=1 PATH="$PWD/$env/bin:$PATH"
if [ "${1:-}" = version ]; then
    version=$(.venv/bin/python -c 'import kafka_log_lake; print(kafka_log_lake.__version__)')
    mike deploy --update-aliases "$version" latest
    mike set-default latest
    echo "branch gh-pages: $(git show gh-pages:versions.json | grep -c '"version"') versions, latest is $version"
else
    mkdocs build --strict --quiet
    echo "build/site/index.html"
fi

#!/usr/bin/env bash
# The environment: .venv from requirements.lock. Called by `make setup`.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=.venv

fail() { echo "setup: $*" >&2; exit 1; }

[ ! -L "$venv" ] || fail "$venv is a link, and setup would change what it leads to: remove it, then run make setup"

command -v "$python" >/dev/null ||
    fail "no $python found: install Python 3.11 or newer, or name one: make setup PYTHON=python3.12"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version 2>&1) is too old: install Python 3.11 or newer, or name one: make setup PYTHON=python3.12"
problem=$("$python" -c 'import sys; sys.path.insert(0, "pipelines/cli"); import java; print(java.java_problem() or "")')
[ -z "$problem" ] || fail "$problem"

if ! "$venv/bin/python" -c '' 2>/dev/null; then
    "$python" -m venv --clear "$venv" >/dev/null ||
        fail "$python cannot make an environment: install its venv module (for example python3-venv)"
fi
echo "setup: installing the packages of requirements.lock into $venv" >&2
install() { "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r "$1"; }
# uv installs in a third of pip's time. It does not read which indexes pip is told to use; where it fails, pip says why
by_uv() {
    "$venv/bin/python" -m pip config list | grep index >&2 && return 1
    install <(sed -n '/^uv==/,/[^\\]$/p' requirements.lock) &&
        "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r requirements.lock
}
by_uv 2>/dev/null || install requirements.lock

# The packages of this checkout, importable from any folder and notebook of this environment
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for package in kafka_log_lake pyspark_kafka_log; do
    [ -L "$packages/$package" ] || [ ! -e "$packages/$package" ] ||
        fail "$venv has another kafka-log-lake: $venv/bin/python -m pip uninstall kafka-log-lake, then make setup"
    ln -sfn "$PWD/$package" "$packages/$package"
done
# The command of this checkout. Where a path has blanks, a first line of "#!" can't hold it
bin=$(cd "$venv/bin" && pwd)
cat >"$bin/kafka-log-lake" <<END
#!/bin/sh
'''exec' "$bin/python" "\$0" "\$@"
' '''
from kafka_log_lake.__main__ import script
script()
END
chmod +x "$bin/kafka-log-lake"

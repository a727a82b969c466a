#!/bin/sh
# Installs Quorate from this checkout, and what it needs by hash, into a virtual environment: install.sh FOLDER.
# The image is made by it, and tests run it without one. Python is $PYTHON, else python3; the package index is the one that pip is set up to ask.
set -eu
target=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT

# The programs that make the wheel are not installed with it.
"${PYTHON:-python3}" -m venv "$wheels/build"
"$wheels/build/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r "$here/build-requirements.txt"
"$wheels/build/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$wheels" "$root"

"${PYTHON:-python3}" -m venv "$target"
"$target/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: --require-hashes -r "$here/requirements.txt"
"$target/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-index "$wheels"/quorate-*.whl
"$target/bin/python" -m pip check --quiet --disable-pip-version-check
"$target/bin/python" -m pip uninstall --quiet --yes --disable-pip-version-check pip setuptools
# By content, not by time: two builds are alike, and a file system that can't be written to needs no other.
"$target/bin/python" -m compileall -q --invalidation-mode unchecked-hash "$target/lib"

#!/bin/sh
# Installs krepair with its locked requirements into a folder of its own, for every user of the machine:
#
#   sh tools/install_into.sh /opt/krepair        # and with a Java runtime: sh tools/install_into.sh /opt/krepair yes
#
# Run as root; what it writes belongs to root and can be read by all. PYTHON is any Python 3.11 or later with venv.
set -eu
target=$1
java=${2:-no}
source=$(cd "$(dirname "$0")/.." && pwd)
umask 022
"${PYTHON:-python3}" -m venv --clear "$target"
pip() { "$target/bin/python" -m pip --disable-pip-version-check --quiet install --no-cache-dir --no-deps "$@"; }
pip --require-hashes -r "$source/requirements-build.lock"
pip --require-hashes --no-build-isolation -r "$source/requirements.lock"
if [ "$java" = yes ]; then pip --require-hashes -r "$source/requirements-java.lock"; fi
pip --no-build-isolation "$source"
# What only developers use.
"$target/bin/python" -m pip --disable-pip-version-check --quiet uninstall --yes \
  mypy ruff hypothesis pytest pytest-timeout pytest-xdist import-linter confluent-kafka
"$target/bin/python" -m compileall -q "$target/lib" || true # some packages carry files for other versions of Python
"$target/bin/krepair" warm >/dev/null # says on stderr that it compiles

#!/usr/bin/env bash
# Writes scripts/lock/: every file that `make` fetches, with its SHA-256, for Python 3.11 and newer on any platform.
#
#   scripts/lock.sh             after a change of pyproject.toml or of a version in a script; what need not change stays as it is
#   scripts/lock.sh --upgrade   the newest versions
#
#   build.txt    pip, and what builds packages that come as source
#   runtime.txt  the library with all that users install: `pip-audit -r` it; the components of the bill of materials
#   dev.txt      the development environment (scripts/make_venv.sh)
#   jvm.txt      the environment of the JVM reader (scripts/ensure_jvm.sh)
#   jars.sha256  what Maven fetches, as it lies in .cache now
#
# No line names an index, so that a mirror will do.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {  # compile FILE ARGUMENT...: reads what is asked for from stdin if an argument is -
  local file="scripts/lock/$1"
  shift
  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
    --no-annotate --output-file "$file" "$@"
}

compile build.txt - "$@" <<<'
pip
setuptools>=77'
compile dev.txt pyproject.toml --extra dev -c scripts/lock/build.txt "$@"
runtime=(cloud spark zookeeper redis dynamodb glue sketches metrics tracing server)
compile runtime.txt pyproject.toml "${runtime[@]/#/--extra=}" -c scripts/lock/dev.txt
compile jvm.txt - <<<"pyspark==$(sed -n 's/^SPARK=\([0-9.]*\).*/\1/p' scripts/ensure_jvm.sh)"

. scripts/tools/common.sh
LOCKING=1 scripts/ensure_tools.sh all
LOCKING=1 scripts/ensure_jvm.sh peers
fetched | sort -u >"$JARS"

#!/usr/bin/env bash
# Makes a virtual environment with the package (editable), every extra and the development tools, in the versions and with
# the files that scripts/lock/ names (scripts/lock.sh).
#
#   scripts/make_venv.sh FOLDER     PYTHON=... names the interpreter; otherwise the first of 3.11 or newer is taken
#   scripts/make_venv.sh FOLDER jvm     without the package: what scripts/lock/jvm.txt names
set -euo pipefail
cd "$(dirname "$0")/.."

VENV="${1:-.venv}" LOCK="${2:-dev}"
say() { echo "make_venv: $*" >&2; }
recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

apt() {  # apt PACKAGE: true when installed
  local sudo=()
  command -v apt-get >/dev/null 2>&1 && [ "${SYSTEM_PACKAGES:-yes}" != no ] || return 1
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null || return 1
    sudo=(sudo -n)
  fi
  say "installing $1 (apt-get)"
  "${sudo[@]}" apt-get update -qq >/dev/null 2>&1
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1" >/dev/null 2>&1
}

python=""
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
  if recent "$candidate"; then python="$candidate"; break; fi
done
if [ -z "$python" ]; then
  say "this needs Python 3.11 or newer and found $("${PYTHON:-python3}" --version 2>/dev/null || echo none); install one and name it: make PYTHON=python3.12 ..."
  exit 1
fi

# Debian keeps the parts that a venv needs in a package of its own.
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if ! { apt "python$version-venv" && "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; }; then
    say "$python cannot make virtual environments; install them (Debian, Ubuntu: python$version-venv) and run this again."
    exit 1
  fi
fi

[ -x "$VENV/bin/python" ] && recent "$VENV/bin/python" || { rm -rf "$VENV"; "$python" -m venv "$VENV"; }
say "installing scripts/lock/$LOCK.txt into $VENV (about 1 GB, most of it PySpark)"
# setuptools warns of folders beside the package, which are meant here (docs/architecture.md).
pip() { PYTHONWARNINGS=ignore "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation "$@"; }
for each in build "$LOCK"; do pip --require-hashes -r "scripts/lock/$each.txt"; done
[ "$LOCK" != dev ] || pip --no-deps --editable .

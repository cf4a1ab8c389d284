#!/usr/bin/env bash
# What the demo and the tests need beyond Python, put in place where that is possible; quiet when all is there.
#
#   scripts/ensure_tools.sh java   Java 17, for Spark (make demo); fails if there is none afterwards
#   scripts/ensure_tools.sh all    and the servers of the tests; what cannot be had is one sentence, and its tests skip
#                                  (or fail where CI=true)
#
# Servers go below .cache/tools, Java and compilers through apt-get if we are root or have sudo without a password.
set -uo pipefail
cd "$(dirname "$0")/.."

TOOLS="$PWD/.cache/tools"
LOG="$TOOLS/install.log"
VERSITYGW=v1.8.0   # tests/servers.py starts them with the flags of these versions
AZURITE=3.35.0
GO_MIN=1.22        # older ones cannot fetch the Go that versitygw asks for

mkdir -p "$TOOLS/bin"
exec 9>"$TOOLS/.lock"
flock 9            # two makes at once must not install over each other

say() { echo "ensure_tools: $*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

apt() {  # apt PACKAGE...: true when installed
  local sudo=()
  has apt-get || return 1
  if [ "$(id -u)" != 0 ]; then
    has sudo && sudo -n true 2>/dev/null || return 1
    sudo=(sudo -n)
  fi
  say "installing $* (apt-get)"
  if [ -z "${APT_UPDATED:-}" ]; then
    "${sudo[@]}" apt-get update -qq >>"$LOG" 2>&1
    APT_UPDATED=1
  fi
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >>"$LOG" 2>&1
}

java_version() {
  local java=java
  [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] && java="$JAVA_HOME/bin/java"
  has "$java" && "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}
go_version() { has go && go env GOVERSION 2>/dev/null | sed 's/^go//'; }
go_is_recent() { local found; found=$(go_version); [ -n "$found" ] && at_least "$found" "$GO_MIN"; }

ensure_java() {
  local found
  found=$(java_version)
  if [ "${found:-0}" -lt 17 ]; then
    apt openjdk-17-jre-headless || apt openjdk-21-jre-headless
    found=$(java_version)
  fi
  if [ "${found:-0}" -lt 17 ]; then
    say "Spark needs Java 17 or newer and found ${found:-none}; install it (Debian, Ubuntu: openjdk-17-jre-headless) and point JAVA_HOME at it."
    return 1
  fi
}

ensure_versitygw() {
  if [ -x "$TOOLS/bin/versitygw" ] || has versitygw; then return; fi
  if ! go_is_recent && has apt-cache &&
     at_least "$(apt-cache policy golang-go 2>/dev/null | sed -n 's/.*Candidate: *[0-9]*:\{0,1\}\([0-9.]*\).*/\1/p')" "$GO_MIN"; then
    apt golang-go
  fi
  if ! go_is_recent; then
    say "the S3 tests need versitygw, which is built with Go $GO_MIN or newer (found: $(go_version || true)); install Go from https://go.dev/dl and run this again."
    return
  fi
  say "building versitygw $VERSITYGW (some minutes, once)"
  GOBIN="$TOOLS/bin" go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW" >>"$LOG" 2>&1 ||
    say "versitygw could not be built; the reason is at the end of $LOG."
}

ensure_azurite() {
  if [ -x "$TOOLS/node_modules/.bin/azurite-blob" ] || has azurite-blob; then return; fi
  has npm || apt nodejs npm
  if ! has npm; then
    say "the Azure tests need Azurite, which comes by npm; install Node.js and run this again."
    return
  fi
  say "installing azurite $AZURITE (npm)"
  npm install --prefix "$TOOLS" --no-fund --no-audit --silent "azurite@$AZURITE" >>"$LOG" 2>&1 ||
    say "azurite could not be installed; the reason is at the end of $LOG."
}

case "${1:-all}" in
  java) ensure_java ;;
  all)
    ensure_java
    ensure_versitygw
    ensure_azurite
    true
    ;;
  *)
    say "say java or all"
    exit 2
    ;;
esac

# Shared by the install scripts, sourced: TOOLS and LOG are set, say, has, at_least and apt do what their names say.
# Each of the others defines packages_NAME, which prints the system's packages that ensure_NAME would install.
TOOLS="$PWD/.cache/tools"
LOG="${LOG:-$TOOLS/install.log}"
mkdir -p "$TOOLS/bin"

say() { echo "$(basename "$0" .sh): $*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

alone() {  # alone FILE: two makes at once must not install over each other
  has flock || return 0
  exec 9>"$1"
  flock 9
}

JARS="$PWD/scripts/lock/jars.sha256"

fetched() {  # prints the SHA-256 and name of each file that Maven has fetched
  find "$PWD/.cache/jvm/jars" "$TOOLS"/dynamodb/*/lib "$TOOLS/s3a/jars" -type f -exec sha256sum {} + | sed 's|  .*/|  |'
}

verified() {  # verified FOLDER: true if each of its files is one that scripts/lock.sh has seen; the folder goes if not
  local other
  [ -z "${LOCKING:-}" ] || return 0
  other=$(cd "$1" && sha256sum -- * | grep -vxFf "$JARS") || return 0
  say "not the files that scripts/lock/jars.sha256 names (scripts/lock.sh): $(echo "$other" | cut -d ' ' -f 3- | tr '\n' ' ')"
  rm -rf "$1"
  return 1
}

may_install() {  # whether apt can do anything: we are root or have sudo without a password, and nobody has said no
  has apt-get && [ "${SYSTEM_PACKAGES:-yes}" != no ] || return 1
  [ "$(id -u)" = 0 ] || { has sudo && sudo -n true 2>/dev/null; }
}

announce() {  # announce NAME...: says which packages of the system these tools will have installed, before any of them is
  local wanted
  wanted=$(for each in "$@"; do "packages_$each"; done | tr ' ' '\n' | sort -u | tr '\n' ' ')
  [ -z "$wanted" ] || ! may_install ||
    say "will install these packages of the system, by apt-get: $wanted. With SYSTEM_PACKAGES=no it installs none of the system's."
}

apt() {  # apt PACKAGE...: true when installed; nothing to do is that as well
  local sudo=()
  [ $# -gt 0 ] || return 0
  may_install || return 1
  [ "$(id -u)" = 0 ] || sudo=(sudo -n)
  say "installing $* (apt-get)"
  if [ -z "${APT_UPDATED:-}" ]; then
    "${sudo[@]}" apt-get update -qq >>"$LOG" 2>&1
    APT_UPDATED=1
  fi
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >>"$LOG" 2>&1
}

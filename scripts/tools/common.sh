# Shared by the install scripts, sourced: TOOLS and LOG are set, say, has, at_least and apt do what their names say.
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

#!/usr/bin/env bash
# What the demo and the tests need beyond Python, put in place where that is possible; quiet when all is there.
#
#   scripts/ensure_tools.sh java   Java 17, for Spark (make demo); fails if there is none afterwards
#   scripts/ensure_tools.sh cluster and what `make demo-cluster` runs on: an S3 server, Redis, Hadoop's S3 file system
#   scripts/ensure_tools.sh all    and the servers of the tests; what cannot be had is one sentence, and its tests skip
#                                  (or fail where CI=true)
#   scripts/ensure_tools.sh announce   nothing; it says which packages of the system `all` would install, and so do the others
#                                  before they begin. SYSTEM_PACKAGES=no keeps them from installing any.
#
# Each scripts/tools/NAME.sh defines ensure_NAME. Servers go below .cache/tools or come through apt-get, Java and
# compilers through apt-get, if we are root or have sudo without a password.
set -uo pipefail
cd "$(dirname "$0")/.."
for part in scripts/tools/*.sh; do . "$part"; done
[ "${1:-}" = announce ] || alone "$TOOLS/.lock"

packages_jvm() { ls .cache/jvm/jars/hudi-*.jar >/dev/null 2>&1 || has mvn || echo maven; }   # scripts/ensure_jvm.sh

everything=(java)   # first: some servers run on it
for part in scripts/tools/*.sh; do
  name=$(basename "$part" .sh)
  case "$name" in common | java) ;; *) everything+=("$name") ;; esac
done

case "${1:-all}" in
  java)
    announce java
    ensure_java
    ;;
  cluster)
    announce java versitygw redis s3a
    ensure_java || exit 1
    ensure_versitygw
    ensure_redis
    ensure_s3a
    true
    ;;
  announce) announce "${everything[@]}" jvm ;;
  all)
    announce "${everything[@]}"
    for name in "${everything[@]}"; do "ensure_$name"; done
    true
    ;;
  *)
    say "say java, cluster, all or announce"
    exit 2
    ;;
esac

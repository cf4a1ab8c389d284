#!/usr/bin/env bash
# The JVM reader of tests/jvm, put in place where that is possible; quiet when it is there.
#
#   .cache/jvm/venv   PySpark 3.5.9 in an environment of its own: there is no Hudi bundle for PySpark 4
#   .cache/jvm/jars   org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0 (81 MB), fetched by Maven
#
# With the argument `peers` also what `lakelatch bench` needs for Delta and Iceberg on the same PySpark (68 MB).
#
# What cannot be had is one sentence and no error: the tests then skip with the reason, or fail where CI=true.
# The bundle ends at Scala 2.12 and Spark 3.5: 1.2.0 has no 2.13 build and none for Spark 4 (November 2026).
# Reads need no pyarrow here: rows come back through Py4J.
set -uo pipefail
cd "$(dirname "$0")/.."

HOME_DIR="$PWD/.cache/jvm"
LOG="$HOME_DIR/install.log"
SPARK=3.5.9       # tests/jvm/readers.py and scripts/lock/jvm.txt name the same one
HUDI=org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0
PEERS=(           # benchmarks/lab/systems/on_spark.py names the same ones
  io.delta:delta-spark_2.12:3.3.3
  io.delta:delta-storage:3.3.3
  org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0
  org.xerial:sqlite-jdbc:3.54.1.0
)
STAMP="$HOME_DIR/venv/.installed-$SPARK"

mkdir -p "$HOME_DIR/jars"
. scripts/tools/common.sh
alone "$HOME_DIR/.lock"

ensure_venv() {
  local venv="$HOME_DIR/venv" python="$PWD/.venv/bin/python"   # the interpreter that the project's environment has
  [ -x "$python" ] || python="${PYTHON:-python3}"
  [ -f "$STAMP" ] && [ -x "$venv/bin/python" ] && return
  say "installing PySpark $SPARK (once)"
  rm -rf "$venv"
  if PYTHON="$python" scripts/make_venv.sh "$venv" jvm >>"$LOG" 2>&1; then
    touch "$STAMP"
  else
    say "PySpark $SPARK could not be installed, so the JVM reader tests cannot run; the reason is at the end of $LOG."
  fi
}

ensure_jar() {  # ensure_jar GROUP:ARTIFACT:VERSION
  local group name version fresh="$HOME_DIR/jars/.new"
  IFS=: read -r group name version <<<"$1"
  local jar="$name-$version.jar"
  [ -s "$HOME_DIR/jars/$jar" ] && return
  has mvn || apt maven
  if ! has mvn; then
    say "$jar is fetched by Maven; install it (Debian, Ubuntu: maven) and run this again."
    return
  fi
  say "fetching $name $version (Maven, once)"
  rm -rf "$fresh"
  if mvn -B -q dependency:get "-Dartifact=$1" -Dtransitive=false >>"$LOG" 2>&1 &&
     mvn -B -q dependency:copy "-Dartifact=$1" "-DoutputDirectory=$fresh" >>"$LOG" 2>&1 &&
     verified "$fresh"; then
    mv "$fresh/$jar" "$HOME_DIR/jars/$jar"   # it is there as a whole or not at all
  else
    say "Maven could not fetch $1; the reason is at the end of $LOG."
  fi
  rm -rf "$fresh"
}

"$PWD/scripts/ensure_tools.sh" java
ensure_venv
ensure_jar "$HUDI"
if [ "${1:-}" = peers ]; then
  for artifact in "${PEERS[@]}"; do ensure_jar "$artifact"; done
fi
exit 0

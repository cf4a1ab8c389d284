# An archive of the classes that Spark loads (178 MB), which the tests' JVMs map instead of reading and checking jars: a
# session costs a third less (tests/java.py). A JVM that finds another Java or other jars takes no notice of it.
packages_spark_classes() { :; }   # Java's own

ensure_spark_classes() {
  local home="$TOOLS/spark_classes" python="$PWD/.venv/bin/python" jars made scratch
  jars=$("$python" -c 'import pyspark; print(pyspark.__path__[0] + "/jars")' 2>>"$LOG") && has java || return 0
  made=$({ java -version; stat -c '%n %Y' "$jars"; } 2>&1)
  [ "$(cat "$home/made-with" 2>/dev/null)" = "$made" ] && return
  say "archiving the classes of Spark (once)"
  mkdir -p "$home"
  scratch=$(mktemp -d)
  # The pipe ends with the last one that holds it, which is the JVM: it writes the archive after the example has ended.
  JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -XX:ArchiveClassesAtExit=$home/new.jsa" \
    "$python" examples/spark_job.py "$scratch/table" 2>&1 | cat >>"$LOG"
  if [ -s "$home/new.jsa" ]; then
    mv "$home/new.jsa" "$home/classes.jsa" && echo "$made" >"$home/made-with"
  else
    say "the classes of Spark could not be archived, so its sessions begin slower; the reason is at the end of $LOG."
  fi
  rm -rf "$scratch"
}

# Java 17 or newer, for Spark and for servers that run on it.
java_version() {
  local java=java
  [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] && java="$JAVA_HOME/bin/java"
  has "$java" && "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

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

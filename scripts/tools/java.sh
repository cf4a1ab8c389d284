# Java 17 or newer, for Spark and for servers that run on it.
java_version() {
  local java=java
  [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] && java="$JAVA_HOME/bin/java"
  has "$java" && "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

java_is_recent() { local found; found=$(java_version); [ "${found:-0}" -ge 17 ]; }

packages_java() { java_is_recent || echo openjdk-17-jre-headless; }

ensure_java() {
  local found
  apt $(packages_java) || apt openjdk-21-jre-headless
  found=$(java_version)
  if [ "${found:-0}" -lt 17 ]; then
    say "Spark needs Java 17 or newer and found ${found:-none}; install it (Debian, Ubuntu: openjdk-17-jre-headless) and point JAVA_HOME at it."
    return 1
  fi
}

# ZooKeeper, and Apache Curator with a compiler for the test that a JVM's lock and ours exclude each other.
CURATOR_JAR=/usr/share/java/curator-recipes.jar
ZOOKEEPER_JAR=/usr/share/java/zookeeper.jar

packages_zookeeper() {
  [ -e "$ZOOKEEPER_JAR" ] && [ -e "$CURATOR_JAR" ] || echo zookeeper libcurator-recipes-java  # zookeeperd would start a server
  has javac || echo openjdk-17-jdk-headless
}

ensure_zookeeper() {
  apt $(packages_zookeeper)
  local lacking
  lacking=$(echo $(packages_zookeeper))
  [ -z "$lacking" ] ||
    say "the ZooKeeper tests need Debian's packages $lacking; install what your system has for them (the reason may be at the end of $LOG)."
}

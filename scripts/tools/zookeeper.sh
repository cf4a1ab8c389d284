# ZooKeeper, and Apache Curator with a compiler for the test that a JVM's lock and ours exclude each other.
CURATOR_JAR=/usr/share/java/curator-recipes.jar
ZOOKEEPER_JAR=/usr/share/java/zookeeper.jar

ensure_zookeeper() {
  if [ -e "$ZOOKEEPER_JAR" ] && [ -e "$CURATOR_JAR" ] && has javac; then return; fi
  local wanted=(zookeeper libcurator-recipes-java)  # not zookeeperd, which would start a server
  has javac || wanted+=(openjdk-17-jdk-headless)
  apt "${wanted[@]}"
  if [ ! -e "$ZOOKEEPER_JAR" ] || [ ! -e "$CURATOR_JAR" ] || ! has javac; then
    say "the ZooKeeper tests need Debian's packages ${wanted[*]}; install what your system has for them (the reason may be at the end of $LOG)."
  fi
}

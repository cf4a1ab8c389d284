# Amazon's emulator of DynamoDB (dynalite is in npm.sh), and its lock client for Java, which locks are shared with.
DYNAMODB_LOCAL=3.1.0   # pinned: an open range picks releases whose dependencies are not published
DYNAMODB_LOCK_CLIENT=1.2.0   # the one that Hudi 1.0 is built with

packages_dynamodb() {
  if dynamodb_is_there LoopbackDynamo && dynamodb_is_there AmazonLock; then return; fi
  has mvn || echo maven
  has javac || echo openjdk-17-jdk-headless
}

ensure_dynamodb() {
  if dynamodb_is_there LoopbackDynamo && dynamodb_is_there AmazonLock; then return; fi
  apt $(packages_dynamodb) || { apt maven; apt openjdk-21-jdk-headless; }
  if ! has mvn || ! has javac; then
    say "the DynamoDB tests need DynamoDB Local, which comes by Maven and is started by a small Java program; install Maven and a JDK (17 or newer) and run this again."
    return
  fi
  dynamodb_program LoopbackDynamo software.amazon.dynamodb DynamoDBLocal "$DYNAMODB_LOCAL"
  dynamodb_program AmazonLock com.amazonaws dynamodb-lock-client "$DYNAMODB_LOCK_CLIENT"
}

dynamodb_is_there() { [ "$TOOLS/dynamodb/$1/classes/$1.class" -nt "tests/servers/java/$1.java" ]; }

dynamodb_program() {  # dynamodb_program CLASS GROUP ARTIFACT VERSION: our small program and the jars that it is for
  local home="$TOOLS/dynamodb/$1"
  mkdir -p "$home/classes"
  if ! [ -d "$home/lib" ]; then
    say "installing $3 $4 (Maven)"
    cat >"$home/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lakelatch.tools</groupId>
  <artifactId>$1</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>$2</groupId><artifactId>$3</artifactId><version>$4</version></dependency>
  </dependencies>
</project>
POM
    mvn -q -B -f "$home/pom.xml" dependency:copy-dependencies -DoutputDirectory="$home/lib.new" >>"$LOG" 2>&1 &&
      verified "$home/lib.new" && mv "$home/lib.new" "$home/lib"   # whole or not at all
  fi
  javac -cp "$home/lib/*" -d "$home/classes" "tests/servers/java/$1.java" >>"$LOG" 2>&1 ||
    say "$3 could not be installed; the reason is at the end of $LOG."
}

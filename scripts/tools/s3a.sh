# Hadoop's S3 file system, by which Spark's own scan reads tables in S3: the version that PySpark's Hadoop has, with the parts
# of Amazon's SDK that it uses (18 MB; the bundle that it names has 600).
HADOOP_AWS=3.5.0
AWS_SDK=2.35.4

packages_s3a() { [ -d "$TOOLS/s3a/jars" ] || has mvn || echo maven; }

ensure_s3a() {
  local home="$TOOLS/s3a"
  [ -d "$home/jars" ] && return
  apt $(packages_s3a)
  if ! has mvn; then
    say "the tests of Spark's own scan of S3 need hadoop-aws, which comes by Maven; install Maven and run this again."
    return
  fi
  say "installing hadoop-aws $HADOOP_AWS (Maven)"
  mkdir -p "$home"
  cat >"$home/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lakelatch.tools</groupId>
  <artifactId>s3a</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId><version>$HADOOP_AWS</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
$(for part in s3-transfer-manager sts apache-client netty-nio-client; do
  echo "    <dependency><groupId>software.amazon.awssdk</groupId><artifactId>$part</artifactId><version>$AWS_SDK</version></dependency>"
done)
    <dependency>
      <groupId>software.amazon.s3.analyticsaccelerator</groupId><artifactId>analyticsaccelerator-s3</artifactId><version>1.3.1</version>
    </dependency>
  </dependencies>
</project>
POM
  rm -rf "$home/jars.new"
  # Spark brings Netty and the logging of its own.
  mvn -q -B -f "$home/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$home/jars.new" \
      -DexcludeGroupIds=io.netty,org.slf4j,commons-logging >>"$LOG" 2>&1 &&
    verified "$home/jars.new" && mv "$home/jars.new" "$home/jars" ||   # whole or not at all
    say "hadoop-aws could not be installed; the reason is at the end of $LOG."
}

# An S3 server; tests/servers starts it with the flags of this version.
VERSITYGW=v1.8.0
GO_MIN=1.22   # older ones cannot fetch the Go that versitygw asks for

go_version() { has go && go env GOVERSION 2>/dev/null | sed 's/^go//'; }
go_is_recent() { local found; found=$(go_version); [ -n "$found" ] && at_least "$found" "$GO_MIN"; }

packages_versitygw() {
  if [ -x "$TOOLS/bin/versitygw" ] || has versitygw; then return; fi
  if ! go_is_recent && has apt-cache &&
     at_least "$(apt-cache policy golang-go 2>/dev/null | sed -n 's/.*Candidate: *[0-9]*:\{0,1\}\([0-9.]*\).*/\1/p')" "$GO_MIN"; then
    echo golang-go
  fi
}

ensure_versitygw() {
  if [ -x "$TOOLS/bin/versitygw" ] || has versitygw; then return; fi
  apt $(packages_versitygw)
  if ! go_is_recent; then
    say "the S3 tests need versitygw, which is built with Go $GO_MIN or newer (found: $(go_version || true)); install Go from https://go.dev/dl and run this again."
    return
  fi
  say "building versitygw $VERSITYGW (some minutes, once)"
  GOBIN="$TOOLS/bin" go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW" >>"$LOG" 2>&1 ||
    say "versitygw could not be built; the reason is at the end of $LOG."
}

# An S3 server whose conditional writes are not atomic: what the probe must refuse. Quick to build, slow to run is enough. Its
# tests are those of `make thorough` alone, so only that builds it.
S3S_FS=0.14.1
RUST_MIN=1.92   # the crate says so

cargo_version() { has cargo && cargo --version 2>/dev/null | cut -d ' ' -f 2; }

packages_s3s_fs() { :; }

ensure_s3s_fs() {
  if [ "${THOROUGH:-}" != 1 ] || [ -x "$TOOLS/bin/s3s-fs" ] || has s3s-fs; then return; fi
  if ! at_least "$(cargo_version)" "$RUST_MIN"; then
    say "the tests of unsafe stores need s3s-fs, which is built with Rust $RUST_MIN or newer (found: $(cargo_version || true)); install Rust from https://rustup.rs and run this again."
    return
  fi
  say "building s3s-fs $S3S_FS (a minute or two, once)"
  CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR="$TOOLS/s3s-fs.target" \
    cargo install s3s-fs --version "$S3S_FS" --features binary --locked --debug --root "$TOOLS" >>"$LOG" 2>&1 ||
    say "s3s-fs could not be built; the reason is at the end of $LOG."
  rm -rf "$TOOLS/s3s-fs.target"
}

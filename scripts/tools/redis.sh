# Redis, for locks at redis://. One program is server, sentinel and cluster node; 6.2 is the first with all that the locks use.
REDIS_MIN=6.2

packages_redis() { has redis-server || echo redis-server; }

ensure_redis() {
  has redis-server || { apt $(packages_redis) && redis_service_off; }
  if ! has redis-server; then
    say "the Redis tests need redis-server; install it and run this again."
    return
  fi
  local found
  found=$(redis-server --version | sed -n 's/.*v=\([0-9.]*\).*/\1/p')
  at_least "$found" "$REDIS_MIN" || say "redis-server is $found; the Redis tests want $REDIS_MIN or newer."
}

redis_service_off() {  # the package starts one on a machine with systemd; the tests start their own
  has systemctl && systemctl disable --now redis-server >>"$LOG" 2>&1
  true
}

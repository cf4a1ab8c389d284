# Network namespaces: the hosts of tests/weather.
packages_iproute() { has ip || echo iproute2; }

ensure_iproute() {
  apt $(packages_iproute) || say "tests of weather need the ip command (iproute2); install it and run this again."
}

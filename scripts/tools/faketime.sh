# A clock that goes wrong on one host of the tests' cluster.
packages_faketime() { has faketime || echo faketime; }

ensure_faketime() {
  apt $(packages_faketime) || say "the test of a worker's wrong clock needs faketime; install it and run this again."
}

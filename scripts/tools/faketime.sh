# A clock that goes wrong on one host of the tests' cluster.
ensure_faketime() {
  has faketime || apt faketime || say "the test of a worker's wrong clock needs faketime; install it and run this again."
}

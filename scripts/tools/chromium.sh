# Chromium, for the tests of the server's dashboard. Debian's and Ubuntu's, driven by the Python package playwright.

has_chromium() { has chromium || has chromium-browser || has google-chrome; }

packages_chromium() { has_chromium || echo chromium; }

ensure_chromium() {
  apt $(packages_chromium)
  has_chromium || say "the dashboard's tests need chromium; install it and run this again."
}

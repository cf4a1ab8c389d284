# Chromium, for the tests of the server's dashboard. Debian's and Ubuntu's, driven by the Python package playwright.

ensure_chromium() {
  has chromium || has chromium-browser || has google-chrome || apt chromium
  has chromium || has chromium-browser || has google-chrome || say "the dashboard's tests need chromium; install it and run this again."
}

# Microsoft's emulator of Azure Blob Storage; tests/servers starts it with the flags of this version.
AZURITE=3.35.0

ensure_azurite() {
  if [ -x "$TOOLS/node_modules/.bin/azurite-blob" ] || has azurite-blob; then return; fi
  has npm || apt nodejs npm
  if ! has npm; then
    say "the Azure tests need Azurite, which comes by npm; install Node.js and run this again."
    return
  fi
  say "installing azurite $AZURITE (npm)"
  npm install --prefix "$TOOLS" --no-fund --no-audit --silent "azurite@$AZURITE" >>"$LOG" 2>&1 ||
    say "azurite could not be installed; the reason is at the end of $LOG."
}

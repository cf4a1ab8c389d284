# Servers that run on Node.js: Microsoft's emulator of Azure Blob Storage, which tests/servers starts with the flags of this
# version, dynalite, an emulator of DynamoDB for where there is no Java, and pyright. scripts/tools/npm has their versions, and the
# lock file those of all that they need: `npm install --package-lock-only --omit-lockfile-registry-resolved` makes it again.

npm_is_there() {
  cmp -s scripts/tools/npm/package-lock.json "$TOOLS/package-lock.json" && [ -x "$TOOLS/node_modules/.bin/azurite-blob" ]
}

packages_npm() { npm_is_there || has npm || echo nodejs npm; }

ensure_npm() {
  npm_is_there && return
  apt $(packages_npm)
  if ! has npm; then
    say "the Azure tests need Azurite, which comes by npm; install Node.js and run this again."
    return
  fi
  say "installing azurite, dynalite and pyright (npm)"
  cp scripts/tools/npm/package.json scripts/tools/npm/package-lock.json "$TOOLS/"
  npm ci --prefix "$TOOLS" --no-fund --no-audit --silent >>"$LOG" 2>&1 || {
    rm -f "$TOOLS/package-lock.json"   # so that the next run tries again
    say "azurite, dynalite and pyright could not be installed; the reason is at the end of $LOG."
  }
}

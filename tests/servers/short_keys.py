"""Keys for a short time, as the host of a container hands them out, and the users of an S3 server that they are."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from . import BUCKET, KEY, Bucket, require

SECRET = "secretsecret"
LEFT_S = 60  # a client asks for new keys when they have less than five minutes left


class ShortKeys:
    """Hands out the keys of one user; `replace` makes another one, and the first is no user any more."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self._bucket, self._number = bucket, 0
        self._token = folder / "token"
        self._token.write_text("let me in")
        self._user = self._new()
        self._admin("change-bucket-owner", "--bucket", BUCKET, "--owner", self._user)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def options(self) -> dict[str, str]:
        """Of a store that finds its keys here."""
        place = f"http://127.0.0.1:{self._server.server_port}/keys"
        ours = {"container_credentials_full_uri": place, "container_authorization_token_file": str(self._token)}
        return {k: v for k, v in self._bucket.options.items() if "key" not in k} | ours

    def replace(self) -> None:
        """The keys have expired."""
        before, self._user = self._user, self._new()
        self._admin("delete-user", "-a", before)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _new(self) -> str:
        self._number += 1
        self._admin("create-user", "-a", f"user{self._number}", "-s", SECRET, "-r", "admin")
        return f"user{self._number}"

    def _admin(self, *words: str) -> None:
        command = [require("versitygw"), "admin", "-a", KEY, "-s", KEY, "-er", self._bucket.options["endpoint"], *words]
        subprocess.run(command, check=True, capture_output=True)

    def _handler(keys) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                over = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + LEFT_S))
                told = {"AccessKeyId": keys._user, "SecretAccessKey": SECRET, "Token": "", "Expiration": over}
                body = json.dumps(told).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        return Handler


@contextmanager
def short_keys(bucket: Bucket, folder: Path) -> Iterator[ShortKeys]:
    keys = ShortKeys(bucket, folder)
    try:
        yield keys
    finally:
        keys.close()

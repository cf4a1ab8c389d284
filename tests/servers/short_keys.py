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
    """Hands out the keys of one user; `replace` makes another one, and the first is no user any more.

    Attributes:
        wrong_for_workers: who asks for keys as a worker does gets those of nobody.
    """

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self._bucket, self._number = bucket, 0
        self.wrong_for_workers = False
        self._token = folder / "token"
        self._token.write_text("let me in")
        self._user = self._new()
        self._admin("change-bucket-owner", "--bucket", BUCKET, "--owner", self._user)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def options(self) -> dict[str, str]:
        """Of a store that finds its keys here."""
        return self.without_keys | {
            name.removeprefix("AWS_").lower(): value for name, value in self.environment().items()
        }

    @property
    def without_keys(self) -> dict[str, str]:
        """Options of a store that looks for keys in the environment of its process."""
        return {k: v for k, v in self._bucket.options.items() if "key" not in k}

    def environment(self, who: str = "keys") -> dict[str, str]:
        """Variables by which a process finds its keys here; ``who`` is ``workers`` for those that may get wrong ones."""
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{self._server.server_port}/{who}",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(self._token),
        }

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
                user = "nobody" if keys.wrong_for_workers and self.path == "/workers" else keys._user
                over = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + LEFT_S))
                told = {"AccessKeyId": user, "SecretAccessKey": SECRET, "Token": "", "Expiration": over}
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

"""The cheapest correct use of an object store as a lock: read, replace if unchanged; replace to give back.

A bare client and a loop of compare-and-set on one object. A waiter looks again after a short random pause: without one, all
look all the time and nobody gets on. Credentials come from the environment, as for our own provider.
"""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore import exceptions as errors
from obstore import store as kinds

PAUSE_S = 0.002


class Floor:
    def __init__(self, address: str, worker: int) -> None:
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query))
        config = {name: options[name] for name in ("account_name", "endpoint", "region") if name in options}
        make = {"s3": kinds.S3Store, "gs": kinds.GCSStore, "az": kinds.AzureStore}[parts.scheme]
        client = {"allow_http": True} if options.get("allow_http") else {}
        self._store = make(
            parts.netloc, config=config, prefix=parts.path.strip("/"), client_options=client,
            retry_config={"max_retries": 0},
        )  # fmt: skip
        self._worker = worker
        self._path = "floor"
        with contextlib.suppress(errors.AlreadyExistsError):
            obstore.put(self._store, self._path, b"free start", mode="create")

    def cycle(self, hold: Callable[[], None]) -> float:
        """Take, hold, give back; returns the wait in seconds."""
        start = time.monotonic()
        while True:
            answer = obstore.get(self._store, self._path)
            if bytes(answer.bytes()).startswith(b"free"):
                tag = self._replace(b"held", answer.meta)
                if tag is not None:
                    break
            time.sleep(random.random() * 2 * PAUSE_S)  # nothing tells of a release
        waited_s = time.monotonic() - start
        hold()
        self._replace(b"free", tag)
        return waited_s

    def close(self) -> None:
        pass

    def _replace(self, state: bytes, tag: dict) -> dict | None:
        body = state + b" %d " % self._worker + uuid.uuid4().bytes  # equal bytes would have equal tags on S3
        try:
            mode = {name: tag[name] for name in ("e_tag", "version") if tag[name]}
            return obstore.put(self._store, self._path, body, mode=mode)
        except (errors.PreconditionError, errors.AlreadyExistsError):
            return None


PEERS: dict[str, type] = {}  # no Python library has such a lock

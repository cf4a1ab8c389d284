"""The floor and the peers of zk://: the fewest requests to ZooKeeper that still exclude, and kazoo's own Lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.recipe.lock import Lock


class _Client:
    def __init__(self, url: str, worker: int) -> None:  # noqa: ARG002
        parts = urlsplit(url)
        self.client = KazooClient(hosts=parts.netloc, timeout=30)
        self.client.start(timeout=60)
        self.folder = f"{parts.path.rstrip('/')}/{type(self).__name__}"
        self.client.ensure_path(self.folder)

    def close(self) -> None:
        self.client.stop()
        self.client.close()


class Floor(_Client):
    """Create, list, watch the one before; delete. No answer is ever lost here, so none is looked for."""

    def cycle(self, hold: Callable[[], None]) -> float:
        start = time.perf_counter()
        client, folder = self.client, self.folder
        path = client.create(f"{folder}/c-lock-", b"", ephemeral=True, sequence=True)
        mine = path.rpartition("/")[2]
        while True:
            line = sorted(client.get_children(folder))
            i = line.index(mine)
            if i == 0:
                break
            gone = threading.Event()
            try:
                client.get_children(f"{folder}/{line[i - 1]}", watch=lambda _, gone=gone: gone.set())
                gone.wait()
            except NoNodeError:
                pass
            if i == 1:
                break  # the one before us held the lock
        waited_s = time.perf_counter() - start
        hold()
        client.delete(path)
        return waited_s


class KazooLock(_Client):
    """kazoo's recipe."""

    def __init__(self, url: str, worker: int) -> None:
        super().__init__(url, worker)
        self.lock = Lock(self.client, self.folder, str(worker))

    def cycle(self, hold: Callable[[], None]) -> float:
        start = time.perf_counter()
        self.lock.acquire()
        waited_s = time.perf_counter() - start
        hold()
        self.lock.release()
        return waited_s


PEERS = {"kazoo Lock": KazooLock}

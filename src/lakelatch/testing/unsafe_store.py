"""A store that is not atomic: the negative control for tests that claim to notice one."""

from __future__ import annotations

import time

from ..storage import Durable, Outcome, Put
from ..storage.local import LocalStore

__all__ = ["CheckThenWrite"]

_BETWEEN_S = 0.005  # so that racers meet also where one of them runs at a time


class CheckThenWrite(LocalStore):
    """A store that checks first and writes afterwards: correct for calls in sequence, while racers all win."""

    def put_if_absent(self, path: str, body: bytes, *, durable: Durable = True) -> Put:
        if self.head(path) is not None:
            return Put(Outcome.LOST)
        time.sleep(_BETWEEN_S)  # another process may pass the same check
        return self.put(path, body, durable=durable)

    def replace_if_match(self, path: str, body: bytes, tag: str) -> Put:
        found = self.get(path)
        if found is None or found.tag != tag:
            return Put(Outcome.LOST)
        time.sleep(_BETWEEN_S)
        return self.put(path, body, durable=True)

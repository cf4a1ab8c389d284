"""Requests on the store: put by who waits for the lock, and read by who holds it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ...ahead import in_order
from ...environment import Environment
from ...storage import Store, is_far
from ..entries import REQUEST_BYTES, REQUESTS, Request

MEMBERS_MAX = 64  # commits of one entry
_AT_ONCE = 16


def put_request(store: Store, request: Request) -> bool:
    """Put it beside the log, if it is not too large for that; whether it is there. What goes wrong may go wrong."""
    body = request.to_bytes()
    return len(body) <= REQUEST_BYTES and store.put_if_absent(request.path, body, durable=False).done


def read_requests(store: Store, env: Environment, wanted: Iterable[str]) -> list[Request]:
    """The requests of transactions that are ``wanted``, oldest first, as many as go into one entry."""
    chosen: list[str] = []
    size = 0
    of = set(wanted)
    for found in store.list(REQUESTS):
        instant, _, number = found.name.partition("-")
        if instant not in of or not number.isdigit() or len(number) > 3 or found.size > REQUEST_BYTES:
            continue
        size += found.size
        if len(chosen) == MEMBERS_MAX - 1 or size > REQUEST_BYTES:
            break
        chosen.append(found.path)
    looks = [partial(store.body, path) for path in chosen]
    bodies = in_order(env, looks, _AT_ONCE if is_far(store.url) and len(looks) > 1 else 1)
    requests = (Request.from_bytes(body) if body is not None else None for body in bodies)
    return [each for path, each in zip(chosen, requests, strict=True) if each is not None and each.path == path]

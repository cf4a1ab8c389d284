"""Check by racing writers that a store's conditional writes are atomic.

A store can answer every sequential request correctly (create over existing: refused; wrong tag: refused) and still
let several racers win: s3s-fs 0.14.1 does. So some processes write to one path at the same moment, for several paths
and with large bodies as well, and every round has one winner whose bytes are what the store then holds.

A round detects a fault only when two writers meet, so its value grows with the pairs of writers, and its cost with
their number: 13 writers at 9 paths are 702 pairs in 117 writes, 8 writers at 24 paths are 672 in 192. More processes
than that take longer to start than their rounds save.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NoReturn

from ..arguments import brief
from ..errors import InputError, StorageError, UnsafeStoreError
from .cloud import Helper, line_of
from .interface import PROBES, Outcome, Put, Store

__all__ = ["Racers", "Report", "probe"]

_ANSWER_S = 120.0
_SMALL_BYTES = 64


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a passed probe: ``rounds`` with one winner each, ``unanswered`` writes."""

    url: str
    writers: int
    rounds: int
    unanswered: int
    seconds: float


def probe(store: Store, *, writers: int = 13, keys: int = 9, big: int = 256 * 1024) -> Report:
    """Race ``writers`` processes for ``keys`` paths, small and ``big`` (bytes), creating and replacing.

    By default it sends some 780 requests, takes a few seconds, and leaves nothing behind.

    Raises:
        UnsafeStoreError: the store gave a wrong answer, which the message shows. It must not hold a table.
        StorageError: the store cannot be reached or written.
    """
    if not callable(getattr(store, "put_if_absent", None)):
        raise InputError(f"store={brief(store)} is no store; open one with `lakelatch.storage.open_store(url)`")
    started = time.monotonic()
    folder = f"{PROBES}{os.urandom(6).hex()}"
    rounds = unanswered = 0
    paths = [f"{folder}/row"]
    try:
        _ask_in_a_row(store, paths[0])
        with Racers(store, writers) as racers:
            for size in (_SMALL_BYTES, big):
                for key in range(keys):
                    path = f"{folder}/{size:08d}-{key:05d}"
                    there = True
                    for act in ("create", "replace"):
                        answers = racers.race(act, path, size)
                        there = _judge(store, act, path, size, answers)
                        unanswered += sum(answer.outcome is Outcome.UNKNOWN for answer in answers)
                        rounds += 1
                    if there:
                        paths.append(path)
        _ask_listing(store, folder, paths)
    finally:
        for entry in store.list(folder):
            store.delete(entry.path)
    return Report(store.url, writers, rounds, unanswered, time.monotonic() - started)


class Racers:
    """Processes, each with its own store, that write to the same path at the same moment."""

    def __init__(self, store: Store, writers: int) -> None:
        self._stack = ExitStack()
        try:
            self._helpers = [self._stack.enter_context(Helper(race_on)) for _ in range(writers)]
            for number, helper in enumerate(self._helpers):
                helper.send((store, number))
        except BaseException:
            self._stack.close()
            raise

    def race(self, act: str, path: str, size: int) -> list[Put]:
        """Let all writers ``create``, or ``replace`` the object; return their answers by number."""
        with _helpers_answer():
            for helper in self._helpers:
                helper.send((act, path, size))
            for helper in self._helpers:
                helper.receive(_ANSWER_S)  # ready: body made, tag read, connection open
            for helper in self._helpers:
                helper.send("go")
            return [helper.receive(_ANSWER_S) for helper in self._helpers]

    def count(self, path: str, times: int) -> list[list[int]]:
        """Let each writer increment the number at ``path`` ``times``; return the values each got."""
        with _helpers_answer():
            for helper in self._helpers:
                helper.send(("count", path, times))
            return [helper.receive(_ANSWER_S) for helper in self._helpers]

    def __enter__(self) -> Racers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def race_on(fd: int) -> None:
    """Run one of the racing processes until the other end closes the pipe."""
    line, connected = line_of(fd), False
    try:
        store, number = line.recv()
        while True:
            act, path, size = line.recv()
            try:
                if act == "count":
                    line.send(_count(store, path, size))
                    continue
                # A creator needs no tag, but a connection: the first request opens it.
                found = store.get(path) if act == "replace" or not connected else None
                connected = True
                line.send("ready")
                line.recv()
                body = _body(act, number, size)
                if act == "create":
                    line.send(store.put_if_absent(path, body))
                else:
                    line.send(store.replace_if_match(path, body, found.tag if found else ""))
            except Exception as error:  # noqa: BLE001 - it is raised at the other end
                line.send(error)
    except (EOFError, ConnectionError):
        return


def _count(store: Store, path: str, times: int) -> list[int]:
    told: list[int] = []
    while len(told) < times:
        found = store.get(path)
        if found is None:
            raise UnsafeStoreError(f"{path} has vanished while it was only replaced")
        value = int(found.body) + 1
        answer = store.replace_if_match(path, b"%d" % value, found.tag)
        if answer.done:
            told.append(value)
    return told


def _body(act: str, number: int, size: int) -> bytes:
    # Never the current bytes: S3's tag is that of the content, so replacing them would not change the tag.
    return bytes([ord("A" if act == "create" else "a") + number % 26]) * size


@contextmanager
def _helpers_answer() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise StorageError(f"A process of the probe has ended or hangs ({error}); see its output above") from error


def _judge(store: Store, act: str, path: str, size: int, answers: list[Put]) -> bool:
    """Refuse unless at most one writer won (one if all got answers), with all its bytes. Return whether the object exists."""
    winners = [number for number, answer in enumerate(answers) if answer.done]
    unsure = [number for number, answer in enumerate(answers) if answer.outcome is Outcome.UNKNOWN]
    what = f"{len(answers)} writers tried to {act} one object of {size} bytes at once"
    if len(winners) > 1:
        _unsafe(store, f"{what}, and {len(winners)} were told that they had won")
    if not winners and not unsure:
        _unsafe(store, f"{what}, and none was told that it had won")
    found = store.get(path)
    possible = winners or unsure
    if found is None or found.body not in {_body(act, number, size) for number in possible}:
        if not winners and (found is None or act == "replace"):
            return found is not None  # no writer got an answer that it won, and the object agrees
        seen = "nothing" if found is None else f"{len(found.body)} bytes beginning with {found.body[:8]!r}"
        _unsafe(store, f"{what}; writer {possible} won, but afterwards there was {seen}")
    return True


def _ask_in_a_row(store: Store, path: str) -> None:
    first = store.put_if_absent(path, b"first")
    if first.outcome is Outcome.UNKNOWN:
        raise StorageError(f"{store.url} gives no clear answer to a first write ({first.cause}); try again later")
    if not first.done or first.tag is None:
        _unsafe(store, "a free name was said to be taken")
    if store.put_if_absent(path, b"second").done:
        _unsafe(store, "an object was created over another one")
    second = store.replace_if_match(path, b"second", first.tag)
    if second.done and store.replace_if_match(path, b"third", first.tag).done:
        _unsafe(store, "an object was replaced though it had changed")
    if store.replace_if_match(f"{path}-none", b"third", first.tag).done:
        _unsafe(store, "an object was replaced where there was none")
    found = store.get(path)
    if second.done and (found is None or found.body != b"second"):
        _unsafe(store, "a write that was done is not read back")


def _ask_listing(store: Store, folder: str, paths: list[str]) -> None:
    """Refuse unless the listing has every object that was read back, and nothing that does not exist."""
    listed = [entry.path for entry in store.list(folder)]
    strange = set(listed) - set(paths)  # perhaps from a write without an answer
    if not set(paths) <= set(listed) or any(store.head(path) is None for path in strange):
        _unsafe(store, "the listing differs from what is there")


def _unsafe(store: Store, seen: str) -> NoReturn:
    raise UnsafeStoreError(
        f"{store.url} must not hold a table: {seen}. Its conditional writes are not atomic, so two commits could "
        "overwrite each other. Use another store (docs/storage.md names tested ones)",
        url=store.url,
        seen=seen,
    )

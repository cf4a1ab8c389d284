"""The requests of `CloudStore` to S3, GCS and Azure, through obstore: the one module that imports it.

obstore's threads do not survive a fork: in the child of a process that has used it, its first request hangs for
ever. There a `Relay` takes the place of the `Client`: it starts a fresh interpreter, which sends the requests and
ends with it.
"""

from __future__ import annotations

import os
import platform
import re
import threading
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Protocol

from ...errors import ConfigError
from ..location import Location
from .loop_thread import Helper, line_of

__all__ = ["Client", "Failure", "Found", "Requests", "Verdict", "connect", "next_step"]

Found = tuple[str, int, float]  # path, size, modification time
_STATUS = re.compile(r"status code: (\d{3})")
# The last is the word of DeleteObjects, by which obstore deletes on S3, for one object: in an answer of status 200.
_REFUSED = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist|\(code: AccessDenied\)")
# reqwest's words for a connection that never came about: nothing was sent.
_NOT_SENT = re.compile(r"client error \(Connect\)|tcp connect error|dns error|URL scheme is not allowed|BadScheme")

# The next step after a refusal; the host is named, since many hosts may work on one table.
_NEXT_STEPS = (
    (re.compile("RequestTimeTooSkewed"), "The clock of {host} differs from the server's; set it right"),
    (
        re.compile(r"169\.254\.169\.254"),
        "{host} was given no keys, and found none; give them to `open`, or to its environment",
    ),
    (
        re.compile("ExpiredToken|InvalidToken|InvalidAccessKeyId|SignatureDoesNotMatch"),
        "The keys that {host} uses are wrong or have expired; give others, or let it find such as are renewed (docs/storage.md)",
    ),
)

_PAGE = 1000  # objects, of all services
_LAST = "zzzz"  # later names in a hidden folder are listed and dropped
_PLAIN_HTTP = re.compile(r"URL scheme is not allowed|BadScheme")


class Verdict(Enum):
    """The effect of a failed request on the object."""

    ABSENT = "absent"
    TAKEN = "taken"  # the condition of the write did not hold
    REFUSED = "refused"  # certainly nothing was written
    UNSURE = "unsure"  # the request may have been carried out, or may still be


class Failure(Exception):
    """A request that did not succeed; ``text`` is one line without secrets."""

    def __init__(self, verdict: Verdict, text: str) -> None:
        super().__init__(verdict, text)
        self.verdict = verdict
        self.text = text


def next_step(failure: Failure) -> str:
    """Return the next step for a person whose request was refused."""
    for reason, step in _NEXT_STEPS:
        if reason.search(failure.text):
            return step.format(host=platform.node())
    # The answer to a HEAD has no body, so a refused one has no reason.
    host = platform.node()
    return f"Check that the bucket exists, that the keys of {host} may use it, and that the clock of {host} is right"


class Requests(Protocol):
    """The requests that `Client` and `Relay` share. Each raises `Failure`."""

    def put(self, path: str, body: bytes, mode: str | Mapping[str, str]) -> str: ...
    def get(self, path: str, bytes_max: int | None) -> tuple[bytes, str, float]: ...
    def get_range(self, path: str, start: int, end: int) -> bytes: ...
    def head(self, path: str) -> Found: ...
    def listing(self, folder: str, after: str | None, hidden: bool) -> list[Found]: ...
    def level(self, folder: str) -> tuple[list[Found], list[str]]: ...
    def delete(self, path: str) -> None: ...


_lock = threading.Lock()
_started_in: int | None = None  # the process in which obstore's threads were started


def connect(place: Location) -> Requests:
    """Return the way to ``place`` that works in this process. No request is sent yet."""
    global _started_in
    with _lock:
        if _started_in is None:
            _started_in = os.getpid()
    return Client(place) if _started_in == os.getpid() else Relay(place)


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that no longer exists may have held the old one


os.register_at_fork(after_in_child=_new_lock)


class Client:
    """Requests made in this process."""

    def __init__(self, place: Location) -> None:
        try:
            import obstore
            from obstore import store as kinds
        except ModuleNotFoundError as error:
            raise ConfigError(f"{place.kind}:// needs: pip install 'lakelatch[cloud]'") from error
        self._kind = place.kind
        self._obstore = obstore
        make: Any = {"s3": kinds.S3Store, "gs": kinds.GCSStore, "az": kinds.AzureStore}[place.kind]
        config = dict(place.options)
        # For how long a repeatable request is retried.
        patience_s = float(config.pop("retry_s", 60))
        if place.account:
            config["account_name"] = place.account
        shared: dict[str, Any] = {"config": config, "prefix": place.path or None}
        if "root_certificate" in config:
            # The one option that is none of `config`. Client options take the place of those in the environment, as
            # AWS_ALLOW_HTTP and AWS_PROXY_URL, so no other is given as such.
            shared["client_options"] = {"root_certificate": config.pop("root_certificate")}
        patient = {"max_retries": 5, "retry_timeout": timedelta(seconds=patience_s)}
        try:
            self._patient: Any = make(place.bucket, retry_config=patient, **shared)
            # A conditional write is sent once: obstore would send it again after a lost reply, find the first
            # one's effect, and report a loss to the winner.
            self._once: Any = make(place.bucket, retry_config={"max_retries": 0}, **shared)
        except obstore.exceptions.BaseError as error:
            raise ConfigError(f"{place.url} cannot be opened: {_line(error).rstrip('.')}") from error

    def put(self, path: str, body: bytes, mode: str | Mapping[str, str]) -> str:
        # An overwrite may be repeated: its second effect is the first one's.
        store = self._patient if mode == "overwrite" else self._once
        result = self._ask(self._obstore.put, store, path, body, mode=mode, use_multipart=False)
        return _tag(result)

    def get(self, path: str, bytes_max: int | None) -> tuple[bytes, str, float]:
        answer = self._ask(self._obstore.get, self._patient, path)
        if bytes_max is None or answer.meta["size"] <= bytes_max:
            body = bytes(self._ask(answer.bytes))
        else:
            body = bytes(self._ask(next, iter(answer.stream(bytes_max))))[:bytes_max]  # the rest never arrives
        return body, _tag(answer.meta), answer.meta["last_modified"].timestamp()

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return bytes(self._ask(self._obstore.get_range, self._patient, path, start=start, end=end))

    def head(self, path: str) -> Found:
        return _found(self._ask(self._obstore.head, self._patient, path))

    def listing(self, folder: str, after: str | None, hidden: bool) -> list[Found]:
        return list(self._ask(self._listed, folder, after, hidden).values())

    def _listed(self, folder: str, after: str | None, hidden: bool) -> dict[str, Found]:
        start, found, skipped = len(folder) + 1 if folder else 0, dict[str, Found](), set[str]()
        while True:
            for page in self._obstore.list(self._patient, folder or None, offset=after, chunk_size=_PAGE):
                found |= {item["path"]: _found(item) for item in page}
                last = page[-1]["path"] if len(page) == _PAGE and not hidden else ""
                below, slash, _ = last[start:].partition("/")
                if slash and below.startswith(".") and below not in skipped:
                    skipped.add(below)  # once: not every store honours the start of a listing
                    after = f"{last[:start]}{below}/{_LAST}"
                    break
            else:
                return found

    def level(self, folder: str) -> tuple[list[Found], list[str]]:
        answer = self._ask(self._obstore.list_with_delimiter, self._patient, folder or None)
        return [_found(item) for item in answer["objects"]], list(answer["common_prefixes"])

    def delete(self, path: str) -> None:
        self._ask(self._obstore.delete, self._patient, path)

    def _ask(self, request: Any, *args: Any, **options: Any) -> Any:
        errors = self._obstore.exceptions
        try:
            return request(*args, **options)
        except (errors.BaseError, OSError, ValueError) as error:
            raise Failure(_judge(error, self._kind, errors), _line(error)) from error


class Relay:
    """Requests made by a helper process, one at a time."""

    def __init__(self, place: Location) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._helper: Helper | None = None

    def _ask(self, name: str, *args: Any) -> Any:
        try:
            with self._lock:
                if self._helper is None:
                    self._helper = Helper(serve)
                    self._helper.send(self._place)
                self._helper.send((name, args))
                return self._helper.receive()
        except (OSError, EOFError) as error:
            if self._helper is not None:
                self._helper.close()
            self._helper = None  # the next request starts another one
            raise Failure(Verdict.UNSURE, "the helper process that makes requests after a fork has ended") from error

    def put(self, path: str, body: bytes, mode: str | Mapping[str, str]) -> str:
        return str(self._ask("put", path, body, mode))

    def get(self, path: str, bytes_max: int | None) -> tuple[bytes, str, float]:
        body, tag, mtime = self._ask("get", path, bytes_max)
        return body, tag, mtime

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return bytes(self._ask("get_range", path, start, end))

    def head(self, path: str) -> Found:
        path, size, mtime = self._ask("head", path)
        return path, size, mtime

    def listing(self, folder: str, after: str | None, hidden: bool) -> list[Found]:
        return list(self._ask("listing", folder, after, hidden))

    def level(self, folder: str) -> tuple[list[Found], list[str]]:
        found, folders = self._ask("level", folder)
        return found, folders

    def delete(self, path: str) -> None:
        self._ask("delete", path)


def serve(fd: int) -> None:
    """Be the helper process of a `Relay`: answer requests until the other end is closed."""
    line = line_of(fd)
    try:
        client: Client | None = None
        place = line.recv()
        while True:
            name, args = line.recv()
            try:
                client = client or Client(place)
                answer = getattr(client, name)(*args)
            except (Failure, ConfigError) as error:
                answer = error
            line.send(answer)
    except (EOFError, ConnectionError):
        return


def _tag(meta: Any) -> str:
    """Return both halves of obstore's name for a version; a tag has no spaces, so one separates them."""
    return f"{meta.get('version') or ''} {meta.get('e_tag') or ''}"


def _found(meta: Any) -> Found:
    return meta["path"], meta["size"], meta["last_modified"].timestamp()


def _judge(error: Exception, kind: str, errors: Any) -> Verdict:
    text = str(error)
    match = _STATUS.search(text)
    status = int(match[1]) if match else 0
    if _REFUSED.search(text):
        return Verdict.REFUSED
    if status == 409:
        # S3's 409 does not decide about the object ("a conflicting operation occurred", to be retried), though obstore
        # reports it as AlreadyExists. Azure's does, if it names the blob.
        return Verdict.TAKEN if kind == "az" and "BlobAlreadyExists" in text else Verdict.UNSURE
    if isinstance(error, errors.AlreadyExistsError | errors.PreconditionError) or status == 412:
        return Verdict.TAKEN
    if isinstance(error, FileNotFoundError | errors.NotFoundError) or status == 404:
        return Verdict.ABSENT
    if isinstance(error, ValueError | errors.InvalidPathError | errors.NotSupportedError):
        return Verdict.REFUSED
    if isinstance(error, errors.PermissionDeniedError | errors.UnauthenticatedError):
        return Verdict.REFUSED
    if status:
        return Verdict.UNSURE if status in (408, 429) or status >= 500 else Verdict.REFUSED
    return Verdict.REFUSED if _NOT_SENT.search(text) else Verdict.UNSURE


def _line(error: Exception) -> str:
    """Return the helpful part of obstore's message, without URLs' queries and users, which may hold secrets."""
    text = re.sub(r"//[^\s/@]*@", "//…@", str(error))
    line = re.sub(r"\?[^\s\"')]*", "", text.partition("\n")[0].partition(": <")[0])[:300]
    code = re.search(r"<Code>(\w+)</Code>", text)
    if code:
        line += f" ({code[1]})"
    if _PLAIN_HTTP.search(text):
        line += "; an endpoint that begins with http:// needs the option allow_http=true"
    return line

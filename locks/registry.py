"""Open the lock provider for a URL: built-in ones first, then entry points.

A third party registers ``scheme = "package.module:opener"`` in the entry point group ``lakelatch.lock_providers``;
the opener is called as ``opener(url, env=env)`` and returns a `LockProvider`, which is told the lease with each request.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from ..environment import SYSTEM, Environment
from ..errors import ConfigError
from ..storage import may_hold_secret
from .interface import LockProvider
from .lock_url import LEASE_S, check_path, is_path, split

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "lakelatch.lock_providers"

# scheme -> (module of this part, opener, extra that brings its client). Nothing is imported before it is asked for.
_BUILT_IN = {
    "file": (".file", "open_file_locks", ""),
    "memory": (".memory", "open_memory_locks", ""),
    "zk": (".zookeeper", "open_zookeeper_locks", "zookeeper"),
    "redis": (".redis", "open_redis_locks", "redis"),
    "rediss": (".redis", "open_redis_locks", "redis"),
    "redis+sentinel": (".redis", "open_redis_locks", "redis"),
    "redis+cluster": (".redis", "open_redis_locks", "redis"),
    "dynamodb": (".dynamodb", "open_dynamodb_locks", "dynamodb"),
    "s3": (".objects", "open_object_locks", "cloud"),
    "gs": (".objects", "open_object_locks", "cloud"),
    "az": (".objects", "open_object_locks", "cloud"),
}

# The package of a client -> (module of this part, opener). The caller who has the client has imported it already.
_CLIENTS = {
    "redis": (".redis", "redis_locks_on"),
    "kazoo": (".zookeeper", "zookeeper_locks_on"),
    "boto3": (".dynamodb", "dynamodb_locks_on"),
    "botocore": (".dynamodb", "dynamodb_locks_on"),
}

_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*")


def read_scheme(url: str) -> str:
    """Return the scheme of a lock URL, in lower case.

    Raises `ConfigError` for anything that is neither a URL nor a folder. A mistyped URL must not
    become a folder of that name, or each writer would have a different lock.
    """
    if not url:
        raise ConfigError("The lock URL is empty; write for example file:///shared/locks or memory://name", url=url)
    if is_path(url) or re.match("file:", url, re.IGNORECASE):
        return "file"
    scheme, there, _ = url.partition("://")
    if there and _SCHEME.fullmatch(scheme):
        return scheme.lower()
    hidden = "@" in unquote(url) or may_hold_secret(url)
    start = url.partition(":")[0].lower()
    hint = f" Write {start}://." if start in known_schemes() else " A ~ is not expanded." if url[:1] == "~" else ""
    raise ConfigError(
        f"{'What was given' if hidden else repr(url.partition('?')[0])} is no lock.{hint} A folder begins with /, ./, "
        f"../ or file:, everything else with a scheme: {', '.join(f'{each}://' for each in known_schemes())}. A table can "
        "also have the lock 'table' (in its own folder), or none://",
        known=known_schemes(),
    )


def check_url(url: str) -> None:
    """Raise `ConfigError` for a lock that no process can open, or that holds a password."""
    if is_path(url):
        check_path(url)
    else:
        read_scheme(url)
        split(url)


def open_provider(url: object, *, env: Environment = SYSTEM, lease_s: float = LEASE_S) -> LockProvider:
    """Open the provider for ``url``; a bare path means ``file://``. It connects at first use. The caller closes it.

    Instead of a URL it may be a client: `redis.Redis`, `kazoo.client.KazooClient`, or boto3's client, resource or Table for
    DynamoDB. Its address, credentials and TLS are used, on our own connections with time limits below the lease. The client
    is never closed here, and may be closed before.

    ``lease_s``, in seconds, counts where a URL of a built-in lock has no ``lease``: sessions and time limits of requests
    follow it too. A client's locks and those of other packages are told the lease with each request.
    """
    if not isinstance(url, str):
        return _open_on(url, env)
    scheme = read_scheme(url)
    if scheme in _BUILT_IN:
        module, opener, extra = _BUILT_IN[scheme]
        try:
            loaded = import_module(module, __package__)
        except ModuleNotFoundError as e:
            raise ConfigError(
                f"Locks at {scheme}:// need {e.name}; run pip install 'lakelatch[{extra}]'", scheme=scheme, extra=extra
            ) from e
        return cast(LockProvider, getattr(loaded, opener)(url, env=env, lease_s=lease_s))
    for entry in _installed():
        if entry.name.lower() == scheme:
            return cast(LockProvider, entry.load()(url, env=env))
    raise ConfigError(
        f"There is no lock provider for {scheme!r}; known are {', '.join(known_schemes())}",
        scheme=scheme,
        known=known_schemes(),
    )


def _open_on(client: object, env: Environment) -> LockProvider:
    for base in type(client).__mro__:
        if (found := _CLIENTS.get(base.__module__.partition(".")[0])) is not None:
            return cast(LockProvider, getattr(import_module(found[0], __package__), found[1])(client, env=env))
    raise ConfigError(
        f"A lock is at a URL, a LockProvider or a client of redis-py, kazoo or boto3, not at {type(client).__qualname__} "
        "(a value, which is not shown)"
    )


def known_schemes() -> tuple[str, ...]:
    """Return the schemes that `open_provider` knows: built-in ones and installed entry points."""
    return tuple(sorted({*_BUILT_IN, *(entry.name for entry in _installed())}))


def _installed() -> EntryPoints:
    """Return the providers of other packages; imported here, for most locks are built in."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)

"""Parses a Redis URL: one server, a Sentinel service or a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from ...errors import ConfigError
from ..lock_url import LockUrl

# Option of the URL -> redis-py's name of it. All are paths of files.
_FILES = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "cert_key": "ssl_keyfile"}
OPTIONS = ("tls", *_FILES)
_PORT, _SENTINEL_PORT = 6379, 26379


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the servers. Secrets are not here; they are read when a connection is made."""

    mode: str  # "", "sentinel" or "cluster"
    hosts: tuple[tuple[str, int], ...]
    user: str | None
    service: str
    db: int
    tls: bool
    files: tuple[tuple[str, str], ...]  # redis-py's name of the setting, path
    timeout_s: float  # for one attempt of one request

    def __str__(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    @property
    def netloc(self) -> str:
        """The part of the URL between the scheme and the path, in one spelling."""
        return f"{quote(self.user)}@{self}" if self.user else str(self)

    @property
    def path(self) -> str:
        """The part of the URL behind the servers, in one spelling."""
        return "".join(f"/{part}" for part in (self.service, self.db) if part)

    @classmethod
    def of(cls, url: LockUrl, timeout_s: float) -> Address:
        """Parse a lock URL. Raises `ConfigError` if its parts contradict each other."""
        mode = url.scheme.partition("+")[2]
        user, _, places = url.host.rpartition("@")
        hosts = tuple(_host(place, _SENTINEL_PORT if mode == "sentinel" else _PORT, url) for place in places.split(","))
        if len(hosts) > 1 and not mode:
            raise ConfigError(f"{url} names several servers; write redis+sentinel:// or redis+cluster://", url=str(url))
        parts = [part for part in url.path.split("/") if part]
        service = parts.pop(0) if mode == "sentinel" and parts else ""
        if mode == "sentinel" and not service:
            raise ConfigError(f"{url} names no service; write redis+sentinel://host1,host2/SERVICE", url=str(url))
        db = parts.pop(0) if parts and mode != "cluster" else "0"
        if parts or not (db.isascii() and db.isdigit()):
            raise ConfigError(
                f"{url} has {url.path!r} behind its servers; only the number of a database can stand there "
                "(redis+sentinel: the service, then the number; redis+cluster: nothing)",
                url=str(url),
            )
        asked = url.options.get("tls", "")
        if asked not in ("", "on", "off") or (asked == "off" and url.scheme == "rediss"):
            raise ConfigError(f"tls={asked!r} in {url} makes no sense; write tls=on, or rediss://", url=str(url))
        tls = url.scheme == "rediss" or asked == "on"
        files = tuple((name, url.options[key]) for key, name in _FILES.items() if key in url.options)
        if files and not tls:
            raise ConfigError(f"{url} names certificates without TLS; write rediss:// or tls=on", url=str(url))
        return cls(mode, hosts, unquote(user) or None, service, int(db), tls, files, timeout_s)


def _host(place: str, port: int, url: LockUrl) -> tuple[str, int]:
    host, colon, number = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, number = place, str(port)
    host = host.strip("[]").lower()
    if not host or not (number.isascii() and number.isdigit() and 0 < int(number) < 65536):
        raise ConfigError(f"{url} names no server at {place!r}; write for example redis://host:6379", url=str(url))
    return host, int(number)
